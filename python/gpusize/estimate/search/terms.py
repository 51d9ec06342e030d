"""What a search is asked for: how precise, at what cost, up to which load; and which SLOs it can search for."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.given_numbers import MAX_CONCURRENCY, as_whole
from gpusize.base.units import as_duration_s, format_duration
from gpusize.estimate.plan.price import Price, parse_price

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
SYMBOLS: Final[Mapping[str, str]] = {"$": "USD", "€": "EUR", "£": "GBP"}
"""Signs that mean one currency when they stand alone."""


@dataclass(frozen=True, slots=True)
class Adaptive:
    """A search for the highest load that keeps every SLO.

    Args:
        precision: the search ends when the capacity is known to within this share of it, half the width of its 95 %
            interval; also a text such as ``3%``.
        budget: it ends when so many requests were sent, a whole number, when so much time has gone, a text such as
            ``10m``, or when the levels have cost so much, a text such as ``5 USD``. None: 16,000 requests or 160 per
            user at the capacity, whichever is more.
        most_users: no level has more users.
        gpu_hour_price: of one GPU for an hour, such as ``2.5 USD``; a budget in money needs it.
        gpus: behind the target, where a price is given; a run fills them in.

    Raises:
        UsageError: invalid values.
    """

    precision: float | str = PRECISION
    budget: int | str | None = None
    most_users: int = MOST_USERS
    gpu_hour_price: str | None = None
    gpus: int | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        price = None if self.gpu_hour_price is None else parse_price(str(self.gpu_hour_price))
        put(self, "gpu_hour_price", None if price is None else _money_text(price))
        put(self, "precision", _precision(self.precision))
        put(self, "budget", _budget(self.budget))
        put(self, "most_users", as_whole(self.most_users, "most_users", 1, MAX_CONCURRENCY))
        if self.money is not None:
            _check_money(self.money, price)
        if self.gpus is not None and self.cost_s is not None and (self.time_s or LEAST_S) < LEAST_S:
            text = f"a budget of {self.budget} is too small to find a capacity"
            raise UsageError(text, "budget", f"{self.gpus} GPUs cost that in less than a second; give more")

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
        """Seconds that the levels may take; None where nothing is said, or a number of requests.

        Raises:
            UsageError: the budget is money, and nobody has said how many GPUs there are.
        """
        if self.money is None:
            return as_duration_s(self.budget, "budget") if isinstance(self.budget, str) else None
        if self.cost_s is None:
            todo = "pass --gpus N, those behind the target"
            raise UsageError(f"how long {self.budget} lasts is not known without the number of GPUs", "gpus", todo)
        return self.money.amount / self.cost_s

    @property
    def money(self) -> Price | None:
        """What the levels may cost; None where the budget is none of money."""
        return _money(self.budget) if isinstance(self.budget, str) else None

    @property
    def cost_s(self) -> float | None:
        """What a second of all GPUs costs, in the price's currency; None where no price is known, or no GPUs are."""
        if self.gpu_hour_price is None or not self.gpus:
            return None
        return parse_price(self.gpu_hour_price).amount * self.gpus / 3600

    def cost_text(self, seconds: float) -> str:
        """What a time of all GPUs costs, as ``1.25 USD``; empty where no price is known.

        Args:
            seconds: of levels.
        """
        if self.gpu_hour_price is None or self.cost_s is None:
            return ""
        amount = self.cost_s * seconds
        digits = max(2, 1 - math.floor(math.log10(amount))) if amount > 0 else 2
        currency = (self.money or Price(1)).currency or parse_price(self.gpu_hour_price).currency
        return f"{amount:,.{digits}f} {currency}".rstrip()

    def options(self) -> dict[str, Any]:
        """The options that make the same search again, as ``--config`` takes them, and as ``run.json`` keeps it."""
        asked = {"budget": self.budget, "most_users": self.most_users, "gpu_hour_price": self.gpu_hour_price}
        given = {name: value for name, value in asked.items() if value is not None}
        return {"adaptive": True, "precision": self.share, **given}

    def facts(self) -> dict[str, Any]:
        """As ``run.json`` keeps it: the options, and the GPUs where a price is given."""
        return {**self.options(), **({"gpus": self.gpus} if self.gpus else {})}

    @classmethod
    def of(cls, options: Mapping[str, Any], gpus: int | None = None) -> Adaptive:
        """The search that options ask for; the reverse of ``options``.

        Args:
            options: as ``options`` gives them.
            gpus: behind the target; they count where there is a price.
        """
        names = ("precision", "budget", "most_users", "gpu_hour_price")
        given = {name: options[name] for name in names if options.get(name) is not None}
        return cls(**given, gpus=gpus if "gpu_hour_price" in given else None)


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
    """A whole number of requests, or a duration or an amount of money as text."""
    if value is None:
        return None
    text = str(value).strip().replace("_", "").replace(",", "")
    todo = "give a number of requests, such as 4000, a time, such as 10m, or money, such as 5usd"
    if re.fullmatch(r"[0-9]{1,18}", text):
        if int(text) < LEAST_REQUESTS:
            raise UsageError(
                f"{text} requests are too few to find a capacity", "budget", f"give at least {LEAST_REQUESTS}"
            )
        return int(text)
    money = _money(text)
    if money is not None:
        return _money_text(money)
    if not any(letter.isalpha() for letter in text):
        raise UsageError(f'"{value}" is not a budget', "budget", todo)
    try:
        seconds = as_duration_s(text, "budget")
    except UsageError:
        raise UsageError(f'"{value}" is not a budget', "budget", todo) from None
    if seconds < LEAST_S:
        raise UsageError(f"a budget of {text} is too small to find a capacity", "budget", "give at least 1s")
    return format_duration(seconds)


def _money(text: str) -> Price | None:
    """An amount with its currency; None of other texts, as of ``10m``, which is a time, and of ``5x``."""
    try:
        as_duration_s(text, "budget")
    except UsageError:
        pass
    else:
        return None
    try:
        found = parse_price(text)
    except UsageError:
        return None
    return found if found.currency in SYMBOLS or len(found.currency) > 1 else None


def _money_text(money: Price) -> str:
    return f"{money.amount:.12g} {money.currency}".rstrip()


def _check_money(money: Price, price: Price | None) -> None:
    """Refuse a budget in money that no price, or one in another currency, says how long to spend.

    Raises:
        UsageError: so it is.
    """
    if price is None:
        todo = f"give it, as in --gpu-hour-price '2.5 {money.currency}', or a number of requests or a time"
        raise UsageError(f"a budget of {_money_text(money)} needs the price of a GPU for an hour", "budget", todo)
    if price.currency and _currency(price.currency) != _currency(money.currency):
        text = f"a budget in {money.currency} and a price in {price.currency} are given"
        raise UsageError(text, "budget", "give both in one currency")


def _currency(name: str) -> str:
    return SYMBOLS.get(name, name.upper())


def cannot_search(slos: Sequence[Slo]) -> UsageError | None:
    """Why no capacity can be searched for, None where it can."""
    if slos:
        return None
    return UsageError("a search needs an SLO to search for", "adaptive", "give one, as in --slo 'p95 runtime <= 10s'")


def searched(slos: Sequence[Slo], natures: Sequence[str | None]) -> list[Slo]:
    """The SLOs on what each request has: where it is the call of a language model, its service is the LLM latency."""
    nature = natures[0] if len(set(natures)) == 1 else None
    return [slo.of_request(nature) for slo in slos]
