"""``gpusize run``: measure, summarise, estimate."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gpusize.cli import load_options, target_options, watch_options
from gpusize.cli.load_options import DATASET, LOAD, USERS
from gpusize.cli.watch_options import END

EPILOG = """[bold]Examples[/bold]

  gpusize run     [dim]# a simulated cluster of two GPUs, in about a minute[/dim]

  gpusize run --url http://host:8000/v1 --model m --dataset prompts.jsonl --concurrencies 1,2,4,8,16,32 --passes 2
  --gpus 8 --users 100 --slo 'p95 runtime <= 10s'

  gpusize run --url http://host:8000/v1 --model m --dataset prompts.jsonl --gpus 8 --users 100 --slo 'p95 ttft <= 2s'
  [dim]# no levels: it searches for the highest load within the SLO[/dim]

  gpusize run --url http://host:8000/v1 --model m --dataset prompts.jsonl --stages '1/s@5m, 1/s..20/s@10m, 20/s@10m'

  gpusize run --url http://host:8000/v1 --model m --dataset prompts.jsonl --rates 5,10,20 --duration 60s
  --slo 'p99 ttft <= 500ms'

  gpusize run --url grpc://host:8001 --model resnet --input random --shape INPUT:3,224,224 --concurrencies 1:16:5
  --duration 10s

  gpusize run --workflow my_agent:answer --dataset questions.json --passes 2 --slo 'p95 llm_latency <= 3s'

  gpusize run --config sweep.toml --label gpu=H200 --append"""

GENERATOR = "Generator"
QUESTION = "Question"
OUTPUT = "Output"
INTERRUPTED = 130


def command(
    url: target_options.Urls = None,
    api: target_options.ApiName = None,
    model: target_options.Model = None,
    workflow: target_options.WorkflowName = None,
    command_line: target_options.CommandLine = None,
    llm_proxy: target_options.LlmProxyOf = None,
    gpus: target_options.Gpus = None,
    header: target_options.Headers = None,
    api_key_env: target_options.ApiKeyEnv = None,
    cacert: target_options.Cacert = None,
    insecure: target_options.Insecure = None,
    balance: target_options.Balance = None,
    http2: target_options.Http2 = None,
    streams: target_options.HttpStreams = None,
    replicas: target_options.Replicas = None,
    start_delay: target_options.StartDelay = None,
    timeout: target_options.Timeout = None,
    connect_timeout: target_options.ConnectTimeout = None,
    resolve_every: target_options.ResolveEvery = None,
    method: target_options.HttpMethod = None,
    stream: target_options.Streamed = None,
    max_tokens: target_options.MaxTokens = None,
    output_length: target_options.OutputLength = None,
    history: target_options.History = None,
    temperature: target_options.Temperature = None,
    extra_body: target_options.ExtraBody = None,
    body_template: target_options.BodyTemplate = None,
    content_type: target_options.ContentType = None,
    response: target_options.Responses = None,
    success: target_options.Success = None,
    dataset: load_options.DatasetFile = None,
    dataset_key: Annotated[str | None, typer.Option(help="The field to send.", rich_help_panel=DATASET)] = None,
    dataset_format: load_options.DatasetFormat = None,
    dataset_id_key: Annotated[
        str | None, typer.Option(help="The field with a row's id; id.", rich_help_panel=DATASET)
    ] = None,
    synthetic: Annotated[
        str | None,
        typer.Option(help="Made-up prompts: 'input=512 output=normal(128,16) rows=200'.", rich_help_panel=DATASET),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="tokenizer.json to count made-up prompts with.", rich_help_panel=DATASET)
    ] = None,
    input_: Annotated[
        list[str] | None,
        typer.Option(
            "--input", help="Tensors: JSON, folder, .npy, .npz or random; repeatable.", rich_help_panel=DATASET
        ),
    ] = None,
    shape: Annotated[
        list[str] | None, typer.Option(help="Of a tensor, as NAME:3,224,224; repeatable.", rich_help_panel=DATASET)
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Samples in one request; 1.", rich_help_panel=DATASET)] = None,
    prompt: Annotated[
        str | None, typer.Option(help="One text to send, instead of a dataset.", rich_help_panel=DATASET)
    ] = None,
    shuffle: load_options.Shuffle = False,
    concurrencies: load_options.Concurrencies = None,
    rates: load_options.Rates = None,
    stages: load_options.Stages = None,
    load_file: load_options.LoadFile = None,
    arrivals: load_options.Arrivals = None,
    arrivals_format: load_options.ArrivalsFormat = None,
    arrivals_from: load_options.ArrivalsFrom = None,
    arrivals_until: load_options.ArrivalsUntil = None,
    speed: load_options.Speed = None,
    rate_scale: load_options.RateScale = None,
    plan: load_options.StoredPlan = None,
    process: load_options.Process = None,
    burstiness: load_options.Burstiness = None,
    sessions: load_options.Sessions = None,
    passes: load_options.Passes = None,
    count: load_options.Count = None,
    duration: load_options.Duration = None,
    warmup: Annotated[
        str | None, typer.Option(help="Start of a level that does not count; else found.", rich_help_panel=LOAD)
    ] = None,
    think: load_options.Think = None,
    drain: Annotated[
        str | None, typer.Option(help="For requests in flight at Ctrl-C; 1s.", rich_help_panel=END)
    ] = None,
    max_error_rate: Annotated[
        float | None,
        typer.Option(help="Share of failures a level survives; 0 with passes, else 0.01.", rich_help_panel=END),
    ] = None,
    stop_when: watch_options.StopWhen = None,
    overload: Annotated[
        str | None, typer.Option(help="Without a free connection: queue, shed or grow; queue.", rich_help_panel=USERS)
    ] = None,
    connections: Annotated[int | None, typer.Option(help="Connections at a rate; 256.", rich_help_panel=USERS)] = None,
    max_connections: Annotated[
        int | None, typer.Option(help="Bound of --overload grow; 4 times --connections.", rich_help_panel=USERS)
    ] = None,
    queue: Annotated[
        int | None, typer.Option(help="Due requests that may wait at a rate; 10000.", rich_help_panel=USERS)
    ] = None,
    seed: load_options.Seed = None,
    workers: Annotated[
        int | None, typer.Option(help="Threads that send; as many as the load needs.", rich_help_panel=GENERATOR)
    ] = None,
    pin: Annotated[
        str | None, typer.Option(help="Cores that they stay on, as 0,2-4.", rich_help_panel=GENERATOR)
    ] = None,
    source_address: Annotated[
        list[str] | None,
        typer.Option(help="Local address to connect from; repeatable, used in turns.", rich_help_panel=GENERATOR),
    ] = None,
    priority_header: Annotated[
        str | None, typer.Option(help="Header that tells a stream's priority.", rich_help_panel=USERS)
    ] = None,
    sample_records: Annotated[
        str | None, typer.Option(help="Keep one row in n, as 1/100; all are counted.", rich_help_panel=GENERATOR)
    ] = None,
    adaptive: load_options.AdaptiveFlag = None,
    precision: load_options.Precision = None,
    budget: load_options.BudgetOf = None,
    most_users: load_options.MostUsers = None,
    users: Annotated[
        float | None, typer.Option(help="Requests in flight to size for.", rich_help_panel=QUESTION)
    ] = None,
    slo: Annotated[
        list[str] | None, typer.Option(help="An SLO, as 'p95 runtime <= 10s'; repeatable.", rich_help_panel=QUESTION)
    ] = None,
    metrics_port: watch_options.MetricsPort = None,
    metrics_address: watch_options.MetricsAddress = None,
    push_gateway: watch_options.PushGateway = None,
    push_every: watch_options.PushEvery = None,
    metrics_url: watch_options.MetricsUrl = None,
    metrics_keep: watch_options.MetricsKeep = None,
    prometheus: watch_options.Prometheus = None,
    prometheus_match: watch_options.PrometheusMatch = None,
    prometheus_header: watch_options.PrometheusHeader = None,
    prometheus_token_env: watch_options.PrometheusTokenEnv = None,
    prometheus_cacert: watch_options.PrometheusCacert = None,
    prometheus_insecure: watch_options.PrometheusInsecure = None,
    gpu_sample: watch_options.GpuSample = None,
    sample_container: watch_options.SampleContainer = None,
    sample_pid: watch_options.SamplePid = None,
    sample_cgroup: watch_options.SampleCgroup = None,
    sample_interval: watch_options.SampleInterval = None,
    record_events: watch_options.RecordEvents = None,
    strict: Annotated[
        bool | None,
        typer.Option(
            "--strict", help="Exit 1 when a level's load was not delivered as asked for.", rich_help_panel=QUESTION
        ),
    ] = None,
    out: Annotated[str | None, typer.Option(help="The folder of runs; runs.", rich_help_panel=OUTPUT)] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE, to tell runs apart; repeatable.", rich_help_panel=OUTPUT)
    ] = None,
    append: Annotated[
        bool | None,
        typer.Option("--append", help="Estimate from the earlier runs in --out as well.", rich_help_panel=OUTPUT),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Measure what is missing in a run folder.", rich_help_panel=OUTPUT)
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Options from TOML, YAML, JSON or a run's run.json.", rich_help_panel=OUTPUT)
    ] = None,
    json: Annotated[
        bool | None, typer.Option("--json", help="One JSON document on standard output.", rich_help_panel=OUTPUT)
    ] = None,
    quiet: Annotated[bool | None, typer.Option("--quiet", help="No progress.", rich_help_panel=OUTPUT)] = None,
    plots: Annotated[
        bool | None, typer.Option("--plots/--no-plots", help="Draw the figures.", rich_help_panel=OUTPUT)
    ] = None,
    _debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.", rich_help_panel=OUTPUT)] = False,
) -> int:
    """Send load to a target level by level, keep every record, and estimate the GPU count.

    With an SLO and no levels it searches for the highest load within the SLO.
    """
    given = dict(locals())
    order = "shuffled" if given.pop("shuffle") else None
    given["command"], given["input"] = given.pop("command_line"), given.pop("input_")
    given["load"] = given.pop("load_file")
    for name in ("config", "resume", "_debug"):
        given.pop(name)
    return _run({**given, "order": order}, config, resume)


def _run(given: dict[str, Any], config: Path | None, resume: Path | None) -> int:
    from gpusize.cli.exit_code import judge
    from gpusize.cli.shared import conclude, keep_lost, note, print_json, print_result
    from gpusize.measure.execute import execute
    from gpusize.options.assemble import read_options, spec_from_options
    from gpusize.report.live.live import LiveProgress

    options, notes = read_options(config, given, resume)
    quiet = bool(options.get("quiet"))
    with spec_from_options(options, command=["gpusize", *sys.argv[1:]], resume=resume) as spec:
        for text in () if quiet else (*notes, *spec.notes):
            note(text)
        with LiveProgress(quiet=quiet, settings=[level.setting for level in spec.levels]) as live:
            result = execute(spec, progress=live.event, note=lambda text: live.message(f"gpusize: {text}"))
    try:
        estimates = result.estimates() if result.can_estimate else []
        page = result.report(plots=options.get("plots", True))
        if options.get("json"):
            print_json(result, estimates)
        else:
            print_result(result, estimates[:1], [result.path, page])
    except KeyboardInterrupt:
        # Ctrl-C once more than was needed: what it cuts off can be made again.
        note(f"interrupted; what was measured is kept in {result.path}, gpusize report makes the rest of it")
        return INTERRUPTED
    code = conclude(judge(result, estimates, strict=bool(options.get("strict"))))
    keep_lost(result.path)
    return code
