"""What a search is asked for: how precise, at what cost, up to which load; and which SLOs it can search for."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.metrics import METRICS, of_request
from gpusize.base.errors import UsageError
from gpusize.base.given_numbers import MAX_CONCURRENCY, as_whole
from gpusize.base.units import as_duration_s, format_duration

if TYPE_CHECKING:
    from gpusize.analysis.slo import Slo

__all__ = ["MOST_USERS", "PRECISION", "REQUESTS", "ROUNDS", "Adaptive", "cannot_search", "searched"]

PRECISION: Final = 0.03
REQUESTS: Final = 16_000
ROUNDS: Final = 160.0
"""What may be spent when nothing is said: so many requests, or so many per user at the capacity, whichever is more."""
MOST_USERS: Final = 4096
LEAST_REQUESTS: Final = 100
LEAST_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Adaptive:
    """A search for the highest load that keeps every SLO.

    Args:
        precision: the search ends when the capacity is known to within this share of it, half the width of its 95 %
            interval; also a text such as ``3%``.
        budget: it ends when so many requests were sent, a whole number, or when so much time has gone, a text such as
            ``10m``. None: 16,000 requests or 160 per user at the capacity, whichever is more.
        most_users: no level has more users.

    Raises:
        UsageError: invalid values.
    """

    precision: float | str = PRECISION
    budget: int | str | None = None
    most_users: int = MOST_USERS

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "precision", _precision(self.precision))
        put(self, "budget", _budget(self.budget))
        put(self, "most_users", as_whole(self.most_users, "most_users", 1, MAX_CONCURRENCY))

    @property
    def share(self) -> float:
        """The precision as a share of the capacity."""
        return float(self.precision)

    @property
    def requests(self) -> int | None:
        """Requests that may be sent; None where nothing is said, or a time."""
        return self.budget if isinstance(self.budget, int) else None

    @property
    def time_s(self) -> float | None:
        """Seconds that the levels may take; None where nothing is said, or a number of requests."""
        return as_duration_s(self.budget, "budget") if isinstance(self.budget, str) else None

    def options(self) -> dict[str, Any]:
        """The options that make the same search again, as ``--config`` takes them, and as ``run.json`` keeps it."""
        given = {"budget": self.budget} if self.budget is not None else {}
        return {"adaptive": True, "precision": self.share, **given, "most_users": self.most_users}

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Adaptive:
        """The search that options ask for; the reverse of ``options``.

        Args:
            options: as ``options`` gives them.
        """
        names = ("precision", "budget", "most_users")
        return cls(**{name: options[name] for name in names if options.get(name) is not None})


def _precision(value: float | str) -> float:
    todo = "give a share of the capacity, such as 3%"
    text = str(value).strip()
    number = text.removesuffix("%").strip()
    try:
        share = float(number) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise UsageError(f'"{text}" is not a precision', "precision", todo) from None
    if not (math.isfinite(share) and 0.001 <= share <= 0.5):
        raise UsageError(f"a precision of {text} is not between 0.1% and 50%", "precision", todo)
    return share


def _budget(value: int | str | None) -> int | str | None:
    """A whole number of requests, or a duration as text."""
    if value is None:
        return None
    text = str(value).strip().replace("_", "").replace(",", "")
    todo = "give a number of requests, such as 4000, or a time, such as 10m"
    if re.fullmatch(r"[0-9]{1,18}", text):
        if int(text) < LEAST_REQUESTS:
            raise UsageError(
                f"{text} requests are too few to find a capacity", "budget", f"give at least {LEAST_REQUESTS}"
            )
        return int(text)
    if not any(letter.isalpha() for letter in text):
        raise UsageError(f'"{value}" is not a budget', "budget", todo)
    try:
        seconds = as_duration_s(text, "budget")
    except UsageError:
        raise UsageError(f'"{value}" is not a budget', "budget", todo) from None
    if seconds < LEAST_S:
        raise UsageError(f"a budget of {text} is too small to find a capacity", "budget", "give at least 1s")
    return format_duration(seconds)


def cannot_search(slos: Sequence[Slo], natures: Sequence[str | None]) -> UsageError | None:
    """Why no capacity can be searched for, None where it can.

    Args:
        slos: what has to be kept.
        natures: what a request to each target is (`records.run_json.nature_of`).
    """
    if not slos:
        return UsageError(
            "a search needs an SLO to search for", "adaptive", "give one, as in --slo 'p95 runtime <= 10s'"
        )
    for slo, searched_slo in zip(slos, searched(slos, natures), strict=True):
        found = None if slo.kind == "share" else METRICS[searched_slo.metric]
        if found is not None and (found.build is None or found.table != "records"):
            todo = "search for runtime, service, ttft or itl_mean; or name the levels, as in --concurrencies 1,2,4,8"
            return UsageError(f"{slo.metric} is not known of each request, which a search needs", "adaptive", todo)
    return None


def searched(slos: Sequence[Slo], natures: Sequence[str | None]) -> list[Slo]:
    """The SLOs on what each request has: where it is the call of a language model, its service is the LLM latency."""
    nature = natures[0] if len(set(natures)) == 1 else None
    return [slo if slo.kind == "share" else replace(slo, metric=of_request(slo.metric, nature)) for slo in slos]
