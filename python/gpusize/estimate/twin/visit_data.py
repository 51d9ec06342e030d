"""What one visit of a level showed, as arrays: what the twin is fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from gpusize.analysis.delivery.intended import think_s
from gpusize.analysis.metrics import metric
from gpusize.analysis.server_times import disagreement, says_times
from gpusize.estimate.one_pause import pause_text
from gpusize.estimate.twin.inner_calls import Calls, calls_of, judged_by_call
from gpusize.estimate.twin.server_figures import Served, served
from gpusize.records.calls import KEY
from gpusize.records.schema import SERVER_TIMES

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData
    from gpusize.analysis.slo import Slo
    from gpusize.estimate.question import Question

__all__ = ["Objective", "Observed", "judged", "mean_kept", "observe", "silent", "tightest"]

NS_PER_S: Final = 1e9
FEWEST: Final = 10
"""With fewer requests in its window all of a visit count."""
AT_LOAD: Final = 0.95
"""So many of a closed loop's users in flight, who do not pause, are all of them: between an answer and the next request
is a moment."""
REACHED: Final = 0.75
"""A loop that never had so many of its users in flight was one of fewer; a busy generator alone does not do that."""
AT_ONCE: Final = 0.05
"""Who begins within so much of a residence time begins at the same moment: a server has answered nothing yet."""
BEGINNING: Final = 20
"""Within so many requests of each user they mostly have begun."""
MOST_TOLD: Final = 0.95
"""What a server says of fewer of its requests is not used."""
Ratio = TypeVar("Ratio", float, "NDArray[np.float64]")
ROOM: Final = 0.1
"""Of a mean, or where nobody may miss, this much attainment counts like all the misses that a share allows."""
ASKED: Final = ("ok", "error")
"""Shares that a request keeps by ending ok; any other names the outcome that it must not have."""


def mean_kept(ratio: Ratio) -> Ratio:
    """What stands for the attainment of a mean, whose ratio to its bound this is: 2 less that.

    It is 1 where the mean is its bound, more where it is less, and that of several runs together is the mean of theirs,
    weighted by their requests.
    """
    return 2.0 - ratio


_READ: Final = ("due_ns", "sent_ns", "first_token_ns", "end_ns", "tokens_in", "tokens_out", "tokens_cached", "outcome")


def tightest(shares: Sequence[float], targets: Sequence[float]) -> int:
    """Number of the objective that is nearest to being missed, or missed by most."""
    left = [
        (share - target) / (1 - target if target < 1 else ROOM) for share, target in zip(shares, targets, strict=True)
    ]
    return left.index(min(left))


@dataclass(frozen=True, slots=True)
class Objective:
    """An SLO in the form that the twin knows: the share ``share`` of requests has a value of at most ``bound``.

    Where more is better (``>=``), value and bound are reciprocals; where only the outcome counts, 0 and infinity.
    A mean has no share of its own: its value's mean must be at most the bound. Of several SLOs that a request must
    keep all at once the value is the largest of their values over their bounds.

    Attributes:
        parts: the SLO, or those that must be kept together.
        share: the share that is asked for; None for a mean.
        bound: the largest value that keeps it.
    """

    parts: tuple[Slo, ...]
    share: float | None
    bound: float

    @classmethod
    def of(cls, slo: Slo) -> Objective:
        """The objective of an SLO."""
        if slo.kind == "share":
            share = slo.bound if slo.op in (">=", ">") else 1.0 - slo.bound
            return cls((slo,), share, 1.0)
        bound = slo.bound if slo.op in ("<=", "<") else (1.0 / slo.bound if slo.bound > 0 else float("inf"))
        return cls((slo,), None if slo.kind == "mean" else slo.share, bound)

    @classmethod
    def asked_by(cls, question: Question, nature: str | None = None) -> list[Objective]:
        """Those of a question: one per SLO, or one where the same requests must meet all.

        Args:
            question: whose SLOs they are.
            nature: what a request is, where none has calls of its own: it is then the call that an SLO is about.
        """
        slos = [slo.of_request(nature) for slo in question.slos]
        if question.together and len(slos) > 1:
            return [cls.joint(slos, slos[0].share)]
        return [cls.of(slo) for slo in slos]

    @classmethod
    def joint(cls, slos: Sequence[Slo], share: float) -> Objective:
        """So many of the requests must keep all SLOs at once: goodput."""
        return cls(tuple(slos), share, 1.0)

    @property
    def target(self) -> float:
        """The attainment that keeps it; of a mean 1 (``mean_kept``)."""
        return 1.0 if self.share is None else self.share

    @property
    def of_calls(self) -> bool:
        """Whether it is about the calls inside requests."""
        return any(part.of_calls for part in self.parts)

    @property
    def judged(self) -> str:
        """What it is about, in the plural."""
        return "calls" if self.of_calls else "requests"

    @property
    def text(self) -> str:
        """The SLO, or those that must be kept together."""
        return " and ".join(str(part) for part in self.parts)

    @property
    def columns(self) -> list[str]:
        """The columns of records (or calls) that its values are made from."""
        return [name for part in self.parts for name in part.columns]

    def values(self, records: pl.DataFrame) -> NDArray[np.float64]:
        """The value of each request (or call), shape (n,): infinite where it failed, NaN where it counts nowhere."""
        import numpy as np

        if len(self.parts) == 1:
            return _values(self.parts[0], records)
        each = [_values(part, records) / Objective.of(part).bound for part in self.parts]
        worst: NDArray[np.float64] = np.fmax.reduce(each)
        return worst


def _values(slo: Slo, records: pl.DataFrame) -> NDArray[np.float64]:
    import numpy as np
    import polars as pl

    outcome = records["outcome"]
    ok, void = (outcome == "ok").to_numpy(), (outcome == "cancelled").to_numpy()
    if slo.kind == "share":
        kept = ok if slo.metric in ASKED else (outcome.cast(pl.String) != slo.metric).to_numpy()
        return np.where(void, np.nan, np.where(kept, 0.0, np.inf))
    found = metric(slo.metric)
    raw = records.select(found.raw().cast(pl.Float64).fill_null(float("nan"))).to_series().to_numpy() / found.per_unit
    if slo.op in (">=", ">"):
        with np.errstate(divide="ignore"):
            raw = 1.0 / raw
    return np.where(void, np.nan, np.where(ok, raw, np.inf))


@dataclass(frozen=True, eq=False)
class Observed:
    """One visit of a closed loop. Times in seconds from the level's first due time; NaN where there was none.

    Attributes:
        users: requests in flight (and users who think): those that were asked for; where they were never reached,
            those that there were in the mean.
        gpus: GPUs behind the target.
        think_s: mean pause of a user.
        think: its spread, as ``ClusterLoad`` has it.
        window: start and end of the steady part.
        due_s: of every request, warm-up included, ascending; shape (m,).
        sent_s: likewise; so are the following.
        first_s: first token.
        last_s: end of the answer.
        tokens_in: tokens of the prompt, NaN where nobody said.
        computed: tokens of the prompt that the server computed: all but those that it said it had in its cache. As
            ``tokens_in`` where it said so of few of them.
        tokens_out: tokens of the answer, likewise.
        ok: whether it ended ok.
        steady: whether it ended between the end of the warm-up and the last request sent. What is under way then is
            left
            out without a drain: until then all slots were busy, and what ends while they are is as long as what begins.
        values: one row per objective; shape (k, m).
        settled: whether a steady part was found; else everything counts, its beginning too.
        asked: users that were asked for.
        served: what the server said of itself meanwhile; None where nothing was sampled.
        queue_s: how long each request waited in the server, as that said in its answer, NaN where it did not; shape
            (m,). None where it said so of few of them, or what cannot be true.
        server_s: how long the server served each, from its turn to its end, likewise.
        calls: those of language models inside the requests; None where nobody told them.
        by_call: the same visit as its calls are judged, where an objective is about calls, and there are some.
    """

    users: int
    gpus: int
    think_s: float
    window: tuple[float, float]
    due_s: NDArray[np.float64]
    sent_s: NDArray[np.float64]
    first_s: NDArray[np.float64]
    last_s: NDArray[np.float64]
    tokens_in: NDArray[np.float64]
    computed: NDArray[np.float64]
    tokens_out: NDArray[np.float64]
    ok: NDArray[np.bool_]
    steady: NDArray[np.bool_]
    values: NDArray[np.float64]
    settled: bool = True
    asked: int | None = None
    served: Served | None = None
    queue_s: NDArray[np.float64] | None = None
    server_s: NDArray[np.float64] | None = None
    calls: Calls | None = None
    think: str = "none"
    by_call: Observed | None = None

    @cached_property
    def left_s(self) -> NDArray[np.float64]:
        """When each ended; where nothing says so, when it was due; shape (m,)."""
        import numpy as np

        return np.where(np.isfinite(self.last_s), self.last_s, self.due_s)

    @cached_property
    def by_end(self) -> NDArray[np.intp]:
        """The steady requests in the order in which they ended."""
        import numpy as np

        steady = np.flatnonzero(self.steady)
        return steady[np.argsort(self.left_s[steady], kind="stable")]

    @cached_property
    def residence_s(self) -> float:
        """Mean time from write to end of the steady requests that ended."""
        import numpy as np

        took = (self.last_s - self.sent_s)[self.steady]
        took = took[np.isfinite(took)]
        return float(took.mean()) if took.size else float("nan")

    @property
    def in_flight(self) -> float:
        """Requests in flight: all users', unless they pause (Little 1961)."""
        return self.users if self.think_s <= 0 else min(self.users, self.rate_per_s * self.residence_s)

    @property
    def pause_text(self) -> str:
        """The pause as ``--think`` takes it."""
        return pause_text(self.think_s, equal=self.think == "constant")

    @property
    def rate_per_s(self) -> float:
        """Requests that ended in the steady part per second."""
        length_s = self.window[1] - self.window[0]
        return float(self.steady.sum()) / length_s if length_s > 0 else float("nan")


def observe(level: LevelData, objectives: Sequence[Objective]) -> list[Observed]:
    """The visits of a (pooled) closed-loop level; without those of which no request is steady."""
    found = [_visit(visit, objectives) for visit in level.visits()]
    return [each for each in found if each is not None]


def silent(visits: Sequence[Observed], objectives: Sequence[Objective]) -> Objective | None:
    """One that no request of a single replica tells, such as first tokens of answers in one piece."""
    import numpy as np

    least = min((visit.gpus for visit in visits), default=0)
    alone = [visit for visit in visits if visit.gpus == least]
    for number, objective in enumerate(objectives):
        if all(np.isnan(visit.values[number]).all() for visit in judged(alone, objective)):
            return objective
    return None


def judged(visits: Sequence[Observed], objective: Objective) -> list[Observed]:
    """The visits whose values an objective is about: their requests, or the calls inside them."""
    if not objective.of_calls:
        return list(visits)
    return [visit.by_call for visit in visits if visit.by_call is not None]


def _visit(visit: LevelData, objectives: Sequence[Objective]) -> Observed | None:
    import numpy as np
    import polars as pl

    columns = dict.fromkeys(name for each in objectives if not each.of_calls for name in each.columns)
    said = says_times(visit) and disagreement(visit) is None
    columns |= dict.fromkeys(SERVER_TIMES if said else ())
    columns |= dict.fromkeys(KEY if visit.calls is not None else ())
    records = visit.requests(*columns).select(*{**dict.fromkeys(_READ), **columns}).sort("due_ns").collect()
    if not records.height or not visit.concurrency:
        return None
    zero = int(records["due_ns"][0])

    def seconds(name: str) -> NDArray[np.float64]:
        return (records[name].cast(pl.Float64).fill_null(float("nan")).to_numpy() - zero) / NS_PER_S

    def count(name: str) -> NDArray[np.float64]:
        return records[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()

    ok = (records["outcome"] == "ok").to_numpy()

    def told(name: str) -> NDArray[np.float64] | None:
        found = count(name)
        return found if np.isfinite(found[ok]).sum() > MOST_TOLD * ok.sum() else None

    def told_s(name: str) -> NDArray[np.float64] | None:
        found = told(name) if said else None
        return None if found is None else found / NS_PER_S

    due_s, last_s = seconds("due_ns"), seconds("end_ns")
    settled = any(i["name"] == "warmup" for i in visit.intervals)
    left_s = np.where(np.isfinite(last_s), last_s, due_s)
    window = ((visit.window()[0] - zero) / NS_PER_S, float(due_s[-1]))
    steady = (left_s >= window[0]) & (left_s < window[1])
    if not settled or steady.sum() < FEWEST:
        # Too short for a warm-up. By their ends the long ones would be missing, so all count.
        window, steady, settled = (0.0, float(left_s.max()) + 1e-9), np.ones(due_s.size, dtype=bool), False
    if not steady.any():
        return None
    sent_s, (pause_s, spread_s) = seconds("sent_ns"), think_s(visit.setting) or (0.0, 0.0)
    users = visit.concurrency
    if not pause_s:
        users, window, steady = _at_load(users, sent_s, left_s, window, steady)
    prompts, cached = count("tokens_in"), told("tokens_cached")
    none = np.full(records.height, np.nan)
    values = [none if each.of_calls else each.values(records) for each in objectives]
    observed = Observed(
        users=users,
        asked=visit.concurrency,
        gpus=visit.gpus,
        think_s=pause_s,
        window=window,
        due_s=due_s,
        sent_s=sent_s,
        first_s=seconds("first_token_ns"),
        last_s=last_s,
        tokens_in=prompts,
        # Of a prompt that is there whole, engines compute the last token again.
        computed=prompts if cached is None else np.clip(prompts - cached, np.minimum(1.0, prompts), None),
        tokens_out=count("tokens_out"),
        ok=ok,
        steady=steady,
        values=np.array(values).reshape(len(objectives), records.height),
        settled=settled,
        served=served(visit),
        queue_s=told_s(SERVER_TIMES[0]),
        server_s=told_s(SERVER_TIMES[1]),
        calls=calls_of(visit, records, zero),
        think="none" if not pause_s else "exponential" if spread_s else "constant",
    )
    if not any(each.of_calls for each in objectives):
        return observed
    return replace(observed, by_call=judged_by_call(visit, records, observed, zero, objectives))


def _at_load(
    users: int,
    sent_s: NDArray[np.float64],
    left_s: NDArray[np.float64],
    window: tuple[float, float],
    steady: NDArray[np.bool_],
) -> tuple[int, tuple[float, float], NDArray[np.bool_]]:
    """Users, window and requests of a visit whose users all ask at once, as far as they did.

    Users may begin one after the other for longer than the visit has time for. What is sent meanwhile finds fewer
    before it than it was meant to, and would make the load look easy: then only those count that found all users in
    flight. Where too few did, the visit is one of as many users as were.
    """
    import numpy as np

    told = np.isfinite(sent_s)
    judged = steady & told
    if not judged.any():
        return users, window, steady
    soon_s = AT_ONCE * float(np.median((left_s - sent_s)[judged]))
    order = np.argsort(np.where(told, sent_s, np.inf), kind="stable")
    begun, ended = sent_s[order][: told.sum()], np.sort(left_s, kind="stable")
    there = np.full(sent_s.size, users)
    # Who has begun goes on: that fewer are in flight for a moment is not the beginning. Once all were there, all are.
    for beginning in (order[: BEGINNING * users], order):
        at = sent_s[beginning]
        in_flight = np.searchsorted(begun, at + soon_s, "right") - np.searchsorted(ended, at, "right")
        there[beginning] = np.maximum.accumulate(np.minimum(in_flight, users))
        if there[beginning[-1]] >= users:
            break
    if there[judged].mean() >= AT_LOAD * users:
        return users, window, steady
    full = judged & (there >= AT_LOAD * users)
    if full.sum() >= FEWEST:
        return users, (float(sent_s[full].min()), window[1]), full
    reached = float(there[judged].max()) >= REACHED * users
    return users if reached else max(1, round(float(there[judged].mean()))), window, steady
