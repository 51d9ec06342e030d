"""Settings of an autoscaler as a question to what was measured."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusize.api.over_time import SHAPE
from gpusize.estimate.plan.autoscale.tune import DAYS, Tuned, tune

if TYPE_CHECKING:
    from gpusize.analysis.slo import Slo
    from gpusize.base.tasks import Tasks
    from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler
    from gpusize.estimate.plan.over_time.over_time import Progress
    from gpusize.estimate.plan.over_time.policies import ScalingRules
    from gpusize.result import Result

__all__ = ["tune_autoscaler"]


def tune_autoscaler(
    runs: Result | str | Path | Sequence[str | Path],
    arrivals: str | Path,
    autoscaler: Autoscaler,
    slos: Sequence[Slo | str] | Slo | str | None = None,
    rules: ScalingRules | None = None,
    *,
    lengths: str | None = None,
    allow: Collection[str] = (),
    days: int = DAYS,
    seed: int = 1,
    progress: Progress | None = None,
    ray: str | None = None,
    note: Progress | None = None,
    **more: Any,
) -> Tuned:
    """The settings of an autoscaler with the fewest GPU-hours that keep the SLOs on days like a recorded one.

    No load is sent. Arguments are those of ``gpus_over_time``; of ``rules`` the start delay and the windows count.

    Args:
        runs: a result, a run folder, or several of them.
        arrivals: a file of arrivals as ``gpusize run --arrivals`` takes it, or a profile: times and ``rate_per_s``.
        autoscaler: the policy, as ``read_policies`` reads it out of a manifest.
        slos: upper bounds on percentiles of requests' times; None for those of the run.
        rules: how long a replica takes to start, and windows of the day.
        lengths: ``trace`` or ``run``: whose tokens requests have; None for the trace's where it has them.
        allow: what may differ between several runs: ``targets``, ``models``, ``dataset``.
        days: like the recorded one that settings are confirmed on, and as many others that they are judged on; 5 or
            more.
        seed: key of all draws, the days among them.
        progress: told in words what is done next.
        ray: the address of a Ray cluster that simulates, or ``auto``; None: this machine does. The answer is the same.
        note: told what was lost on that cluster and is done again; None: ``progress`` is.
        more: ``fmt``, ``speed``, ``rate_scale``, ``from_s``, ``until_s`` of the arrivals, and of ``Question`` the
            fields ``router``, ``process``, ``together``, ``gpus``, ``gpus_per_replica``.

    Raises:
        UsageError: SLOs that cannot be judged over time, runs that cannot be compared, too few days.
        DatasetError: the arrivals cannot be read.
        StoreError: a run cannot be read.
        EnvironmentLacks: there is no such Ray cluster, or another gpusize on it.
    """
    from gpusize.base.on_ray.connection import ray_address
    from gpusize.base.on_ray.tasks import tasks_on_ray
    from gpusize.estimate.plan.autoscale import trials
    from gpusize.estimate.plan.over_time.demand import demand
    from gpusize.estimate.plan.over_time.over_time import planner
    from gpusize.estimate.plan.over_time.types import OverTime
    from gpusize.result import Result, open_run

    address = None if ray is None else ray_address(ray)
    tasks: AbstractContextManager[Tasks | None] = (
        nullcontext()
        if address is None
        else tasks_on_ray(address, trials.__name__, note or progress or (lambda _: None))
    )
    result = runs if isinstance(runs, Result) else open_run(runs)
    shape = {name: more.pop(name) for name in SHAPE if name in more}
    made = planner(
        result.levels,
        result.question(slos=slos, rate=1.0, **more),
        demand(arrivals, seed=seed, **shape),
        rules,
        lengths=lengths,
        allow=allow,
        seed=seed,
        progress=progress,
    )
    if isinstance(made, OverTime):
        return Tuned(made)
    with tasks as simulates:
        return tune(made, autoscaler, days=days, seed=seed, progress=progress, tasks=simulates)
