"""The settings of an autoscaler with the fewest GPU-hours that keep the SLOs on such days.

    1  search      see ``search``
    2  judgement   the policy as it is, as it was tuned, and with larger and smaller targets, on days that nothing was
                   chosen by

docs/reference/autoscale.md says what a day of the same kind is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from gpusize.base.errors import UsageError
from gpusize.base.tasks import side_by_side
from gpusize.estimate.plan.autoscale.search import Search
from gpusize.estimate.plan.autoscale.trials import Day, Days, Trial

if TYPE_CHECKING:
    from gpusize.base.tasks import Tasks
    from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler
    from gpusize.estimate.plan.autoscale.setting import Setting
    from gpusize.estimate.plan.over_time.over_time import Planner
    from gpusize.estimate.plan.over_time.types import OverTime

__all__ = ["DAYS", "EDGE", "Tuned", "tune"]

DAYS: Final = 20
"""Days that a setting is confirmed on, and as many that it is judged on."""
FEWEST_DAYS: Final = 5
EDGE: Final = (0.5, 0.8, 1.0, 1.25, 2.0)


@dataclass(frozen=True, eq=False)
class Tuned:
    """The settings that were found.

    Attributes:
        found: the static course for the trace, and how it was come by; its ``reason`` says why there is none.
        before: the policy as it is, on days that nothing was chosen by; None without an answer.
        setting: what is changed; None where no setting keeps the SLOs on enough days.
        policy: the policy with it.
        after: this policy on the same days.
        edge: factor on its targets, and what that comes to there.
        simulations: how many were made.
        error: standard error of the logarithm of how slow a replica is: each day has one within it.
        unseen: requests that a replica was seen to work on at once, where no limit was reached: each day is simulated
            with that limit and without; None where the limit is known.
    """

    found: OverTime
    before: Trial | None = None
    setting: Setting | None = None
    policy: Autoscaler | None = None
    after: Trial | None = None
    edge: tuple[tuple[float, Trial], ...] = ()
    simulations: int = 0
    error: float = 0.0
    unseen: int | None = None


def tune(
    planner: Planner,
    autoscaler: Autoscaler,
    *,
    days: int = DAYS,
    seed: int = 1,
    progress: Callable[[str], None] | None = None,
    tasks: Tasks | None = None,
) -> Tuned:
    """Search for the settings of a policy with the fewest GPU-hours that keep the SLOs.

    Args:
        planner: a trace on a fitted replica.
        autoscaler: the policy.
        days: that a setting is confirmed on, and as many others that it is judged on; 5 or more.
        seed: key of the days.
        progress: told in words what is done next.
        tasks: who simulates; None: two threads of this process.

    Raises:
        UsageError: too few days.
    """
    if days < FEWEST_DAYS:
        raise UsageError(f"{days} days tell no spread between days", "days", f"give {FEWEST_DAYS} or more")
    say = progress or _nothing
    found = planner.answer()
    if found.reason is not None:
        return Tuned(found)
    made = Days(planner, found.static.peak_gpus // found.replica_gpus, seed, tasks)
    search = Search(made, autoscaler, found, days, say)
    judged = made.draw(days, found.edges_ns)
    say(f"the policy as it is, on {days} days")
    before = _told(made, autoscaler, judged)
    chosen = search.best()
    base = Tuned(found, before, error=made.error, unseen=made.unseen)
    if chosen is None:
        return replace(base, simulations=made.made)
    say(f"judging on {days} days that nothing was chosen by, {made.made:,} simulations")
    beside = [replace(chosen, factor=chosen.factor * factor).on(autoscaler) for factor in EDGE]
    trials = side_by_side(made.at_once, [partial(_told, made, each, judged) for each in beside])
    edge = dict(zip(EDGE, trials, strict=True))
    return replace(
        base,
        setting=chosen,
        policy=chosen.on(autoscaler),
        after=edge[1.0],
        edge=tuple(edge.items()),
        simulations=made.made,
    )


def _told(days: Days, autoscaler: Autoscaler, judged: Sequence[Day]) -> Trial:
    found = days.trial(autoscaler, judged)
    if found is None:
        raise RuntimeError("a judgement ended early")
    return found


def _nothing(_text: str) -> None:
    return
