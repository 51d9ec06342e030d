"""The figure of a run that lies beside the series that were pulled for it, in its own folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusize.base.errors import SloError, UsageError
from gpusize.report.summary.source import ReportSource

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from gpusize.analysis.slo import Slo
    from gpusize.estimate.plan.autoscale.judge.needed import Needed

__all__ = ["stored_figure"]


def stored_figure(source: ReportSource) -> Figure | None:
    """The (first) run of a result, judged as it was last; None where no series were pulled into its folder.

    SLOs, GPUs of a replica, windows, price and what was needed are those of ``autoscale.json``; without that file the
    SLOs are the result's.
    """
    from gpusize.estimate.plan.autoscale.judge.judge import judge_run
    from gpusize.estimate.plan.autoscale.judge.needed import Needed
    from gpusize.estimate.plan.autoscale.judge.series import FOLDER, has_series
    from gpusize.estimate.plan.autoscale.judge.types import Terms
    from gpusize.report.figures.autoscale import judged_figure

    levels = list(getattr(source, "levels", ()))
    run = levels[0].folder.parent.parent if levels and levels[0].folder is not None else None
    if run is None or not has_series(run):
        return None
    mine = [level for level in levels if level.folder is not None and level.folder.parent.parent == run]
    told = _judged(run)
    slos = _slos(source.slos if told is None else told["slos"])
    need = None
    terms = Terms()
    if told is not None:
        window_s = float(told["windows"]["window_s"])
        terms = Terms(told["gpus_per_replica"], window_s, told["gpu_hour_price"], told["currency"] or "")
        if told["needed"] is not None:
            known = Needed.from_json(told["needed"])

            def need(_due_s: NDArray[np.float64], _end_s: float, _window_s: float) -> Needed | str:
                return known

    try:
        return judged_figure(judge_run(run, mine, run / FOLDER, slos, terms, need))
    except UsageError:
        return None  # a run without requests has nothing to lie beside


def _judged(run: Path) -> dict[str, Any] | None:
    from gpusize.analysis.compare.whole import FILE

    try:
        told = json.loads((run / FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    wanted = ("slos", "windows", "gpus_per_replica", "gpu_hour_price", "currency", "needed")
    return told if isinstance(told, dict) and all(name in told for name in wanted) else None


def _slos(given: Sequence[Any]) -> tuple[Slo, ...]:
    """Those that are judged request by request."""
    from gpusize.analysis.slo import as_slos
    from gpusize.estimate.plan.autoscale.judge.requests import over_time_slos

    kept: list[Slo] = []
    for each in given:
        try:
            kept += over_time_slos(as_slos([each if isinstance(each, str) else str(each)]))
        except (SloError, UsageError):
            continue
    return tuple(kept)
