"""``gpusize.compare``: whether one system is slower than another, by runs of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusize.analysis.compare.comparison import Comparison, compare_sides
from gpusize.analysis.compare.differences import MARGIN
from gpusize.analysis.compare.figures import figure
from gpusize.analysis.compare.matching import Run, Side
from gpusize.analysis.compare.whole import judged_run
from gpusize.api.groups import grouped, prices_of, unlike, with_groups
from gpusize.base.errors import UsageError
from gpusize.base.typed import SEQUENCE, check_kinds, or_none

if TYPE_CHECKING:
    from gpusize.result import Result

__all__ = ["compare"]


def compare(
    sides: Mapping[str, Result | str | Path | Sequence[str | Path]],
    *,
    figures: Sequence[str] | None = None,
    also: Sequence[str] = (),
    margin: float = MARGIN,
    labels: Mapping[str, str] | None = None,
    skip_damaged: bool = False,
    by: str | None = None,
    gpu_hour_price: str | float | Mapping[str, str | float] | None = None,
) -> Comparison:
    """Say whether systems differ, at each load that was measured on all of them. No load is sent.

    Several runs of a side are repeats of it, and only from repeats does a verdict on the systems follow: with one run a
    side, the two runs are compared. Where the runs of two sides were made in turns (A B A B), neighbours are compared
    with each other, so that what changes slowly on the machine hits both.

    Args:
        sides: by name a result, a run folder, a folder of runs or a list of them; all are held against the first. A
            single side says how much it differs from itself.
        figures: what is compared, as ``"p95 runtime"``, ``"mean ttft"``, ``"achieved rate"``, ``"output rate"``,
            ``"error share"``; of runs that were judged as a whole ``"gpu-hours"``, ``"attainment"`` and ``"cost"``;
            None for the usual ones.
        also: figures to compare beside them.
        margin: relative differences within it do not matter: 0.02 is 2 %.
        labels: take only the runs that carry all of these.
        skip_damaged: leave out levels and runs whose files are damaged.
        by: group the runs of all sides anew, by ``"gpus"`` or by this label (``"instances"``, ``"device"``, ...), and
            hold each group against the smallest. ``Comparison.spent`` then says what a request took. Where groups
            differ in how many GPUs, instances, replicas, servers, hosts, nodes or pods they have, ``scaled`` has
            speed-ups and ``law`` how they go on.
        gpu_hour_price: of grouped runs, for costs: a number, or with a currency, as ``"2.5 EUR"``; by the value of the
            group where GPUs differ, as ``{"h100": "2.5 EUR", "a100": "1.2 EUR"}``.

    Raises:
        UsageError: nothing to compare, no common load, or an argument that does not fit.
        SloError: a figure that does not parse.
        StoreError: a run cannot be read.
    """
    check_kinds(
        {"sides": sides, "figures": figures, "margin": margin},
        {
            "sides": ((Mapping,), "names with a run folder each"),
            "figures": or_none(SEQUENCE),
            "margin": ((int, float), "a number"),
        },
    )
    from gpusize.result import Result, open_run

    if not sides:
        raise UsageError("no run is named", "sides", "give a run folder, or a folder of runs, for each side")
    chosen = None if figures is None else [figure(each) for each in figures]
    more = [figure(each) for each in also]
    results = {
        name: runs if isinstance(runs, Result) else open_run(runs, labels=labels, skip_damaged=skip_damaged)
        for name, runs in sides.items()
    }
    if gpu_hour_price is not None and by is None:
        raise UsageError("costs are of grouped runs", "gpu_hour_price", "say what to group them by: by='gpus'")
    _refuse_twice({name: result.paths for name, result in results.items()})
    made = {name: _runs(result, skip_damaged=skip_damaged) for name, result in results.items()}
    if by is not None:
        groups = grouped([run for runs in made.values() for run in runs], by)
        prices = prices_of(gpu_hour_price, groups)
        found = compare_sides(groups.sides, chosen, more, margin=float(margin), shared=False)
        full = with_groups(found, groups, prices)
        if not (full.places or full.per_count or len(full.most) > 1 or (full.law and len(full.law.measured) > 1)):
            compare_sides(groups.sides, chosen, more, margin=float(margin))
        return full
    named = [Side(name, [run for run, _ in runs]) for name, runs in made.items()]
    found = compare_sides(named, chosen, more, margin=float(margin))
    return replace(found, unlike={name: told for name, runs in made.items() if (told := unlike(runs))})


def _refuse_twice(paths: Mapping[str, Sequence[Path]]) -> None:
    """A run that stands on two sides is equal to itself: no difference would be found, and every gate would pass."""
    seen: dict[Path, str] = {}
    for name, runs in paths.items():
        for run in {path.resolve() for path in runs}:
            if run in seen:
                raise UsageError(
                    f"a run is on the sides {seen[run]} and {name}", str(run), "give each side its own runs"
                )
            seen[run] = name


def _runs(result: Result, *, skip_damaged: bool) -> list[tuple[Run, dict[str, Any]]]:
    """The runs of a side by when they began, each with the contents of its ``run.json``."""
    from gpusize.analysis.read_levels import read_levels
    from gpusize.records.store import read_run

    made = []
    for path in result.paths:
        levels = read_levels(path, damaged=[] if skip_damaged else None)
        about = dict(read_run(path))
        # Of an imported run it is when it was imported, and says nothing of turns.
        began = "" if about.get("source") else str(about.get("created") or "")
        made.append((Run(path.name, began, levels, judged_run(path)), about))
    return sorted(made, key=lambda each: each[0].began)
