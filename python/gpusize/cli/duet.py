"""``gpusize duet``: two targets measured in turns and compared."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gpusize.cli import question_options as question
from gpusize.cli.command import Command, Debug, Json, listed, option, taking
from gpusize.cli.comparing import FailIf, Figures, Junit, Margin, Wanted, Written

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from gpusize.base.interrupt import StopSwitch
    from gpusize.measure.spec import RunSpec
    from gpusize.result import Result

COMMAND = Command
EPILOG = """Examples:

  gpusize duet http://old:8000/v1 http://new:8000/v1 --model m --dataset prompts.jsonl --concurrencies 8 --duration 10s

  gpusize duet old=http://a:8000/v1 new=http://b:8000/v1 --prompt Hi --concurrencies 4 --count 200 --rounds 20
  --fail-if 'p95 runtime > +5%'"""
INTERRUPTED: Final = 130
TAKEN: Final = (
    *("api", "model", "api_key_env", "header", "timeout", "stream", "max_tokens", "temperature", "extra_body"),
    *("dataset", "dataset_key", "dataset_format", "prompt", "concurrencies", "rates", "passes", "count", "duration"),
    *("process", "warmup", "seed", "connections", "drain", "pin"),
)
"""Options of a run, the same for both targets."""


@taking(TAKEN, asked_for=("concurrencies",))
def command(
    sides: Annotated[list[str], typer.Argument(metavar="[NAME=]URL_A [NAME=]URL_B", help="The two targets.")],
    rounds: Annotated[int, option("Visit each target this often, in turns.", "N", min=2, max=10_000)] = 10,
    out: Annotated[Path, option("Put the runs of both into this new folder.", "DIR")] = Path("duet"),
    figure: Figures = None,
    margin: Margin = "2%",
    fail_if: FailIf = None,
    junit: Junit = None,
    written: Written = "table",
    quiet: Annotated[bool, listed("quiet")] = False,
    json: Json = False,
    _debug: Debug = False,
    **given: Any,
) -> int:
    """Measure two targets in turns, so that a neighbour's noise hits both, and say whether they differ."""
    from gpusize.analysis.compare.figures import figure as figure_of
    from gpusize.analysis.compare.gates import refuse_unknown, refuse_unplanned
    from gpusize.analysis.compare.matching import load_names
    from gpusize.api.duet import WARM_UP, alternate, compare_rounds
    from gpusize.base.errors import UsageError
    from gpusize.base.interrupt import StopSwitch
    from gpusize.cli.shared import note
    from gpusize.measure.execute import execute
    from gpusize.options.assemble import read_options, spec_from_options
    from gpusize.report.live.live import LiveProgress

    wanted = Wanted(fail_if, junit, written, json)
    share = question.share(margin, "--margin")
    for text in figure or ():
        figure_of(text)
    urls = _named(sides)
    if not (given.get("concurrencies") or given.get("rates")):
        raise UsageError("a duet needs its levels", "concurrencies", "give --concurrencies or --rates")

    def planned(name: str, folder: Path) -> AbstractContextManager[RunSpec]:
        mine = {**given, "url": urls[name], "out": str(folder), "adaptive": False}
        options, _ = read_options(None, mine, None)
        return spec_from_options(options, command=["gpusize", *sys.argv[1:]])

    def measure(name: str, folder: Path, switch: StopSwitch) -> Result:
        with (
            planned(name, folder) as spec,
            LiveProgress(quiet=quiet, settings=[level.setting for level in spec.levels]) as live,
        ):
            result = execute(spec, progress=live.event, stop=switch)
        if folder.parent.name == WARM_UP and not result.cancelled:
            refuse_unknown(wanted.gates, name, result.levels)
        return result

    for name in urls:
        # What is wrong with the second target, or with a gate, is told before the first is measured.
        with planned(name, out) as spec:
            loads = load_names(level.setting for level in spec.levels)
            refuse_unplanned(wanted.gates, loads, in_parts=_in_parts(spec))
    stop = StopSwitch()
    runs = alternate(list(urls), measure, rounds=rounds, out=out, stop=stop, tell=None if quiet else note)
    whole = f"{len(next(iter(runs.values())))} of {rounds} rounds were whole"
    try:
        code = wanted.show(compare_rounds(runs, figures=figure or None, also=wanted.figures, margin=share))
    except UsageError as error:
        if not stop.asked:
            raise
        note(f"interrupted; {whole} and cannot be compared: {error}")
        return INTERRUPTED
    if stop.asked:
        note(f"interrupted; {whole} and are compared, all runs are kept in {out}")
        return INTERRUPTED
    return code


def _in_parts(spec: RunSpec) -> bool:
    """Whether answers may come in parts: a language model that is not asked to stream answers as a whole."""
    from gpusize.targets.server import Target

    target = spec.target
    if not isinstance(target, Target) or target.stream or "stream" in target.extra_body:
        return True
    return set(spec.natures) != {"language_model"}


def _named(sides: list[str]) -> dict[str, str]:
    from gpusize.base.errors import UsageError

    if len(sides) != 2:
        raise UsageError(f"a duet compares two targets, not {len(sides)}", None, "give two addresses")
    made: dict[str, str] = {}
    for usual, text in zip("ab", sides, strict=True):
        head, sign, rest = text.partition("=")
        name, url = (head, rest) if sign and "/" not in head and "?" not in head else (usual, text)
        if name in made:
            raise UsageError(f"two sides are named {name}", None, "name them: old=URL new=URL")
        made[name] = url
    return made
