"""``gpusize.what_if``: GPUs against users, rates, bounds and time, from what was measured once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.given_numbers import as_number, as_sequence, as_whole
from gpusize.base.typed import Kind, check_kinds, or_none
from gpusize.estimate.plan.growth import NOW, Step, parse_growth
from gpusize.estimate.plan.price import parse_price
from gpusize.estimate.plan.ranges import Bound, parse_bounds, parse_rates, parse_users
from gpusize.estimate.plan.types import Scenario, WhatIf

if TYPE_CHECKING:
    from gpusize.analysis.slo import Slo
    from gpusize.estimate.plan.table import Progress
    from gpusize.result import Result

__all__ = ["what_if"]

MOST_FAILED: Final = 1_000_000
_KINDS: Final[dict[str, Kind]] = {
    "bounds": or_none(((str, Sequence), "a text or a list")),
    "growth": or_none(((str, Sequence), "a text or a list")),
}


def what_if(
    runs: Result | str | Path | Sequence[str | Path],
    users: str | float | Sequence[float] | None = None,
    slos: Sequence[Slo | str] | Slo | str | None = None,
    *,
    rates: str | float | Sequence[float] | None = None,
    token_rates: str | float | Sequence[float] | None = None,
    bounds: str | Sequence[Bound] | None = None,
    growth: str | Sequence[Step] | None = None,
    failed: int = 0,
    gpu_hour_price: str | float | None = None,
    gpus: int | None = None,
    allow: Collection[str] = (),
    progress: Progress | None = None,
    **more: Any,
) -> WhatIf:
    """How many GPUs other users, rates, SLOs and times need, by what was measured. No load is sent.

    Args:
        runs: a result, a run folder, or several of them.
        users: requests in flight, as numbers or as ``"50,100,200..1000"``; None for half to 16 times what the tested
            GPUs carry, or for the run's own users where bounds or growth are varied.
        slos: all must be met; None for those of the run.
        rates: requests per second, instead of users.
        token_rates: output tokens per second, instead of users.
        bounds: other bounds, as ``"2s,4s,8s"``, or multiples of the SLOs' own, as ``"0.5x..4x"``.
        growth: of the load, as ``"1.5"`` or ``"30%/year"``: a row for now and one for each time after.
        failed: replicas that fail: what share is still within the SLOs, and how many GPUs stand it.
        gpu_hour_price: a number, or with a currency, as ``"2.5 EUR"``.
        gpus: GPUs that were tested, where the run does not say.
        allow: what may differ between several runs: ``targets``, ``models``, ``dataset``.
        progress: called with the rows answered and all rows.
        more: other fields of ``Question``, as ``think_s``, ``think``, ``router``, ``headroom``, ``spare``,
            ``gpus_per_replica``.

    Raises:
        UsageError: a text that does not parse, several kinds of load, no SLO, or runs that cannot be compared.
        StoreError: a run cannot be read.
    """
    from gpusize.estimate.plan.ask import Answers
    from gpusize.estimate.plan.table import plan
    from gpusize.result import Result, open_run

    check_kinds(locals(), _KINDS)
    scenario = Scenario(
        users=_listed("users", users, parse_users),
        rates=_listed("rates", rates, parse_rates),
        token_rates=_listed("token_rates", token_rates, partial(parse_rates, where="token_rate")),
        bounds=parse_bounds(bounds) if isinstance(bounds, str) else tuple(bounds or ()),
        growth=(NOW,) if growth is None else parse_growth(growth) if isinstance(growth, str) else tuple(growth),
        failed=as_whole(failed, "failed", 0, MOST_FAILED),
        price=None if gpu_hour_price is None else parse_price(str(gpu_hour_price)),
    )
    result = runs if isinstance(runs, Result) else open_run(runs)
    # The scenario's loads stand for the question's; without any the run's own count, if it has some.
    at_rates = bool(scenario.rates or scenario.token_rates)
    own = 1.0 if scenario.loads or (result.users is None and result.rate is None) else None
    question = result.question(None if at_rates else own, slos, gpus, rate=own if at_rates else None, **more)
    return plan(Answers(result.levels, question, allow), question, scenario, progress)


def _listed(
    name: str, given: str | float | Sequence[float] | None, parse: Callable[[str], list[float]]
) -> tuple[float, ...]:
    """Ascending numbers, from a text, one number or several."""
    if given is None:
        return ()
    if isinstance(given, str):
        return tuple(parse(given))
    several = (given,) if isinstance(given, int | float) else as_sequence(given, name)
    return tuple(sorted({as_number(each, name) for each in several}))
