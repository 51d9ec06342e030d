"""A plan: one row per load, bound and time, each with a count or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from gpusize.base.errors import UsageError
from gpusize.estimate.plan.growth import NOW, Step

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from gpusize.estimate.plan.price import Cost, Price
    from gpusize.estimate.plan.ranges import Bound

__all__ = ["COLUMNS", "Failed", "Row", "Scenario", "WhatIf"]

Axis = Literal["users", "rate", "token_rate", "bound", "growth"]
MOST_ROWS: Final = 400
MOST_LOAD: Final = 1_000_000
"""Users, or requests per second: a row of so many takes minutes."""
MOST_TOKENS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is varied, and what is said of each row besides.

    Attributes:
        users: requests in flight, one row each; empty where rates or the default are asked for.
        rates: requests per second likewise.
        token_rates: output tokens per second likewise.
        bounds: other bounds of the SLOs; empty for their own.
        growth: times with a load of their own, now first.
        failed: replicas that fail; 0 to leave it out.
        price: of a GPU-hour; None to leave costs out.

    Raises:
        UsageError: several kinds of load, a number of failed replicas below 0, or too many rows.
    """

    users: Sequence[float] = ()
    rates: Sequence[float] = ()
    token_rates: Sequence[float] = ()
    bounds: Sequence[Bound] = ()
    growth: Sequence[Step] = (NOW,)
    failed: int = 0
    price: Price | None = None

    def __post_init__(self) -> None:
        if sum(bool(each) for each in (self.users, self.rates, self.token_rates)) > 1:
            raise UsageError("more than one of users, requests/s and tokens/s is given", None, "ask for one of them")
        for name, values in (("users", self.users), ("rate", self.rates), ("token_rate", self.token_rates)):
            if not all(math.isfinite(each) and each > 0 for each in values):
                raise UsageError("a load must be above 0", name, "leave out loads of 0")
            most = MOST_TOKENS if name == "token_rate" else MOST_LOAD
            if any(each > most for each in values):
                raise UsageError(f"at most {most:,} can be simulated", name, "give smaller loads")
        if self.failed < 0:
            raise UsageError(f"{self.failed} replicas cannot fail", "failed", "give 1, or leave it out")
        rows = max(1, len(self.loads)) * max(1, len(self.bounds)) * len(self.growth)
        if rows > MOST_ROWS:
            raise UsageError(f"that is a plan of {rows} rows", None, f"ask for at most {MOST_ROWS}")

    @property
    def loads(self) -> Sequence[float]:
        """Users, requests per second or output tokens per second; empty for the default."""
        return self.users or self.rates or self.token_rates


@dataclass(frozen=True, slots=True)
class Failed:
    """What becomes of a row when replicas fail.

    Attributes:
        attainment: share of the requests within the SLO that suffers most, on the GPUs that are left.
        target: the share that it asks for.
        kept: whether every SLO is still kept.
        gpus: GPUs that keep the SLOs without the failed ones, and are as many as the row has at least.
    """

    attainment: float
    target: float
    kept: bool
    gpus: int


@dataclass(frozen=True, slots=True)
class Row:
    """One answer of a plan.

    Attributes:
        step: when, as ``now`` or ``after 2 years``.
        growth: load over that of now.
        users: requests in flight; None for a rate.
        rate: requests per second; None for users.
        token_rate: output tokens per second that the rate was worked out from; None where none were asked for.
        bound_s: the SLO's bound, where it is varied as a time.
        bound_factor: multiple of the SLOs' own bounds, where that is varied.
        slos: all that must hold, in words.
        method: whose answer it is.
        gpus: whole GPUs with headroom and spare replicas; None without an answer.
        gpus_low: fewer are not enough; None where the method does not say.
        gpus_high: more are not needed, likewise.
        gpus_raw: the unrounded number, without reserve.
        raised: whether a smaller load or a looser bound needed more, so that this row was raised to it.
        slo: the SLO that decides.
        reason: why there is no answer.
        per_s: requests per second that the GPUs serve at this load; None where nobody knows.
        failed: what becomes of it when replicas fail; None where it was not asked, or cannot be said.
        cost: None without a price.
    """

    step: str
    growth: float
    users: float | None
    rate: float | None
    token_rate: float | None
    bound_s: float | None
    bound_factor: float | None
    slos: tuple[str, ...]
    method: str
    gpus: int | None = None
    gpus_low: int | None = None
    gpus_high: int | None = None
    gpus_raw: float | None = None
    raised: bool = False
    slo: str | None = None
    reason: str | None = None
    per_s: float | None = None
    failed: Failed | None = None
    cost: Cost | None = None

    @property
    def load(self) -> float:
        """Users, output tokens per second or requests per second, whichever was asked for."""
        found = self.users if self.users is not None else self.token_rate
        return found if found is not None else (self.rate or 0.0)

    @property
    def bound(self) -> float | None:
        """The bound as it is varied: seconds or a multiple; None where it is the SLOs' own."""
        return self.bound_s if self.bound_s is not None else self.bound_factor


@dataclass(frozen=True)
class WhatIf:
    """A plan. Its rows are ordered by time, then bound, then load.

    Attributes:
        rows: one per combination.
        capacity: requests in flight or requests/s that the tested GPUs carry, by the answer with fewest GPUs; None
            without one, and where bounds are varied.
        tested_gpus: GPUs that were measured.
        failed: replicas that fail; 0 where that was not asked.
        price: of a GPU-hour; None where it was not given.
        tokens: output tokens of a request, mean; None where the answers do not tell.
        assumptions: what must hold for the numbers to hold.
        warnings: what weakens them.
        next_levels: concurrencies that are worth measuring.
        next_counts: numbers of GPUs that are.
        measured_pause: the pause of the levels' users as ``--think`` takes it; empty where they had none.
    """

    rows: tuple[Row, ...]
    capacity: float | None = None
    tested_gpus: int | None = None
    failed: int = 0
    price: Price | None = None
    tokens: float | None = None
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    next_levels: tuple[int, ...] = ()
    next_counts: tuple[int, ...] = ()
    measured_pause: str = ""

    @property
    def answered(self) -> bool:
        """Whether any row has a number."""
        return any(row.gpus is not None for row in self.rows)

    @property
    def kind(self) -> Axis:
        """What the load is."""
        first = self.rows[0]
        if first.users is not None:
            return "users"
        return "rate" if first.token_rate is None else "token_rate"

    @property
    def several_loads(self) -> bool:
        """Whether loads are varied, besides by growth."""
        return len({row.load for row in self.rows if row.step == self.rows[0].step}) > 1

    @property
    def axis(self) -> Axis:
        """What a curve of this plan goes over: the loads, else the bounds, else time."""
        if self.several_loads:
            return self.kind
        return "bound" if len({row.bound for row in self.rows}) > 1 else "growth"

    @cached_property
    def frame(self) -> pl.DataFrame:
        """One row per answer; see docs/reference/python.md for the columns."""
        return frame_of(self)

    def to_json(self) -> dict[str, Any]:
        """Plain fields, the rows as ``frame`` has them."""
        more = ("capacity", "tested_gpus", "failed", "tokens", "assumptions", "warnings", "next_levels", "next_counts")
        return {
            "axis": self.axis,
            "load": self.kind,
            "answered": self.answered,
            "rows": self.frame.to_dicts(),
            **{name: getattr(self, name) for name in more},
            "price": None if self.price is None else asdict(self.price),
        }

    def plot(self) -> Figure:
        """GPUs over the axis, with a band from ``gpus_low`` to ``gpus_high``.

        Raises:
            UsageError: no row has an answer.
        """
        from gpusize.report.figures.plan import plan_figure

        return plan_figure(self)

    def _repr_html_(self) -> str:
        from gpusize.report.notebook.show import plan_html

        return plan_html(self)


COSTS: Final = ("per_hour", "per_month", "per_million_requests", "per_million_tokens")
COLUMNS: Final = (
    "step",
    "growth",
    "users",
    "rate",
    "token_rate",
    "bound_s",
    "bound_factor",
    "slos",
    "method",
    "gpus",
    "gpus_low",
    "gpus_high",
    "gpus_raw",
    "raised",
    "slo",
    "reason",
    "per_s",
    "failed_attainment",
    "failed_target",
    "failed_kept",
    "failed_gpus",
    "currency",
    *(f"cost_{name}" for name in COSTS),
)
"""Every column, whether it was asked for or not."""


def frame_of(plan: WhatIf) -> pl.DataFrame:
    """One row per row of the plan, all of ``COLUMNS``; what was not asked for, or is not known, is null."""
    import polars as pl

    dtypes: dict[str, Any] = dict.fromkeys(COLUMNS, pl.Float64)
    dtypes |= dict.fromkeys(("gpus", "gpus_low", "gpus_high", "failed_gpus"), pl.Int64)
    dtypes |= dict.fromkeys(("step", "method", "slo", "reason", "currency"), pl.String)
    dtypes |= {"raised": pl.Boolean, "failed_kept": pl.Boolean, "slos": pl.List(pl.String)}
    currency = None if plan.price is None else plan.price.currency
    return pl.DataFrame([_fields(row, currency) for row in plan.rows], schema=dtypes, orient="row")


def _fields(row: Row, currency: str | None) -> dict[str, Any]:
    own = {name: getattr(row, name) for name in COLUMNS if hasattr(row, name)}
    failed = {f"failed_{name}": getattr(row.failed, name, None) for name in ("attainment", "target", "kept", "gpus")}
    cost = {f"cost_{name}": getattr(row.cost, name, None) for name in COSTS}
    return {**own, "slos": list(row.slos), **failed, "currency": currency, **cost}
