"""Every option of ``gpusize run``, once. Command line, files, studies and help are made from this table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpusize.options.option import Group, Option, Part
from gpusize.targets.known_apis import listed

if TYPE_CHECKING:
    from gpusize.options.kinds import Kind

__all__ = ["ALIASES", "GROUPS", "OPTIONS", "SHARED", "kinds_of"]

GROUPS: Final[tuple[Group, ...]] = (
    Group(
        "Target",
        "target",
        (
            Option(
                "url",
                "texts",
                "Send to this address. Repeat it for replicas, or name a file of them as @FILE.",
                "URL",
                "a simulated cluster",
                common=True,
            ),
            Option("api", "text", f"Speak this API: {listed()}.", "NAME", "guessed from the address", common=True),
            Option("model", "text", "Ask for this model. Mix several as a=3,b=1.", "NAME", common=True),
            Option("api_key_env", "text", "Read the API key from this environment variable.", "VARIABLE", common=True),
            Option(
                "workflow",
                "text",
                "Call this Python function instead of an address.",
                "MODULE:FUNCTION",
                common=True,
                part="run",
            ),
            Option("command", "text", "Start this program for each request: 'prog {question}'.", "LINE", part="run"),
            Option(
                "gpus",
                "whole",
                "GPUs behind the target. Without it there is no estimate.",
                "N",
                common=True,
                aliases=("test-gpu-count",),
            ),
            Option("header", "texts", "Add a header. Take secrets from env:VARIABLE or file:PATH.", "'NAME: VALUE'"),
            Option("headers", "pairs", "Add these headers, a table of name and value.", "TABLE", places="file"),
            Option(
                "balance",
                "text",
                "Spread requests over replicas: round_robin or least_outstanding.",
                "RULE",
                "round_robin",
            ),
            Option("timeout", "duration", "Give up a request after this time.", "TIME", "5m"),
            Option("connect_timeout", "duration", "Give up connecting after this time.", "TIME", "5s"),
            Option(
                "resolve_every", "duration", "Look host names up again this often, for new connections.", "TIME", "30s"
            ),
            Option("cacert", "text", "Trust the authorities in this PEM file.", "FILE", "the system's"),
            Option("insecure", "flag", "Accept any certificate. The report says so."),
            Option("http2", "flag", "Speak HTTP/2."),
            Option("streams", "whole", "Requests that share an HTTP/2 connection.", "N", "1"),
            Option(
                "llm_proxy", "text", "Pass a workflow's LLM calls on to this server, and time them.", "URL", part="run"
            ),
            Option(
                "replicas",
                "text",
                "Replicas of the simulated cluster over time: '1@0s,2@30s'.",
                "N@TIME,...",
                "one per GPU",
                part="run",
            ),
            Option(
                "start_delay",
                "duration",
                "Let a new replica of the simulated cluster take this long to start.",
                "TIME",
                "0s",
                part="run",
            ),
        ),
    ),
    Group(
        "Requests",
        "target",
        (
            Option("stream", "flag", "Ask for a stream of events.", default="on", off=True),
            Option("max_tokens", "whole", "Generate at most this many tokens.", "N", common=True),
            Option(
                "output_length",
                "text",
                "Generate at most (max) or exactly (exact) as many tokens as the row says.",
                "HOW",
                "max",
            ),
            Option("temperature", "number", "Sampling temperature.", "X"),
            Option(
                "history",
                "text",
                "Repeat in later turns what the dataset has (recorded) or what the server said (answers).",
                "HOW",
                "recorded",
            ),
            Option("extra_body", "table", "Add these members to the body.", "JSON"),
            Option("body_template", "text", "Fill the placeholders of this body: a text or a file.", "TEXT"),
            Option("content_type", "text", "Content type of the body.", "TYPE", "application/json"),
            Option("method", "text", "HTTP method.", "METHOD", "POST"),
            Option(
                "response",
                "any",
                "Read a field of the response from here, as content=/text.",
                "FIELD=VALUE",
                "the API's",
                many=True,
            ),
            Option(
                "success", "text", "Count every response without an error as a success (any).", "any", "the API's rule"
            ),
        ),
    ),
    Group(
        "Dataset",
        "dataset",
        (
            Option(
                "dataset", "text", "Send the rows of this file: JSON, JSONL, CSV, TSV or Parquet.", "FILE", common=True
            ),
            Option("dataset_key", "text", "Send this field of a row; . for the whole row.", "KEY", "the usual names"),
            Option("dataset_format", "text", "Format of the file.", "FORMAT", "by its name and contents"),
            Option("dataset_id_key", "text", "Field with the row's id.", "KEY", "id"),
            Option("prompt", "text", "Send this one text.", "TEXT", common=True),
            Option(
                "synthetic", "any", "Make prompts up: 'input=512 output=normal(128,16) rows=200'.", "TEXT", common=True
            ),
            Option("tokenizer", "text", "Count tokens with this tokenizer.json.", "FILE", "4 characters a token"),
            Option("input", "texts", "Send tensors (KServe): a JSON file, folder, .npy, .npz, random or zero.", "WHAT"),
            Option("shape", "texts", "Shape of a tensor (KServe), as NAME:3,224,224.", "NAME:N,N", "the model's"),
            Option("batch", "whole", "Samples in one request (KServe).", "N", "1"),
            Option("shuffle", "flag", "Send the rows in a seeded random order.", places="command"),
            Option("order", "text", "Order of the rows: shuffled.", "HOW", "file order", places="file", part="load"),
        ),
    ),
    Group(
        "Load",
        "load",
        (
            Option(
                "concurrencies",
                "concurrencies",
                "Keep this many requests in flight, one level each: 1,2,4,8 or 1:16:5.",
                "LIST",
                "1,2,4,8,16,32; with an SLO a search",
                common=True,
                aliases=("concurrency", "concurrency-range"),
            ),
            Option(
                "rates",
                "rates",
                "Send this many requests per second, one level each: 5,10,20.",
                "LIST",
                common=True,
                aliases=("request-rate",),
            ),
            Option(
                "stages",
                "stages",
                "Change the load over time: '1/s@10m, 1/s..50/s@5m' or '8@1m, 8..64@5m'.",
                "LIST",
                common=True,
            ),
            Option(
                "profile",
                "text",
                "Send a shape that autoscalers are tried on: stair, ramp, spike, burst-drain, sustained or mixed.",
                "NAME",
            ),
            Option(
                "load", "load", "Read the load from this YAML, TOML or JSON file. It may have several streams.", "FILE"
            ),
            Option(
                "passes",
                "whole",
                "Send this many times as many requests per level as are in flight.",
                "N",
                "whole rounds through the dataset",
                common=True,
                aliases=("num-passes",),
            ),
            Option("count", "whole", "Send this many requests per level.", "N"),
            Option("duration", "duration", "End a level after this time.", "TIME", common=True),
            Option("process", "text", "Arrivals at a rate: poisson, constant or gamma.", "NAME", "poisson"),
            Option("burstiness", "number", "Burstiness of gamma arrivals: 1 is Poisson, less is burstier.", "X", "1"),
            Option("warmup", "duration", "Do not count the start of a level.", "TIME", "found from the records"),
            Option("seed", "whole", "Seed of all random draws.", "N", "1"),
        ),
    ),
    Group(
        "Search for the highest load within the SLOs",
        "search",
        (
            Option("adaptive", "flag", "Search.", default="on with an SLO and no levels", off=True),
            Option("precision", "any", "Stop when the capacity is known to within this share.", "SHARE", "3%"),
            Option(
                "budget",
                "any",
                "Stop after this many requests, this time or this much money: 4000, 10m or 5usd.",
                "N|TIME|MONEY",
                "16000 requests",
            ),
            Option("gpu_hour_price", "text", "Price of a GPU for an hour: 2.5 or '2.5 EUR'.", "PRICE"),
            Option("most_users", "whole", "Never send with more users than this.", "N", "4096"),
        ),
    ),
    Group(
        "Trace: recorded arrivals and stored plans",
        "load",
        (
            Option("arrivals", "text", "Replay the arrivals in this file, or in the dataset (dataset).", "FILE"),
            Option("arrivals_format", "text", "Format of the trace.", "FORMAT", "by its name and contents"),
            Option("arrivals_from", "duration", "Skip the trace before this time.", "TIME", "0s"),
            Option("arrivals_until", "duration", "End the trace at this time.", "TIME", "its end"),
            Option("speed", "number", "Replay, or go through the profile, this many times faster.", "X", "1"),
            Option("rate_scale", "number", "Send this many times as many requests.", "X", "1"),
            Option("plan", "text", "Send a stored plan again, exactly: its file, or a run folder.", "PATH"),
        ),
    ),
    Group(
        "Users and overload",
        "load",
        (
            Option("sessions", "flag", "Start conversations instead of single requests."),
            Option("think", "think", "Pause after an answer: 2s, exp(2s), uniform(1s,3s) or recorded.", "TIME", "0s"),
            Option("overload", "text", "Without a free connection: queue, shed or grow.", "HOW", "queue"),
            Option("connections", "whole", "Connections at a rate.", "N", "256"),
            Option("max_connections", "whole", "Most connections with --overload grow.", "N", "4 times --connections"),
            Option("queue", "whole", "Let this many due requests wait at a rate. Shed the others.", "N", "10000"),
            Option("priority_header", "text", "Tell a stream's priority in this header.", "NAME", "the body"),
        ),
    ),
    Group(
        "Stop",
        "load",
        (
            Option(
                "stop_when",
                "texts",
                "End the run when this holds: 'p99 ttft > 2s for 30s', saturation.",
                "RULE",
                part="run",
            ),
            Option(
                "max_error_rate",
                "number",
                "Abort a level above this error rate.",
                "SHARE",
                "0 with --passes, else 0.01",
            ),
            Option(
                "wait_between",
                "duration",
                "Before the next level, wait up to this long for all answers.",
                "TIME",
                "0s",
            ),
            Option("drain", "duration", "At Ctrl-C, wait this long for requests in flight.", "TIME", "1s"),
        ),
    ),
    Group(
        "Generator",
        "load",
        (
            Option("workers", "whole", "Threads that send.", "N", "as many as the load needs"),
            Option("pin", "text", "Keep what sends on these cores, as 0,2-4.", "CORES", "the system's choice"),
            Option(
                "source_address",
                "texts",
                "Connect from this local address. Several are used in turn.",
                "IP",
                "the system's choice",
            ),
            Option("sample_records", "sample", "Keep one row in n, as 1/100. All are counted.", "1/N", "all"),
            Option("record_events", "flag", "Keep the time of every event of a stream.", part="target"),
        ),
    ),
    Group(
        "Hosts that send, beside this one",
        "run",
        (
            Option("hosts", "whole", "Send from this many hosts, each of which runs gpusize agent.", "N"),
            Option("ray", "text", "Have this Ray cluster start them: auto, or the address of its head.", "ADDR:PORT"),
            Option("listen", "text", "Wait for them at this address.", "ADDR:PORT", "127.0.0.1:7070"),
            Option(
                "token_file", "text", "Read the token that all hosts share from this file.", "FILE", "$GPUSIZE_TOKEN"
            ),
            Option("hosts_ca", "text", "Speak TLS with hosts whose certificates are of this authority.", "FILE"),
            Option("hosts_cert", "text", "Show them this certificate.", "FILE"),
            Option("hosts_key", "text", "Key of that certificate.", "FILE"),
            Option(
                "records", "text", "Keep all rows here (home), or there and one in 100 here (remote).", "WHERE", "home"
            ),
            Option("hosts_wait", "duration", "Wait this long for all of them.", "TIME", "10m"),
        ),
    ),
    Group(
        "Sizing",
        "run",
        (
            Option(
                "users", "number", "Size for this many requests in flight.", "N", common=True, aliases=("target-users",)
            ),
            Option("slo", "texts", "Meet this SLO, as 'p95 runtime <= 10s'. All must hold.", "TEXT", common=True),
            Option("strict", "flag", "Exit with 1 if a level was not delivered as intended, or failed another check."),
        ),
    ),
    Group(
        "Watch the run",
        "run",
        (
            Option("metrics_port", "whole", "Serve metrics of the run for Prometheus on this port; 0 for any.", "PORT"),
            Option("metrics_address", "text", "Serve them on this address.", "IP", "127.0.0.1"),
            Option("push_gateway", "text", "Push them to this Pushgateway.", "URL"),
            Option("push_every", "duration", "Push them this often.", "TIME", "15s"),
        ),
    ),
    Group(
        "Observe the target and this machine",
        "run",
        (
            Option(
                "metrics_url",
                "texts",
                "Read the server's Prometheus page each second; none reads no page.",
                "URL",
                "the usual addresses",
            ),
            Option("metrics_keep", "text", "Keep series whose names match this.", "REGEX", "the known names"),
            Option("prometheus", "text", "Ask this Prometheus server for the time of each level.", "URL"),
            Option("prometheus_match", "text", "Label matchers for it, as 'namespace=\"llm\"'.", "TEXT"),
            Option("prometheus_header", "texts", "Add a header for it.", "'NAME: VALUE'"),
            Option("prometheus_token_env", "text", "Read the token for it from this environment variable.", "VARIABLE"),
            Option(
                "prometheus_cacert", "text", "Trust the authorities in this PEM file for it.", "FILE", "the system's"
            ),
            Option("prometheus_insecure", "flag", "Accept any certificate of it."),
            Option("gpu_sample", "flag", "Sample this machine's GPUs.", default="on for a local target", off=True),
            Option("sample_container", "texts", "Sample CPU and memory of this container.", "NAME"),
            Option("sample_pid", "texts", "Sample CPU and memory of this process and its descendants.", "PID"),
            Option("sample_cgroup", "texts", "Sample CPU and memory of this cgroup.", "PATH"),
            Option("sample_interval", "duration", "Sample this often.", "TIME", "20ms"),
        ),
    ),
    Group(
        "Output",
        "run",
        (
            Option("out", "text", "Put the run's folder in here.", "DIR", "runs", common=True),
            Option("label", "pairs", "Label the run, to tell it from others.", "KEY=VALUE"),
            Option("append", "flag", "Estimate from the earlier runs in --out too."),
            Option("resume", "text", "Measure what is missing in this run folder.", "RUN", places="command"),
            Option(
                "config",
                "text",
                "Read options from this TOML, YAML or JSON file, or from a run folder.",
                "FILE",
                common=True,
                places="command",
            ),
            Option("json", "flag", "Print one JSON document.", common=True),
            Option("quiet", "flag", "Show no progress and no notes."),
            Option("plots", "flag", "Draw the figures.", default="on", off=True),
            Option("debug", "flag", "Show tracebacks of errors.", places="command"),
        ),
    ),
)
"""In the order of the help."""

OPTIONS: Final = {option.name: option for group in GROUPS for option in group.options}
"""Every option by name."""

SHARED: Final = {
    option.name: option
    for option in (
        Option("policy", "text", "Recommend by this rule: default, cpost, krr or vpa.", "NAME", "default"),
        Option("whole_cores", "flag", "Recommend whole cores."),
        Option("cpu_limit", "flag", "Recommend a CPU limit too."),
        Option("interval", "duration", "Read this often: 1ms to 1h.", "TIME", "20ms"),
    )
}
"""What several of the other commands have, and ``gpusize run`` has not."""

ALIASES: Final = frozenset(f"--{alias}" for option in OPTIONS.values() for alias in option.aliases)
"""Names of other tools that work, as they are typed."""


def kinds_of(*parts: Part) -> dict[str, Kind]:
    """The kinds of the options that files may hold, of those that the named parts read."""
    return {name: kind for part in parts for group in GROUPS for name, kind in group.kinds(part).items()}
