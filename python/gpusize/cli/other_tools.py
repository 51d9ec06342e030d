"""Options of other tools that are typed here by habit: what to write instead.

Names that mean exactly the same as an option of ours work, as its aliases (`gpusize.options.table`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

__all__ = ["COMMANDS", "OTHERS", "ours"]


class Other(NamedTuple):
    """An option of ours in place of one that another tool has.

    Attributes:
        option: ours; empty where another command answers.
        todo: what to write.
    """

    option: str
    todo: str


_OUT: Final = Other("--out", "Use --out DIR: each run gets a folder of its own in it")
_COUNT: Final = Other("--count", "Use --count N: requests per level")
_TIME: Final = Other("--duration", "Use --duration TIME: how long each level lasts")
_URL: Final = Other("--url", "Use --url with the whole address, as http://host:8000/v1")
_API: Final = Other("--api", "Use --api NAME, as --api openai-chat or --api kserve")
_PROMPTS: Final = Other("--synthetic", "Use --synthetic 'input=512 output=128 rows=200'")
_OFFLINE: Final = Other("", "Use gpusize estimate RUNS: it answers from earlier runs and sends nothing")
_FILE: Final = Other("--dataset", "Use --dataset FILE")

OTHERS: Final = {
    # The sizing calculator of the NeMo Agent Toolkit.
    "--endpoint": Other("--url", "Use --url URL; for a server of the NeMo Agent Toolkit add --api nat"),
    "--endpoint-timeout": Other("--timeout", "Use --timeout TIME"),
    "--remote-endpoint": Other("--url", "Use --url URL; for a server of the NeMo Agent Toolkit add --api nat"),
    "--remote-endpoint-timeout": Other("--timeout", "Use --timeout TIME"),
    "--offline": _OFFLINE,
    "--offline-mode": _OFFLINE,
    "--target-workflow-runtime": Other("--slo", "Use --slo 'p95 runtime <= 10s', with your seconds"),
    "--target-llm-latency": Other("--slo", "Use --slo 'p95 llm_latency <= 3s', with your seconds"),
    "--calc-output-dir": _OUT,
    "--append-calc-outputs": Other("--append", "Use --append"),
    "--config-file": Other("--config", "Use --config FILE"),
    # perf_analyzer, AIPerf, GuideLLM, vLLM's benchmark and others.
    "--output-dir": _OUT,
    "--output-path": _OUT,
    "--artifact-dir": _OUT,
    "--output-artifact-dir": _OUT,
    "--request-rate-range": Other("--rates", "Use --rates with a list, as --rates 5,10,20"),
    "--max-concurrency": Other("--concurrencies", "Use --concurrencies with a list, as --concurrencies 1,2,4,8"),
    "--request-count": _COUNT,
    "--measurement-request-count": _COUNT,
    "--num-prompts": _COUNT,
    "--num-requests": _COUNT,
    "--max-requests": _COUNT,
    "--max-seconds": _TIME,
    "--measurement-interval": _TIME,
    "--benchmark-duration": _TIME,
    "--target": _URL,
    "--base-url": _URL,
    "--host": _URL,
    "--endpoint-type": _API,
    "--service-kind": _API,
    "--backend": _API,
    "--streaming": Other("--stream", "Answers are streamed by default; --no-stream turns it off"),
    "--input-file": _FILE,
    "--input-data": _FILE,
    "--dataset-path": _FILE,
    "--data": _FILE,
    "--synthetic-input-tokens-mean": _PROMPTS,
    "--output-tokens-mean": _PROMPTS,
    "--random-input-len": _PROMPTS,
    "--random-output-len": _PROMPTS,
    "--goodput": Other("--slo", "Use --slo 'p95 ttft <= 500ms', once for each bound"),
    "--request-timeout": Other("--timeout", "Use --timeout TIME"),
    "--ramp-up": Other("--stages", "Use --stages '1/s..20/s@5m, 20/s@10m'"),
}
"""By the name there, with dashes."""

_CALCULATOR: Final = "Use gpusize run; in place of the offline mode gpusize estimate RUNS"
COMMANDS: Final = {
    "profile": _CALCULATOR,
    "sizing": _CALCULATOR,
    "calc": _CALCULATOR,
    "benchmark": "Use gpusize run",
    "bench": "Use gpusize run",
    "submitter": "Use gpusize cluster submit",
    "sampler": "Use gpusize cluster sample",
    "plotter": "Use gpusize cluster plot",
}
"""What answers in place of a command of another tool."""


def ours(name: str, known: Collection[str]) -> str | None:
    """What to write instead of an option of another tool; None where there is no answer for this command.

    Args:
        name: as it was typed.
        known: the options of the command.
    """
    found = OTHERS.get(name.replace("_", "-").lower())
    return found.todo if found is not None and (not found.option or found.option in known) else None
