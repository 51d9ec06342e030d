"""A run on replicas that an autoscaler added and removed, judged: by its records and by series that were pulled."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpusize.analysis.slo import as_slos
from gpusize.base.errors import UsageError
from gpusize.base.given_numbers import as_number
from gpusize.estimate.plan.autoscale.judge.series import FOLDER
from gpusize.estimate.plan.autoscale.judge.types import Judgement, Terms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.analysis.slo import Slo
    from gpusize.estimate.plan.autoscale.judge.needed import Needed
    from gpusize.estimate.plan.over_time.over_time import Progress
    from gpusize.result import Result

__all__ = ["judge_autoscaler"]

LEAST_WINDOW_S = 1.0


def judge_autoscaler(
    run: Result | str | Path,
    series: str | Path | None = None,
    slos: Sequence[Slo | str] | Slo | str | None = None,
    *,
    needed: Result | str | Path | Sequence[str | Path] | None = None,
    gpus_per_replica: int = 1,
    gpu_hour_price: str | float | None = None,
    window_s: float = 60.0,
    router: str = "least_loaded",
    allow: Collection[str] = (),
    progress: Progress | None = None,
) -> Judgement:
    """Judge a run on replicas that came and went: was it served, how soon did they follow, what was paid.

    Args:
        run: a result of one run, or its folder.
        series: the folder with the series that were pulled for it; None for ``series`` in the run folder.
        slos: what it is judged by; None for those of the run.
        needed: runs on one replica like these, by which an estimate says how many were needed at each moment; None
            leaves that out. Of a folder of runs the one that is judged is left out.
        gpus_per_replica: GPUs of a replica.
        gpu_hour_price: a number, or with a currency, as ``"2.5 EUR"``.
        window_s: attainment, and what is needed, is looked at in windows of this length, in seconds.
        router: which replica a request goes to, for the estimate.
        allow: what may differ between the runs of ``needed``: ``targets``, ``models``, ``dataset``.
        progress: told in words what is done next.

    Raises:
        UsageError: several runs, no SLO, one that is not judged request by request, or a run without requests.
        StoreError: the run or the series cannot be read.
    """
    from gpusize.estimate.plan.autoscale.judge.judge import judge_run
    from gpusize.estimate.plan.price import parse_price
    from gpusize.result import Result, open_run

    result = run if isinstance(run, Result) else open_run(run)
    if len(result.paths) != 1:
        todo = "judge them one by one, and hold them against each other with gpusize compare"
        raise UsageError(f"{len(result.paths)} runs were given", "run", todo)
    judged = result.slos if slos is None else as_slos(slos)
    if not judged:
        raise UsageError("there is no SLO to judge by", "slo", "give one, as in --slo 'p95 ttft <= 2s'")
    if gpus_per_replica < 1:
        raise UsageError("a replica has at least one GPU", "gpus_per_replica", "give 1 or more")
    width = as_number(window_s, "window")
    if not LEAST_WINDOW_S <= width <= 1e7:
        raise UsageError(f"window must be 1 s or more, not {width:g} s", "window", "give 10s or 2m")
    price = None if gpu_hour_price is None else parse_price(str(gpu_hour_price))
    terms = Terms(gpus_per_replica, width)
    if price is not None:
        terms = replace(terms, gpu_hour_price=price.amount, currency=price.currency)
    folder = result.path / FOLDER if series is None else Path(series)
    measured = None
    if needed is not None:
        measured = needed if isinstance(needed, Result) else _without(result.path, needed)

    def need(due_s: NDArray[np.float64], duration_s: float, length_s: float) -> Needed | str:
        from gpusize.estimate.plan.autoscale.judge.needed import needed_replicas

        assert measured is not None  # noqa: S101 (it is handed over only then)
        sized = [
            slo for slo in judged if slo.kind == "percentile" and slo.bound_s is not None and slo.op in ("<=", "<")
        ]
        if not sized:
            return "no SLO is an upper bound on a percentile of a time"
        question = measured.question(slos=sized, rate=1.0, gpus_per_replica=gpus_per_replica, router=router)
        return needed_replicas(measured.levels, question, due_s, duration_s, length_s, allow=allow, progress=progress)

    return judge_run(result.path, result.levels, folder, judged, terms, None if measured is None else need)


def _without(run: Path, needed: str | Path | Sequence[str | Path]) -> Result:
    """The runs of one replica; the run that is judged is none of them where it lies in a folder of runs.

    Raises:
        UsageError: it is the only one there.
        StoreError: there is none, or it cannot be read.
    """
    from gpusize.result import open_run

    own, named = run.resolve(), [needed] if isinstance(needed, str | Path) else list(needed)
    found = open_run(needed)
    others = [path for path in found.paths if path.resolve() != own]
    if len(others) == len(found.paths) or any(Path(each).resolve() == own for each in named):
        return found
    if not others:
        todo = "name runs that were measured on one replica"
        raise UsageError("the run that is judged is the only one there", f"needed: {', '.join(map(str, named))}", todo)
    return open_run(others)
