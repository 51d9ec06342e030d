"""``gpusize.duet``: two systems measured in turns, so that whatever else is on the machine hits both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.compare.differences import MARGIN
from gpusize.api.compare import compare
from gpusize.api.progress import telling
from gpusize.api.run import run
from gpusize.base.errors import StoreError, TargetError, UsageError
from gpusize.base.interrupt import StopSwitch
from gpusize.base.typed import check_kinds
from gpusize.estimate.evidence import target_failed

if TYPE_CHECKING:
    from gpusize.analysis.compare.comparison import Comparison
    from gpusize.api.run import AnyRows, AnyTarget
    from gpusize.result import Result
    from gpusize.workload.load import Load

__all__ = ["ROUNDS", "UNFINISHED", "WARM_UP", "alternate", "compare_rounds", "duet", "in_order"]

ROUNDS: Final = 10
WARM_UP: Final = "warm-up"
"""Folder of the visits before the first round; they are not compared."""
UNFINISHED: Final = "unfinished"
"""Folder of the visits of a round that was not measured whole."""

Measure = Callable[[str, Path, StopSwitch], "Result"]
"""Makes one visit: of this side, into this folder; the switch ends it."""


def duet(
    sides: Mapping[str, AnyTarget],
    dataset: AnyRows | None = None,
    load: Load | None = None,
    *,
    rounds: int = ROUNDS,
    out: str | Path = "duet",
    figures: Sequence[str] | None = None,
    also: Sequence[str] = (),
    margin: float = MARGIN,
    stop: StopSwitch | None = None,
    **options: Any,
) -> Comparison:
    """Measure two targets in turns, A B B A ..., with the same rows and load, and compare them in pairs.

    Every visit is a run in ``out/NAME``, which `gpusize.compare` reads again. Ctrl-C keeps what was measured, and the
    whole rounds so far are compared. The verdict is on the two servers as they ran.

    Args:
        sides: two targets by name; the second is held against the first.
        dataset: as `gpusize.run`.
        load: as `gpusize.run`; it names its levels, and each visit goes through all of them.
        rounds: pairs of visits, 2 or more.
        out: a folder that is new or empty.
        figures: as `gpusize.compare`.
        also: as `gpusize.compare`.
        margin: as `gpusize.compare`.
        stop: ``stop.ask()`` from any thread does what Ctrl-C does.
        options: as `gpusize.run`.

    Raises:
        UsageError: invalid arguments, or ``out`` holds something.
        TargetError: a target cannot be reached, or failed on the way; nothing is compared then.
        StoreError: a folder cannot be written.
        KeyboardInterrupt: no round was whole when it was interrupted.
    """
    check_kinds({"sides": sides}, {"sides": ((Mapping,), "two names with a target each")})
    # One view for all visits: each of them would open its own.
    with telling(options.pop("progress", None)) as told:

        def measure(name: str, folder: Path, switch: StopSwitch) -> Result:
            more = {**options, "progress": told.progress}
            return run(sides[name], dataset, load, out=folder, stop=switch, adaptive=False, **more)

        made = alternate(list(sides), measure, rounds=rounds, out=Path(out), stop=stop or StopSwitch(), tell=told.note)
    return compare_rounds(made, figures=figures, also=also, margin=margin)


def compare_rounds(
    made: Mapping[str, Sequence[Path]], *, figures: Sequence[str] | None, also: Sequence[str], margin: float
) -> Comparison:
    """Compare the whole rounds that ``alternate`` made; arguments as `gpusize.compare`."""
    found = compare(made, figures=figures, also=also, margin=margin)
    return replace(found, rounds=len(next(iter(made.values()))))


def alternate(
    names: Sequence[str],
    measure: Measure,
    *,
    rounds: int,
    out: Path,
    stop: StopSwitch,
    tell: Callable[[str], None] | None = None,
) -> dict[str, list[Path]]:
    """Visit two sides in turns; by name the runs of whole rounds, in their order.

    Args:
        names: of the sides.
        measure: makes a visit.
        rounds: how many, if nobody ends it.
        out: folder for the runs.
        stop: ends it.
        tell: is told which visit begins, as ``old in round 3 of 10``.

    Raises:
        UsageError: not two sides, names that are no folders, too few rounds, or ``out`` holds something.
        TargetError: a target failed.
        KeyboardInterrupt: no round was whole when it was interrupted.
    """
    _check(names, rounds, out)
    made: dict[str, list[Path]] = {name: [] for name in names}

    def visit(name: str, folder: Path, when: str) -> Path | None:
        if tell is not None and not stop.asked:
            tell(f"{name} {when}")
        return _visit(name, measure, folder, stop, when)

    for name in names:
        if visit(name, out / WARM_UP / name, "in its warm-up") is None:
            raise KeyboardInterrupt
    for k in range(rounds):
        order = in_order(names, k)
        visits: list[tuple[str, Path]] = []
        try:
            for name in order:
                path = visit(name, out / name, f"in round {k + 1} of {rounds}")
                if path is None:
                    break
                visits.append((name, path))
        finally:
            whole = len(visits) == len(order)
            if not whole:
                _set_aside(out, names, made)
        if not whole:
            break
        for name, path in visits:
            made[name].append(path)
    if not all(made.values()):
        raise KeyboardInterrupt
    return made


def in_order(names: Sequence[str], k: int) -> list[str]:
    """Who is visited first and second in round ``k``: balanced, so that a drift hits each as often first as second."""
    return list(names) if k % 2 == 0 else list(names)[::-1]


def _check(names: Sequence[str], rounds: int, out: Path) -> None:
    if len(names) != 2:
        raise UsageError(f"a duet compares two targets, not {len(names)}", "sides", "name two")
    for name in names:
        if not name or name.startswith(".") or "/" in name or name in (WARM_UP, UNFINISHED):
            raise UsageError(f"{name!r} cannot be a folder of runs", "sides", "name them as in old=URL new=URL")
    if rounds < 2:
        raise UsageError(f"must be 2 or more, not {rounds}", "rounds", "10 rounds show small differences")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is not empty", "out", "name a new folder")


def _visit(name: str, measure: Measure, folder: Path, stop: StopSwitch, when: str) -> Path | None:
    """The run of one visit; None where it was interrupted."""
    if stop.asked:
        return None
    try:
        result = measure(name, folder, stop)
    except KeyboardInterrupt:
        stop.ask()
        return None
    except TargetError as error:
        raise TargetError(f"{name} failed {when}: {error.what}", error.where, error.todo) from error
    if result.cancelled:
        stop.ask()
        return None
    why = target_failed(result.levels)
    if why or any(level.state != "done" for level in result.levels):
        told = why or "a level did not end as intended"
        raise TargetError(f"{name} failed {when}: {told}", str(result.path), "nothing is compared; start it again")
    return result.path


def _set_aside(out: Path, names: Sequence[str], kept: Mapping[str, Sequence[Path]]) -> None:
    """Move runs that have no pair out of the sides' folders, so that those hold whole rounds."""
    try:
        for name in names:
            for run_folder in sorted((out / name).glob("*/run.json")):
                path = run_folder.parent
                if path.resolve() not in {each.resolve() for each in kept[name]}:
                    (out / UNFINISHED / name).mkdir(parents=True, exist_ok=True)
                    path.rename(out / UNFINISHED / name / path.name)
    except OSError as error:
        raise StoreError(f"a run cannot be moved: {error.strerror}", str(out), "move it by hand") from error
