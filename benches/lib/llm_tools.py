"""GuideLLM and AIPerf as their users call them, against a server of streams: what they cost and what they report."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.lib.context import Context
from benches.lib.peers import peer_program
from benches.lib.procs import BenchFailed, LineServer, pinned, run_measured

__all__ = ["TOOLS", "LlmTool", "Reported", "take_llm"]

PROMPTS = 20_000
"""More than any run sends: GuideLLM ends with its data."""
SETTLE_S = 120
"""For starting, writing results and ending; all of it is outside of the measured slope."""


@dataclass(frozen=True)
class Reported:
    """A run of one tool, as it tells it and as the server saw it.

    Args:
        served: requests that the server answered.
        connections: connections that the server accepted.
        cpu_s: CPU seconds of the whole tree of processes.
        steal: share of the machine's time that went to others meanwhile.
        requests: requests that the tool reports.
        seconds: for how long it says that it sent.
        latency_p99_s: the 99th percentile of the latencies that it reports first.
        ttft_p50_s: the median time to the first token that it reports.
        ttft_p99_s: the same, 99th percentile.
        schedule_p99_s: its 99th percentile since the schedule's times, where it says one.
    """

    served: int
    connections: int
    cpu_s: float
    steal: float
    requests: int
    seconds: float
    latency_p99_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    schedule_p99_s: float | None

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds


Load = tuple[str, float]
"""("closed", connections) or ("constant", requests per second)."""


@dataclass(frozen=True)
class LlmTool:
    """A tool: its interpreter's environment, its command, its report.

    Args:
        name: also its peer's.
        command: of context, port, load, seconds and an empty folder.
        environment: variables that it is given.
        read: its own count, seconds and percentiles, of the folder.
    """

    name: str
    command: Callable[[Context, int, Load, int, Path], Sequence[str]]
    environment: Callable[[Path], dict[str, str]]
    read: Callable[[Path], dict[str, Any]]


def take_llm(
    ctx: Context, tool: LlmTool, load: Load, seconds: int, server: Sequence[str], *, anywhere: bool = False
) -> Reported:
    """One run on the client's core, or ``anywhere``.

    Raises BenchFailed when the tool had errors or counts otherwise than the server.
    """
    folder = ctx.fresh_dir(tool.name)
    with LineServer(server, ctx.server_core) as running:
        tree = [sys.executable, "-m", "benches.programs.whole_tree", str(seconds + SETTLE_S)]
        command = [*tree, *tool.command(ctx, running.port, load, seconds, folder)]
        environment = tool.environment(folder)
        words = command if anywhere else pinned(command, ctx.client_core)
        finished = run_measured(words, timeout_s=seconds + SETTLE_S + 30, environment=environment)
        served = running.stop()
    said = tool.read(folder)
    # A tool may leave warm-up and what it cut off out of its count.
    if said["errors"] or not 0.9 * served["requests"] <= said["requests"] <= served["requests"]:
        raise BenchFailed(f"{tool.name} says {said['requests']} ok, {said['errors']} not; the server: {served}")
    del said["errors"]
    return Reported(served["requests"], served["connections"], finished.cpu_s, finished.steal, **said)


def _prompts(ctx: Context) -> Path:
    path = ctx.scratch / "prompts.jsonl"
    if not path.exists():
        text = "How many GPUs does it take to serve this model at that rate, number"
        lines = (json.dumps({"prompt": f"{text} {n}", "output_tokens_count": 16}) for n in range(PROMPTS))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _guidellm(ctx: Context, port: int, load: Load, seconds: int, folder: Path) -> list[str]:
    kind, amount = load
    closed = f"kind=throughput,max_concurrency={amount:.0f}"
    return [
        peer_program("guidellm", "guidellm"),
        "run",
        f"--backend=kind=openai_http,target=http://127.0.0.1:{port},model=m,validate_backend=false",
        f"--profile={closed if kind == 'closed' else f'kind=constant,rate={amount}'}",
        f"--constraint=kind=max_duration,seconds={seconds}",
        f"--data=kind=json_file,path={_prompts(ctx)}",
        f"--output=kind=json,path={folder / 'out.json'}",
        "--disable-console",
    ]


def _read_guidellm(folder: Path) -> dict[str, Any]:
    (run,) = json.loads((folder / "out.json").read_text(encoding="utf-8"))["benchmarks"]
    metrics, totals = run["metrics"], run["metrics"]["request_totals"]
    latency = metrics["request_latency"]["successful"]["percentiles"]
    ttft = metrics["time_to_first_token_ms"]["successful"]["percentiles"]
    scheduled = metrics["request_scheduled_latency"]
    return {
        "requests": totals["successful"],
        "errors": totals["errored"],
        "seconds": run["duration"],
        "latency_p99_s": latency["p99"],
        "ttft_p50_s": ttft["p50"] / 1e3,
        "ttft_p99_s": ttft["p99"] / 1e3,
        "schedule_p99_s": scheduled and scheduled.get("successful", scheduled)["percentiles"]["p99"],
    }


def _aiperf(ctx: Context, port: int, load: Load, seconds: int, folder: Path) -> list[str]:
    kind, amount = load
    shape = ["--concurrency", f"{amount:.0f}"]
    if kind != "closed":
        shape = ["--request-rate", str(amount), "--request-rate-mode", "constant"]
    return [
        peer_program("aiperf", "aiperf"),
        "profile",
        *("--model", "m", "--url", f"http://127.0.0.1:{port}", "--endpoint-type", "chat", "--streaming"),
        *("--tokenizer", str(_tokenizer(ctx)), "--use-server-token-count", "--isl", "16", "--osl", "16"),
        *shape,
        *("--benchmark-duration", str(seconds), "--num-dataset-entries", "100", "--artifact-dir", str(folder)),
        *("--ui", "none", "--no-gpu-telemetry", "--no-server-metrics"),
    ]


def _tokenizer(ctx: Context) -> Path:
    folder = ctx.scratch / "tokenizer"
    if not folder.exists():
        run_measured([peer_program("aiperf"), "-m", "benches.programs.tiny_tokenizer", str(folder)])
    return folder


def _read_aiperf(folder: Path) -> dict[str, Any]:
    said = json.loads((folder / "profile_export_aiperf.json").read_text(encoding="utf-8"))
    errors = said.get("error_request_count") or {"avg": 0}
    return {
        "requests": int(said["request_count"]["avg"]),
        "errors": int(errors["avg"]),
        "seconds": said["benchmark_duration"]["avg"],
        "latency_p99_s": said["request_latency"]["p99"] / 1e3,
        "ttft_p50_s": said["time_to_first_token"]["p50"] / 1e3,
        "ttft_p99_s": said["time_to_first_token"]["p99"] / 1e3,
        "schedule_p99_s": None,
    }


TOOLS = {
    "guidellm": LlmTool(
        "guidellm",
        _guidellm,
        lambda folder: {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder), "GUIDELLM__MAX_WORKER_PROCESSES": "2"},
        _read_guidellm,
    ),
    "aiperf": LlmTool("aiperf", _aiperf, lambda folder: {"HF_HOME": str(folder)}, _read_aiperf),
}
"""By name; GuideLLM with two worker processes, as it shares one core, not its default of ten."""
