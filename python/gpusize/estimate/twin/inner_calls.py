"""The requests that GPUs get: a workflow's calls of its language model, or the requests of users who pause.

A request that calls a model several times is at the GPUs for a part of its time only, and a router sees its calls, each
by itself. So does a user who pauses. How many are at the GPUs then changes all the time, and tells what a number of
them does to each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gpusize.records.calls import WITHIN_VISIT, judged_calls

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData
    from gpusize.estimate.twin.visit_data import Objective, Observed

__all__ = ["Calls", "Timeline", "calls_of", "judged_by_call", "own_calls"]

OVERLAP: Final = 0.02
"""So large a share of calls that begin before another of their request has ended, and they are not one by one."""
NS_PER_S: Final = 1e9
MOST_TIMED: Final = 0.95
"""With fewer of a visit's calls none of them tell how many there were at once."""
SAME_CLOCK: Final = 0
"""The clock domain of calls that the generator stamped."""


@dataclass(frozen=True, eq=False)
class Calls:
    """Calls of a visit, by the request that made them and when they began. Times as ``Observed`` has them.

    Attributes:
        of: the place of its request, ascending; shape (n,).
        begin_s: when it was sent; likewise.
        end_s: when it was answered; likewise.
    """

    of: NDArray[np.intp]
    begin_s: NDArray[np.float64]
    end_s: NDArray[np.float64]

    @property
    def one_by_one(self) -> bool:
        """Whether a request's calls follow each other."""
        same = self.of[1:] == self.of[:-1]
        before = self.begin_s[1:] < self.end_s[:-1]
        return bool((same & before).sum() <= OVERLAP * max(1, self.of.size))

    def cut(self, there: NDArray[np.bool_]) -> Calls:
        """Those of the requests that are still there."""
        import numpy as np

        kept = there[self.of]
        places = np.cumsum(there) - 1
        return Calls(places[self.of[kept]], self.begin_s[kept], self.end_s[kept])

    def as_visit(self, visit: Observed) -> Observed:
        """The visit as if each call were a request of it: as many users as there were calls at once, at most."""
        import numpy as np

        order = np.argsort(self.begin_s, kind="stable")
        begin_s, end_s = self.begin_s[order], self.end_s[order]
        none = np.full(order.size, np.nan)
        steady = (end_s >= visit.window[0]) & (end_s < visit.window[1])
        ok = np.ones(order.size, dtype=bool)
        arrays: dict[str, Any] = dict.fromkeys(("first_s", "tokens_in", "computed", "tokens_out"), none)
        return replace(
            visit,
            users=int(Timeline.of(self).active.max()),
            think_s=0.0,
            due_s=begin_s,
            sent_s=begin_s,
            last_s=end_s,
            ok=ok,
            steady=steady,
            values=np.empty((0, order.size)),
            queue_s=None,
            server_s=None,
            calls=None,
            by_call=None,
            **arrays,
        )


@dataclass(frozen=True, eq=False)
class Timeline:
    """How many calls there were, between the moments when one began or ended.

    Attributes:
        at_s: the moments, ascending; shape (p + 1,).
        active: calls from one to the next; shape (p,).
        ended: calls at each moment at which one ended, itself included; shape (n,).
    """

    at_s: NDArray[np.float64]
    active: NDArray[np.intp]
    ended: NDArray[np.intp]

    @classmethod
    def of(cls, calls: Calls) -> Timeline:
        """Of the calls of one visit; at the same moment one ends before another begins."""
        import numpy as np

        at_s = np.concatenate([calls.begin_s, calls.end_s])
        step = np.repeat([1, -1], calls.of.size)
        order = np.lexsort((step, at_s))
        active = np.cumsum(step[order])
        return cls(at_s[order], active[:-1], active[step[order] < 0] + 1)


def own_calls(visit: Observed) -> Calls | None:
    """Each request that ended ok as its only call: a refusal is no work; None where none did."""
    import numpy as np

    ended = visit.ok & np.isfinite(visit.sent_s) & np.isfinite(visit.last_s) & (visit.last_s > visit.sent_s)
    if not ended.any():
        return None
    return Calls(np.flatnonzero(ended), visit.sent_s[ended], visit.last_s[ended])


def calls_of(visit: LevelData, records: pl.DataFrame, zero_ns: int) -> Calls | None:
    """The calls of language models inside a visit's requests that ended ok; None where times of some are not known.

    Args:
        visit: not pooled.
        records: its requests in the order of ``Observed``, with the columns of ``records.calls.WITHIN_VISIT``.
        zero_ns: what times count from.
    """
    import polars as pl

    if visit.calls is None:
        return None
    key = WITHIN_VISIT
    places = records.lazy().select(*key).with_row_index("of")
    every = visit.calls.filter(pl.col("outcome") == "ok").select(*key, "start_ns", "end_ns", "domain")
    timed = (pl.col("end_ns") > pl.col("start_ns")) & (pl.col("domain") == SAME_CLOCK)
    counted = every.select(pl.len().alias("all"), timed.fill_null(value=False).sum().alias("timed")).collect()
    if counted["timed"][0] < max(1, MOST_TIMED * counted["all"][0]):
        return None
    found = every.filter(timed).join(places, on=key).sort("of", "start_ns").collect()
    if not found.height:
        return None
    begin_s, end_s = ((found[name].cast(pl.Float64).to_numpy() - zero_ns) / NS_PER_S for name in ("start_ns", "end_ns"))
    return Calls(found["of"].to_numpy().astype(int), begin_s, end_s)


def judged_by_call(
    visit: LevelData, records: pl.DataFrame, observed: Observed, zero_ns: int, objectives: Sequence[Objective]
) -> Observed | None:
    """A visit as its calls are judged: each stands where a request does, under as many users; None without calls.

    A request that failed although none of its calls did is one more. Those without times of the generator's clock are
    there from when their request was due until it ended.

    Args:
        visit: not pooled.
        records: its requests in the order of ``Observed``, with the columns of ``records.calls.WITHIN_VISIT``.
        observed: its requests.
        zero_ns: what times count from.
        objectives: of those on calls the values are told.
    """
    import numpy as np
    import polars as pl

    if visit.calls is None:
        # Where no request ended well each is a miss, as one is that failed although none of its calls did.
        missed = np.where((records["outcome"] == "cancelled").to_numpy(), np.nan, np.inf)
        return None if observed.ok.any() else replace(observed, values=np.tile(missed, (len(objectives), 1)))
    places = records.lazy().select(*WITHIN_VISIT).with_row_index("of")
    found = judged_calls(visit.calls, records.lazy()).join(places, on=WITHIN_VISIT).collect()
    if not found.height:
        return None
    of = found["of"].to_numpy().astype(int)
    mine = (found["domain"] == SAME_CLOCK).fill_null(value=False).to_numpy()
    told = [(found[name].cast(pl.Float64).to_numpy() - zero_ns) / NS_PER_S for name in ("start_ns", "end_ns")]
    own = observed.due_s[of], observed.left_s[of]
    begin_s, end_s = (
        np.where(mine & np.isfinite(call), call, request) for call, request in zip(told, own, strict=True)
    )
    none = np.full(of.size, np.nan)
    values = [each.values(found) if each.of_calls else none for each in objectives]
    order = np.argsort(begin_s, kind="stable")
    arrays: dict[str, Any] = dict.fromkeys(("first_s", "tokens_in", "computed", "tokens_out"), none)
    return replace(
        observed,
        due_s=begin_s[order],
        sent_s=begin_s[order],
        last_s=end_s[order],
        ok=(found["outcome"] == "ok").to_numpy()[order],
        steady=observed.steady[of][order],
        values=np.array(values)[:, order],
        queue_s=None,
        server_s=None,
        calls=None,
        **arrays,
    )
