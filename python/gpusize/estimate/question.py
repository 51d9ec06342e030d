"""What every estimate method is asked and what it answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

from gpusize.analysis.slo import Slo
from gpusize.base.errors import UsageError
from gpusize.base.typed import SEQUENCE, TEXT, Kind, check_kinds, or_none

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData

__all__ = [
    "RISK",
    "Estimate",
    "Method",
    "Question",
    "as_bought",
    "as_share",
    "binding",
    "gpus_bought",
    "gpus_text",
    "whole_gpus",
]

SCALING: Final = "scaling"
"""The method that knows of whole hosts itself."""
FUZZ: Final = 1e-9
"""Relative rounding error of the arithmetic; 22.0000000000001 GPUs are 22."""

_Number = TypeVar("_Number", int, float)

SCALE_OUT: Final = "capacity grows in proportion to the number of GPUs"
IN_FLIGHT: Final = (
    "users act as the test did: all at once, each asks again after its answer (and the think time, if any)"
)
RISK: Final = 2.0
"""See ``Question.risk``."""
MOST_RISK: Final = 1000.0
MOST_HEADROOM: Final = 2.0
"""More is taken for a per cent."""
THINKS: Final = ("none", "fixed", "exponential")
ROUTERS: Final = ("least_loaded", "round_robin", "random", "shared")
PROCESSES: Final = ("poisson", "constant")

_REAL: Final[Kind] = ((Real,), "a number")
"""Numbers of numpy, too."""
_WHOLE: Final[Kind] = ((Integral,), "a whole number")
_KINDS: Final[dict[str, Kind]] = {
    **dict.fromkeys(("users", "think_s", "headroom", "risk"), _REAL),
    **dict.fromkeys(("gpus_per_replica", "spare"), _WHOLE),
    **dict.fromkeys(("gpus", "host_gpus"), or_none(_WHOLE)),
    "rate": or_none(_REAL),
    **dict.fromkeys(("think", "router", "process"), TEXT),
    "slos": SEQUENCE,
}


def check_headroom(share: float) -> None:
    """Refuse a headroom that is hardly meant as a share.

    Raises:
        UsageError: it is above `MOST_HEADROOM`.
    """
    if share > MOST_HEADROOM:
        what = f"headroom must be at most {100 * MOST_HEADROOM:g} %, not {100 * share:g} %"
        raise UsageError(what, "headroom", "give it as a share: 0.2 is 20 %")


@dataclass(frozen=True, slots=True)
class Question:
    """How many GPUs do so many users, or so many requests per second, need?

    Attributes:
        users: requests in flight at all times; 0 where a rate is asked for instead.
        slos: all must be met; the one that needs most GPUs decides. A rate may be asked for without any.
        gpus_per_replica: GPUs come in multiples of it.
        gpus: GPUs that were tested, where the levels do not say.
        rate: requests per second; None where users are asked for.
        host_gpus: GPUs of one host, where hosts share nothing and GPUs come in whole hosts; None for one large host.
        think_s: mean pause of a user between an answer and the next request; the twin method takes it.
        think: ``none``, ``fixed`` or ``exponential``; likewise, as all that follow but the last two.
        router: which replica a request goes to: ``least_loaded``, ``round_robin`` or ``random``; ``shared``: all wait
            in one queue, and the first in it goes to the first replica that has a place.
        process: how requests come at a rate: ``poisson`` or ``constant``.
        together: whether one share of the requests must keep all SLOs at once (goodput), that of the first SLO.
        headroom: GPUs on top of what is needed, as a share of it; any method adds them.
        spare: replicas on top of that, as for one that fails.
        token_rate: output tokens per second that ``rate`` was worked out from; None where none were asked for.
        risk: how many times as much a replica too few costs as one too many; the twin's count has the least expected
            cost.

    Raises:
        UsageError: a number is not positive, there is no SLO for users, or users and a rate are asked for at once.
    """

    users: float
    slos: Sequence[Slo]
    gpus_per_replica: int = 1
    gpus: int | None = None
    rate: float | None = None
    host_gpus: int | None = None
    think_s: float = 0.0
    think: str = "none"
    router: str = "least_loaded"
    process: str = "poisson"
    together: bool = False
    headroom: float = 0.0
    spare: int = 0
    token_rate: float | None = None
    risk: float = RISK

    def __post_init__(self) -> None:
        check_kinds(self, _KINDS)
        self._check_loop()
        if self.rate is not None and self.users:
            raise UsageError("users and a rate are both given", None, "ask for one of them")
        asked = ("users", self.users) if self.rate is None else ("the rate", self.rate)
        host = () if self.host_gpus is None else (("GPUs per host", self.host_gpus),)
        for name, value in (asked, ("gpus per replica", self.gpus_per_replica), *host):
            if not (math.isfinite(value) and value > 0):
                raise UsageError(f"{name} must be above 0, not {value:g}", None, "give how many there are")
        if self.host_gpus is not None and self.host_gpus % self.gpus_per_replica:
            raise UsageError(
                f"a host of {self.host_gpus} GPUs does not hold a whole number of replicas of {self.gpus_per_replica}",
                None,
                "give GPUs per host that are a multiple of those per replica",
            )
        if self.gpus is not None and self.gpus < 1:
            raise UsageError(f"tested GPUs must be at least 1, not {self.gpus}", None, "give how many there are")
        if not self.slos and self.rate is None:
            raise UsageError(
                "there is no SLO to size users for",
                "slo",
                "give one, as in --slo 'p95 runtime <= 10s', or ask for a rate, as --rate 40/s, which needs none",
            )

    def _check_loop(self) -> None:
        for name, value, known in (
            ("think", self.think, THINKS),
            ("router", self.router, ROUTERS),
            ("process", self.process, PROCESSES),
        ):
            if value not in known:
                raise UsageError(f"there is no {name} {value!r}", name, f"take one of {', '.join(known)}")
        for name, share in (("think_s", self.think_s), ("headroom", self.headroom), ("spare", float(self.spare))):
            if not (math.isfinite(share) and share >= 0):
                raise UsageError(f"{name} must not be below 0", name, "leave it out for none")
        check_headroom(self.headroom)
        if not (math.isfinite(self.risk) and 0 < self.risk <= MOST_RISK):
            raise UsageError(
                f"risk must be above 0 and at most {MOST_RISK:g}, not {self.risk:g}",
                "risk",
                "say how many times as much a replica too few costs as one too many",
            )
        if (self.think_s > 0) != (self.think != "none"):
            raise UsageError("a pause needs both a length and a kind", "think", "give both, as 2 s and exponential")


@dataclass(frozen=True, slots=True)
class Estimate:
    """An answer, or the reason why there is none.

    Attributes:
        method: name of the method.
        gpus: whole GPUs, a multiple of the replica, at least one replica; None without an answer.
        gpus_raw: the unrounded number.
        gpus_low: fewer are not enough, by the method's uncertainty; None when it says nothing.
        gpus_high: more are not needed, likewise.
        capacity_concurrency: requests in flight that the tested GPUs carry within the SLO.
        tested_gpus: GPUs that were measured.
        users: as asked; None where a rate was.
        outside_tested_range: whether ``capacity_concurrency`` lies outside the tested concurrencies.
        slo: the SLO that decides.
        reason: why there is no answer.
        assumptions: what must hold for the number to hold.
        warnings: what weakens it.
        next_levels: concurrencies that are worth measuring.
        details: figures of the method, for tables and plots.
        per_slo: the answers for each SLO, when there are several.
        rate: requests per second, as asked; None where users were.
        capacity_rate: requests per second that the tested GPUs carry within the SLO, where a rate was asked for.
        next_counts: numbers of GPUs that are worth measuring.
        fallback: of the default: why this method answers and not the twin; None where it does.
        changes: what would change the number.
        think: how the users pause who are asked for: ``none``, ``fixed`` or ``exponential``. ``users`` are people then,
            of whom fewer are in flight; capacities are requests in flight always.
        think_s: their mean pause.
    """

    method: str
    tested_gpus: int
    users: float | None
    slo: str | None = None
    gpus: int | None = None
    gpus_raw: float | None = None
    gpus_low: int | None = None
    gpus_high: int | None = None
    capacity_concurrency: float | None = None
    outside_tested_range: bool = False
    reason: str | None = None
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    next_levels: tuple[int, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    per_slo: tuple[Estimate, ...] = ()
    rate: float | None = None
    capacity_rate: float | None = None
    next_counts: tuple[int, ...] = ()
    fallback: str | None = None
    changes: tuple[str, ...] = ()
    think: str = "none"
    think_s: float = 0.0

    @property
    def measured_pause(self) -> str:
        """The pause of the levels' users as ``--think`` takes it; empty where they had none."""
        return str(self.details.get("measured_pause") or "")

    @property
    def answered(self) -> bool:
        """Whether there is a number."""
        return self.gpus is not None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; a number that is not finite becomes null."""
        found = {name: _plain(getattr(self, name)) for name in self.__dataclass_fields__ if name != "per_slo"}
        if self.per_slo:
            found["per_slo"] = [one.to_json() for one in self.per_slo]
        return found

    def _repr_html_(self) -> str:
        from gpusize.report.notebook.show import estimate_html

        return estimate_html(self)


class Method(Protocol):
    """A way to answer. ``levels`` are pooled, not empty, and what ``needs_counts`` says."""

    @property
    def needs_counts(self) -> Literal["one", "all"]:
        """``one``: closed loops of one number of GPUs, for users. ``all``: all levels, also for a rate."""
        ...

    @property
    def name(self) -> str:
        """What the user calls it."""
        ...

    def answer(self, levels: Sequence[LevelData], question: Question) -> Estimate:
        """Answer for all SLOs of the question. Data never make it raise; what cannot be answered has a reason."""
        ...


def whole_gpus(raw: float, per_replica: int = 1) -> int:
    """Round up to whole replicas, at least one; rounding errors of the arithmetic do not add a replica."""
    replicas = raw / per_replica
    nearest = round(replicas)
    whole = nearest if abs(replicas - nearest) <= FUZZ * max(1.0, replicas) else math.ceil(replicas)
    return max(1, whole) * per_replica


def as_share(kept: float) -> float:
    """An attainment to be shown: that of a mean, too, is at most 1 then."""
    return min(1.0, max(0.0, kept))


def gpus_text(gpus: int) -> str:
    """A number of GPUs in words: ``1 GPU``, ``1,200 GPUs``."""
    return f"{gpus:,} GPU{'' if gpus == 1 else 's'}"


def as_bought(answer: Estimate, question: Question) -> Estimate:
    """The answer with headroom and spare replicas on top of all its counts, in whole hosts; ``gpus_raw`` stays."""
    return _in_whole_hosts(_with_reserve(answer, question), question)


def gpus_bought(gpus: int, question: Question, method: str) -> int:
    """How many are bought where so many carry the load, as ``as_bought`` has them."""
    return _whole_hosts(_reserved(gpus, question), question, method)


def _reserved(gpus: int, question: Question) -> int:
    per = question.gpus_per_replica
    return whole_gpus(gpus * (1 + question.headroom), per) + question.spare * per


def _whole_hosts(gpus: int, question: Question, method: str) -> int:
    host = question.host_gpus
    # Scaling knows of whole hosts itself.
    if host is None or method == SCALING or gpus <= host:
        return gpus
    return math.ceil(gpus / host) * host


def _with_reserve(answer: Estimate, question: Question) -> Estimate:
    """The answer with the question's headroom and spare replicas on top of all its counts."""
    if not (question.headroom or question.spare) or answer.gpus is None:
        return answer

    def more(gpus: int | None) -> int | None:
        return None if gpus is None else _reserved(gpus, question)

    text = f"{gpus_text(answer.gpus)} carry the load; "
    text += " and ".join(
        part
        for part in (
            f"{100 * question.headroom:.4g} % of that is headroom on top" if question.headroom else "",
            f"{question.spare} replica{'' if question.spare == 1 else 's'} to spare" if question.spare else "",
        )
        if part
    )

    raised = _counted_as(answer, more)
    return replace(raised, assumptions=(*answer.assumptions, text))


def _in_whole_hosts(answer: Estimate, question: Question) -> Estimate:
    """The answer in whole hosts where it takes more than one."""
    host = question.host_gpus
    if host is None or answer.gpus is None or answer.method == SCALING:
        return answer
    if answer.gpus <= host:
        return replace(answer, assumptions=(*answer.assumptions, f"all are in one host of {gpus_text(host)}"))

    def whole(gpus: int | None) -> int | None:
        return None if gpus is None else max(1, math.ceil(gpus / host)) * host

    raised = _counted_as(answer, whole)
    text = f"GPUs come in whole hosts of {host}; {gpus_text(answer.gpus)} carry the load"
    return replace(raised, assumptions=(*answer.assumptions, text))


def _counted_as(answer: Estimate, more: Callable[[int | None], int | None]) -> Estimate:
    """The answer with other counts than those that carry the load, which are kept."""

    def raised(one: Estimate) -> Estimate:
        details = {"gpus_without_reserve": one.gpus, **one.details}
        low, high = more(one.gpus_low), more(one.gpus_high)
        return replace(one, gpus=more(one.gpus), gpus_low=low, gpus_high=high, details=details)

    return replace(raised(answer), per_slo=tuple(raised(each) for each in answer.per_slo))


def scaled(users: float, capacity: float, tested_gpus: int) -> float:
    """Unrounded GPUs: users over the capacity of the tested GPUs, times these."""
    return (users / capacity) * tested_gpus


def binding(answers: Sequence[Estimate]) -> Estimate:
    """Join the answers of one method for several SLOs: all must hold, so the largest number of each field decides.

    One SLO without an answer leaves the whole without one, and its reason is named, unless it needs at most as many as
    another one takes. A bound on what is needed at most is known only where every SLO has one; below what one SLO needs
    at least nothing is enough, whatever the others say.
    """
    if len(answers) == 1:
        return answers[0]
    counted = [a for a in answers if a.answered]
    most = max((a.gpus or 0 for a in counted), default=0)
    missing = [a for a in answers if not a.answered and (a.gpus_high is None or a.gpus_high > most)]
    # Of those without a number the one that may need most.
    chosen = max(missing, key=_needs) if missing else max(counted, key=lambda a: (a.gpus or 0, a.gpus_raw or 0.0))
    told = answers if missing else counted
    capacities = [None if a.gpus is None else a.capacity_concurrency for a in told]
    rates = [None if a.gpus is None else a.capacity_rate for a in told]
    return replace(
        chosen,
        reason=_reasons(chosen, answers) if missing else None,
        gpus_raw=_most([a.gpus_raw for a in told]),
        gpus_low=max((a.gpus_low for a in answers if a.gpus_low is not None), default=None),
        gpus_high=_most([a.gpus_high for a in answers]),
        capacity_concurrency=None if None in capacities else min(each for each in capacities if each is not None),
        capacity_rate=None if None in rates else min(each for each in rates if each is not None),
        outside_tested_range=any(a.outside_tested_range for a in told),
        assumptions=tuple(dict.fromkeys(text for a in answers for text in a.assumptions)),
        warnings=_warnings(answers),
        next_levels=tuple(sorted({level for a in answers for level in a.next_levels})),
        next_counts=tuple(sorted({count for a in answers for count in a.next_counts})),
        per_slo=tuple(answers),
    )


def _needs(answer: Estimate) -> tuple[float, float]:
    """How many GPUs an SLO may need by what is known; for ordering."""
    return answer.gpus_low or 0.0, math.inf if answer.gpus_high is None else answer.gpus_high


def _most(values: Sequence[_Number | None]) -> _Number | None:
    known = [each for each in values if each is not None]
    return max(known) if len(known) == len(values) else None


def _reasons(chosen: Estimate, answers: Sequence[Estimate]) -> str:
    """Why there is no number for all, and what single SLOs need by themselves."""
    alone = [f"{a.slo} alone takes {gpus_text(a.gpus)}" for a in answers if a.gpus is not None]
    return "; ".join([f"{chosen.slo}: {chosen.reason}", *alone])


def _warnings(answers: Sequence[Estimate]) -> tuple[str, ...]:
    """Each under the SLO that it is about, unless it is about all."""
    common = set(answers[0].warnings).intersection(*(a.warnings for a in answers))
    told = (text if text in common else f"{a.slo}: {text}" for a in answers for text in a.warnings)
    return tuple(dict.fromkeys(told))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value
