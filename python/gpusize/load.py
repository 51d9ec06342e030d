"""How hard to load the target, level by level, and for how long."""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from gpusize.errors import UsageError
from gpusize.units import format_duration, seconds_to_ns

__all__ = ["DEFAULT_CONCURRENCIES", "Load", "Order", "Process"]

Process = Literal["constant", "poisson"]
"""Arrivals of an open loop: equal gaps, or exponential ones as of many independent users."""

Order = Literal["file", "shuffled"]
"""Order of the dataset's rows; shuffled is a new permutation for each round through them."""

DEFAULT_CONCURRENCIES: Final = (1, 2, 4, 8, 16, 32)
"""The sweep when nothing is said."""

ALLOWED_ERROR_SHARE: Final = 0.01
"""Share of failed requests that a level by count or duration may have when nothing is said; with passes it is 0."""

_MIN_ERRORS: Final = 10
"""Failures before a share is judged while a level runs: one failure among the first five says nothing about 1 %."""

_MAX_CONCURRENCY: Final = 1_000_000
_MAX_RATE: Final = 1e8


@dataclass(frozen=True)
class Load:
    """The levels of a sweep.

    Either a closed loop at some concurrencies or an open loop at some rates. Without count, duration and passes, a
    closed loop sends what the sizing calculator sends by default: as many whole rounds of ``concurrency`` requests as
    the dataset has rows for, at least one.

    Args:
        concurrencies: requests kept in flight, one level each, in this order; a value may come again.
        rates: requests per second, one level each.
        process: arrivals of the open loop.
        passes: requests per level as a multiple of the concurrency; every request counts.
        count: requests per level.
        duration_s: seconds per level; with ``count`` whichever comes first.
        warmup_s: seconds at the start of a level that do not count; None: found from the records, and none with passes.
        drain_s: seconds for requests in flight when the user interrupts.
        max_error_share: share of failed requests that a level survives; None: 0 with passes, else 0.01.
        order: order of the dataset's rows.
        seed: key of all draws; the same seed gives the same arrivals and order.
        think_s: pause between an answer and the next request of the same slot, closed loop.
        connections: bound on connections of the open loop.
        queue: due requests that may wait for a connection, open loop; more are shed.
        workers: threads that send, one core each.

    Raises:
        UsageError: settings that cannot be meant.
    """

    concurrencies: Sequence[int] = ()
    rates: Sequence[float] = ()
    process: Process = "poisson"
    passes: int | None = None
    count: int | None = None
    duration_s: float | None = None
    warmup_s: float | None = None
    drain_s: float = 1.0
    max_error_share: float | None = None
    order: Order = "file"
    seed: int = 1
    think_s: float = 0.0
    connections: int = 256
    queue: int = 10_000
    workers: int = 1

    def __post_init__(self) -> None:
        both = len(self.concurrencies) and len(self.rates)
        if both:
            raise UsageError(
                "concurrencies and rates are both given", "load", "give one: a closed loop or an open loop"
            )
        chosen = self.concurrencies if len(self.concurrencies) or len(self.rates) else DEFAULT_CONCURRENCIES
        concurrencies = tuple(
            _whole(value, "concurrency", 1, _MAX_CONCURRENCY) for value in _sequence(chosen, "concurrencies")
        )
        rates = tuple(_number(value, "rate") for value in _sequence(self.rates, "rates"))
        object.__setattr__(self, "concurrencies", concurrencies)
        object.__setattr__(self, "rates", rates)
        for rate in rates:
            if not 0 < rate <= _MAX_RATE:
                raise UsageError(
                    f"a rate of {rate:g}/s cannot be meant", "rates", f"give more than 0, up to {_MAX_RATE:g}/s"
                )
        self._check_stop()
        self._check_words()
        for name, low in (("seed", 0), ("connections", 1), ("queue", 0), ("workers", 1)):
            object.__setattr__(
                self, name, _whole(getattr(self, name), name, low, 2**63 - 1 if name == "seed" else 2**31)
            )

    def _check_stop(self) -> None:
        for name, low in (("passes", 0), ("count", 1)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _whole(getattr(self, name), name, low, 2**53))
        for name, low_open in (("duration_s", True), ("warmup_s", False), ("drain_s", False), ("think_s", False)):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _seconds(value, name, positive=low_open))
        timed = self.count is not None or self.duration_s is not None
        if self.passes is not None and timed:
            raise UsageError(
                "passes are given beside a count or a duration",
                "load",
                "give one of them: passes say how many requests",
            )
        if self.rates and self.passes is not None:
            raise UsageError("passes belong to concurrencies, not to rates", "load", "give a duration or a count")
        if self.rates and not timed:
            raise UsageError("the open loop would never end", "load", "give a duration, such as 60s, or a count")
        if self.rates and self.think_s:
            raise UsageError(
                "a think time belongs to concurrencies, not to rates",
                "load",
                "leave it out: the rate says when requests go",
            )
        if self.duration_s is not None and self.warmup_s is not None and self.warmup_s >= self.duration_s:
            raise UsageError("the warm-up is as long as the level", "load", "make the duration longer than the warm-up")

    def _check_words(self) -> None:
        if self.process not in get_args(Process):
            raise UsageError(
                f'"{self.process}" is not an arrival process', "process", f"use {' or '.join(get_args(Process))}"
            )
        if self.order not in get_args(Order):
            raise UsageError(f'"{self.order}" is not an order', "order", f"use {' or '.join(get_args(Order))}")
        share = self.max_error_share
        if share is not None and not 0 <= _number(share, "max_error_share") <= 1:
            raise UsageError(f"{share} is not a share of requests", "max_error_share", "give 0 to 1; 0.01 is 1 %")

    @property
    def kind(self) -> Literal["closed", "open"]:
        """Whether answers or the clock decide when the next request goes."""
        return "open" if self.rates else "closed"

    @property
    def most_connections(self) -> int:
        """Connections that the largest level may have open at once."""
        return self.connections if self.kind == "open" else max(self.concurrencies)

    @property
    def by_passes(self) -> bool:
        """Whether levels run by passes, where every request counts and one failure voids a level."""
        return self.kind == "closed" and self.count is None and self.duration_s is None

    @property
    def error_share(self) -> float:
        """Share of failed requests that a level survives."""
        if self.max_error_share is not None:
            return float(self.max_error_share)
        return 0.0 if self.by_passes else ALLOWED_ERROR_SHARE

    def requests(self, concurrency: int, rows: int) -> int | None:
        """Requests of a closed level over a dataset of ``rows`` rows; None when only time ends it.

        With passes p > 0 it is ``concurrency * p``. With p = 0, the default, whole rounds: ``floor(rows /
        concurrency) * concurrency``, at least ``concurrency``. Source: ``adjust_dataset`` of the NeMo Agent Toolkit's
        sizing calculator.
        """
        if not self.by_passes:
            return self.count
        return concurrency * (self.passes or max(rows // concurrency, 1))

    def settings(self, rows: int) -> list[dict[str, Any]]:
        """The levels in order, as ``level.json`` and ``run.json`` name them.

        ``passes`` is the number that results, 1 or more, None without passes; ``count`` and ``duration_s`` are as
        asked for.

        Args:
            rows: rows of the dataset.
        """
        asked = {"count": self.count, "duration_s": self.duration_s}
        result: list[dict[str, Any]] = []
        for concurrency in self.concurrencies:
            passes = (self.requests(concurrency, rows) or 0) // concurrency if self.by_passes else None
            result.append(
                {"kind": "closed", "concurrency": concurrency, "think_s": self.think_s, "passes": passes, **asked}
            )
        result += [
            {"kind": "open", "rate": rate, "process": self.process, "passes": None, **asked} for rate in self.rates
        ]
        return result

    def plans(self, rows: int) -> list[dict[str, Any]]:
        """The engine's LevelPlan for each level, without ``visit``, ``dir`` and ``keep_bytes``.

        Each level draws from a seed of its own, so that a setting that comes again is an independent repeat.

        Args:
            rows: rows of the dataset.

        Raises:
            UsageError: there are no rows.
        """
        if rows < 1:
            raise UsageError("there is nothing to send", "load", "give a dataset with at least one row")
        return [
            {
                "seed": _level_seed(self.seed, index),
                "load": load,
                "stop": {
                    "count": count,
                    "duration_ns": None if self.duration_s is None else seconds_to_ns(self.duration_s),
                    "max_error_share": self.error_share,
                    "min_errors": 1 if self.error_share == 0 else _MIN_ERRORS,
                },
                "order": self.order,
            }
            for index, (load, count) in enumerate(self._loads(rows))
        ]

    def _loads(self, rows: int) -> Iterator[tuple[dict[str, Any], int | None]]:
        start = "burst" if self.by_passes else "staggered"
        think_ns = seconds_to_ns(self.think_s)
        for c in self.concurrencies:
            closed = {"concurrency": c, "think_ns": think_ns, "start": start, "stagger_ns": None}
            yield {"closed": closed}, self.requests(c, rows)
        for rate in self.rates:
            bounds = {"connections": self.connections, "queue": self.queue}
            yield {"open": {"rate": rate, "process": self.process, **bounds}}, self.count

    def options(self) -> dict[str, Any]:
        """The options that make this load again, as ``--config`` takes them; those that were not given are left out."""
        closed = self.kind == "closed"
        options: dict[str, Any] = {"concurrencies": list(self.concurrencies)} if closed else {"rates": list(self.rates)}
        if not closed:
            options |= {"process": self.process, "connections": self.connections, "queue": self.queue}
        given = {"passes": self.passes, "count": self.count, "max_error_rate": self.max_error_share}
        times = {
            "duration": self.duration_s,
            "warmup": self.warmup_s,
            "drain": self.drain_s,
            "think": self.think_s or None,
        }
        options |= {name: value for name, value in given.items() if value is not None}
        options |= {name: format_duration(value) for name, value in times.items() if value is not None}
        return {**options, "order": self.order, "seed": self.seed, "workers": self.workers}


def _level_seed(seed: int, index: int) -> int:
    digest = hashlib.sha256(f"{seed}/{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _sequence(values: Any, name: str) -> Sequence[Any]:
    if isinstance(values, str | bytes):
        raise UsageError(f"{name} are given as text", name, f"give numbers; gpusize.units.parse_{name} reads text")
    return tuple(values)


def _whole(value: Any, name: str, low: int, high: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{value!r} is not a whole number", name, "give a whole number") from None
    if isinstance(value, bool) or not low <= number <= high:
        raise UsageError(f"{name} is {value}", name, f"give {low} or more, at most {high}")
    return number


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool | str) or not hasattr(value, "__float__") or not math.isfinite(value):
        raise UsageError(f"{value!r} is not a number", name, "give a finite number")
    return float(value)


def _seconds(value: Any, name: str, *, positive: bool) -> float:
    number = _number(value, name)
    if number < 0 or (positive and number == 0) or number > 10 * 366 * 86400:
        raise UsageError(
            f"{number:g} s cannot be meant", name, f"give {'more than 0' if positive else '0 or more'} seconds"
        )
    return number
