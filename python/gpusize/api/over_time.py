"""GPUs over time as a question to what was measured: runs, a file of arrivals, rules."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.estimate.plan.over_time.policies import POLICIES, ScalingRules
from gpusize.estimate.plan.over_time.types import OverTime

if TYPE_CHECKING:
    from gpusize.analysis.slo import Slo
    from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler
    from gpusize.estimate.plan.over_time.over_time import Progress
    from gpusize.result import Result

__all__ = ["gpus_over_time"]

SHAPE: Final = ("fmt", "speed", "rate_scale", "from_s", "until_s")


def gpus_over_time(
    runs: Result | str | Path | Sequence[str | Path],
    arrivals: str | Path,
    slos: Sequence[Slo | str] | Slo | str | None = None,
    rules: ScalingRules | None = None,
    *,
    policies: Sequence[str] = POLICIES,
    autoscalers: Sequence[Autoscaler] = (),
    lengths: str | None = None,
    gpu_hour_price: str | float | None = None,
    allow: Collection[str] = (),
    seed: int = 1,
    progress: Progress | None = None,
    **more: Any,
) -> OverTime:
    """How many GPUs recorded arrivals need over time, what they cost, and which share is served within the SLOs.

    A replica is fitted to the runs, as the method ``twin`` does; the whole trace is simulated on replicas that come and
    go by the rules, and on as many as its largest window needs all the time. No load is sent.

    Args:
        runs: a result, a run folder, or several of them.
        arrivals: a file of arrivals as ``gpusize run --arrivals`` takes it, or a profile: times and ``rate_per_s``.
        slos: upper bounds on percentiles of requests' times; None for those of the run.
        rules: how replicas come and go.
        policies: of ``planned`` (arrivals are known in advance) and ``reactive`` (only what has come is seen).
        autoscalers: policies of autoscalers, as ``read_policies`` reads them out of manifests.
        lengths: ``trace`` for the tokens that the trace has, with a warning where it has none; ``run`` for those that
            were measured; None for the trace's where it has them.
        gpu_hour_price: a number, or with a currency, as ``"2.5 EUR"``.
        allow: what may differ between several runs: ``targets``, ``models``, ``dataset``.
        seed: key of all draws.
        progress: told in words what is done next.
        more: ``fmt``, ``speed``, ``rate_scale``, ``from_s``, ``until_s`` of the arrivals, and of ``Question`` the
            fields ``router``, ``process``, ``together``, ``gpus``, ``gpus_per_replica``.

    Raises:
        UsageError: SLOs that cannot be judged over time, invalid rules, runs that cannot be compared.
        DatasetError: the arrivals cannot be read.
        StoreError: a run cannot be read.
    """
    from gpusize.estimate.plan.over_time.demand import demand
    from gpusize.estimate.plan.over_time.over_time import over_time
    from gpusize.estimate.plan.price import parse_price
    from gpusize.result import Result, open_run

    price = None if gpu_hour_price is None else parse_price(str(gpu_hour_price))
    result = runs if isinstance(runs, Result) else open_run(runs)
    shape = {name: more.pop(name) for name in SHAPE if name in more}
    found = over_time(
        result.levels,
        # Any rate: that of the trace stands for it.
        result.question(slos=slos, rate=1.0, **more),
        demand(arrivals, seed=seed, **shape),
        rules,
        policies=policies,
        autoscalers=autoscalers,
        lengths=lengths,
        allow=allow,
        seed=seed,
        progress=progress,
    )
    return found if price is None else replace(found, gpu_hour_price=price.amount, currency=price.currency)
