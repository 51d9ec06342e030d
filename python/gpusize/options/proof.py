"""From a run and a question to the loads of a proof: which GPUs get how much, for how long."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.units import as_duration_s, format_duration
from gpusize.estimate.certificate import Certificate, How, Side
from gpusize.options.hosts import HOSTS_OPTIONS
from gpusize.options.load import LOAD_STOPS, LOAD_WAYS
from gpusize.options.search import SEARCH_OPTIONS

__all__ = ["BUDGET", "DURATION", "Budget", "load_options", "planned_levels", "side_of", "without_load"]

BUDGET: Final = "30m"
DURATION: Final = "20s"
LEAST_DURATION_S: Final = 1.0
LEAST_REQUESTS: Final = 100
MOST_LEVELS: Final = 2_000
MOST_ROUNDED: Final = 0.1
"""Share of a load that whole users may change: more would be another question."""
_DROPPED: Final = (
    *LOAD_WAYS, *LOAD_STOPS, *SEARCH_OPTIONS, *HOSTS_OPTIONS,
    "users", "append", "stop_when", "replicas", "start_delay", "warmup", "sample_records",
    "arrivals_format", "arrivals_from", "arrivals_until", "speed", "rate_scale", "label", "strict", "batch",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Budget:
    """What a side may cost: requests, or seconds.

    Attributes:
        requests: that may be sent; None for a time.
        time_s: that levels may last together; None for requests.
    """

    requests: int | None = None
    time_s: float | None = None

    @classmethod
    def parse(cls, value: float | str) -> Budget:
        """Read ``20000`` or ``30m``.

        Raises:
            UsageError: neither, or too little.
        """
        text = str(value).strip().replace(",", "").replace("_", "")
        if text.isdigit():
            if int(text) < LEAST_REQUESTS:
                todo = f"give at least {LEAST_REQUESTS}, or a time, such as 30m"
                raise UsageError(f"{int(text)} requests are too few to prove anything", "budget", todo)
            return cls(requests=int(text))
        if not any(letter.isalpha() for letter in text):
            raise UsageError(f'"{value}" is not a budget', "budget", "give requests, such as 20000, or a time, as 30m")
        return cls(time_s=as_duration_s(text, "budget"))

    def __str__(self) -> str:
        return f"{self.requests}" if self.requests is not None else format_duration(self.time_s or 0.0)


def side_of(
    gpus: int, at_gpus: int, *, asked_gpus: int, users: float | None, rate: float | None, turns: float = 1.0
) -> Side:
    """What is sent to ``at_gpus`` GPUs to learn of ``gpus``, where the question's load is meant for ``gpus``.

    Users are whole: they are rounded so that the proof gets harder, up for the number that is to keep the SLOs and down
    for one that is not to.

    Args:
        gpus: that are spoken of.
        at_gpus: that are behind the target.
        asked_gpus: the number that is to be proved.
        users: of the question.
        rate: of the question, in requests per second.
        turns: requests that each arrival at the rate brings: those of a conversation, where these begin.

    Raises:
        UsageError: whole users would be another load.
    """
    share = at_gpus / gpus
    how: How = "as asked" if at_gpus == gpus else "scaled down" if at_gpus < gpus else "by load"
    if users is None:
        return Side(gpus, at_gpus, how, rate=None if rate is None else float(f"{rate * share:.9g}"), turns=turns)
    exact = users * share
    near = round(exact)
    whole = near if abs(exact - near) < 1e-9 * max(1.0, exact) else math.ceil(exact)
    if gpus < asked_gpus and whole > exact + 1e-9:
        whole -= 1
    if whole < 1 or abs(whole / exact - 1) > MOST_ROUNDED:
        what = f"{at_gpus} of {gpus} GPUs would serve {exact:.4g} of {users:g} users, which is no whole number"
        raise UsageError(what, "target_gpus", "load more GPUs, or ask for a rate")
    return Side(gpus, at_gpus, how, users=int(whole))


def planned_levels(side: Side, budget: Budget, duration_s: float) -> int:
    """How many levels are planned: as many as the budget has room for.

    Raises:
        UsageError: a level is too short, or there would be none.
    """
    if not duration_s >= LEAST_DURATION_S:
        raise UsageError(f"a level of {duration_s:g} s is too short to judge", "duration", "give 1s or more")
    if budget.time_s is not None:
        count = math.floor(budget.time_s / duration_s + 1e-9)
        if count < 1:
            todo = f"give a larger budget, or a --duration below {format_duration(budget.time_s)}"
            raise UsageError(f"a budget of {budget} has no room for a level of {duration_s:g} s", "budget", todo)
    elif side.rate is not None:
        count = math.ceil((budget.requests or 0) / (side.rate * duration_s)) + 1
    else:
        # Nobody knows how many requests a user makes; the requests are counted as they come.
        count = MOST_LEVELS
    return min(count, MOST_LEVELS)


def without_load(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a run without what said how hard, how long and where from it was loaded."""
    return {name: value for name, value in options.items() if name not in _DROPPED}


def load_options(certificate: Certificate, side: Side, budget: Budget) -> dict[str, Any]:
    """Options of the run that measures a side, beside those of target and dataset."""
    count = planned_levels(side, budget, certificate.duration_s)
    load: dict[str, Any] = (
        {"rates": [side.arrivals] * count} if side.users is None else {"concurrencies": [side.users] * count}
    )
    return {**load, "duration": certificate.duration_s, "adaptive": False, "slo": list(certificate.slos),
            "gpus": side.at_gpus}  # fmt: skip
