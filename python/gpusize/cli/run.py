"""``gpusize run``: measure, summarise, estimate."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusize.cli.command import long_command, taking
from gpusize.options.table import OPTIONS

if TYPE_CHECKING:
    from gpusize.base.errors import StoreError
    from gpusize.result import Result

EPILOG = """Examples:

  gpusize run     # a simulated cluster of two GPUs, in about a minute

  gpusize run --url http://host:8000/v1 --model m --dataset prompts.jsonl --concurrencies 1,2,4,8,16,32 --passes 2
  --gpus 8 --users 100 --slo 'p95 runtime <= 10s'

  gpusize run --url http://host:8000/v1 --model m --dataset prompts.jsonl --gpus 8 --users 100 --slo 'p95 ttft <= 2s'
       # no levels: it searches for the highest load within the SLO

  gpusize run --url http://host:8000/v1 --model m --dataset prompts.jsonl --stages '1/s@5m, 1/s..20/s@10m, 20/s@10m'

  gpusize run --url http://host:8000/v1 --model m --dataset prompts.jsonl --rates 5,10,20 --duration 60s
  --slo 'p99 ttft <= 500ms'

  gpusize run --url grpc://host:8001 --model resnet --input random --shape INPUT:3,224,224 --concurrencies 1:16:5
  --duration 10s

  gpusize run --workflow my_agent:answer --dataset questions.json --passes 2 --slo 'p95 llm_latency <= 3s'

  gpusize run --config sweep.toml --label gpu=H200 --append"""

COMMAND = long_command(*(name for name, option in OPTIONS.items() if option.common))
INTERRUPTED = 130


@taking(name for name, option in OPTIONS.items() if option.places != "file")
def command(**given: Any) -> int:
    """Send load to a target level by level, keep every record, and estimate the GPU count.

    With an SLO and no levels it searches for the highest load within the SLO.
    """
    config, resume = (None if path is None else Path(path) for path in (given.pop("config"), given.pop("resume")))
    order = "shuffled" if given.pop("shuffle") else None
    given.pop("debug")
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
        page, lost = _page(result, plots=bool(options.get("plots", True)))
        if options.get("json"):
            print_json(result, estimates)
        else:
            print_result(result, estimates[:1], [result.path, *page])
            if (text := _sized_by_rate(result)) and not quiet:
                note(text)
        if lost is not None:
            raise lost
    except KeyboardInterrupt:
        # Ctrl-C once more than was needed: what it cuts off can be made again.
        note(f"interrupted; what was measured is kept in {result.path}, gpusize report makes the rest of it")
        return INTERRUPTED
    code = conclude(judge(result, estimates, strict=bool(options.get("strict"))))
    keep_lost(result.path)
    return code


def _sized_by_rate(result: Result) -> str:
    """How to size by what was measured at rates, where nobody asked; empty where that is no question."""
    known = result.slos and any(level.gpus for level in result.levels)
    if result.can_estimate or result.rate is not None or result.cancelled or not known:
        return ""
    rates = {level.rate for level in result.levels if level.rate and level.state == "done"}
    # One load does not show how times grow.
    if len(rates) <= 1:
        return ""
    return f"gpusize estimate {result.path} --rate R says how many GPUs R requests/s need within the SLOs"


def _page(result: Result, *, plots: bool) -> tuple[list[Path], StoreError | None]:
    """The report's page; or why it cannot be written, which must not take the answer as well."""
    from gpusize.base.errors import StoreError

    try:
        return [result.report(plots=plots)], None
    except StoreError as error:
        return [], error
