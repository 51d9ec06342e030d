"""How replicas may differ from the one that was fitted: by its error, and by a limit that nobody has seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.flow_model import Flow
from gpusize.estimate.twin.rates import REACH
from gpusize.estimate.twin.simulate import Batching

if TYPE_CHECKING:
    from gpusize.estimate.twin.simulate import Replica

__all__ = ["AS_FITTED", "Doubt", "no_more_than_seen", "seen"]


@dataclass(frozen=True, slots=True)
class Doubt:
    """How the replicas of one simulation differ from the fitted one.

    Attributes:
        slower: factor on all their times.
        limited: whether they work on no more requests at once than were seen at once, where no limit was reached.
        seed: key of all draws; None for the one of the trace.
    """

    slower: float = 1.0
    limited: bool = False
    seed: int | None = None


AS_FITTED: Final = Doubt()


def seen(replica: Replica) -> tuple[int, bool] | None:
    """The most requests that a replica was seen to work on at once, and whether that surely is its limit.

    None where the replica has a limit that was fitted, or nobody looked.
    """
    if isinstance(replica, Batching):
        service = replica.service
        known = service.max_batch is not None or service.kv_tokens is not None
        return None if known else service.seen
    if isinstance(replica, Flow) and replica.max_active is None:
        # Rates are carried on beyond the largest load.
        return max(1, round(replica.rates.size / REACH)), False
    return None


def no_more_than_seen(replica: Replica) -> Replica | None:
    """The replica if what it was seen to work on at once were its limit; None where it has one."""
    known = seen(replica)
    if known is None:
        return None
    if isinstance(replica, Batching):
        return replace(replica, service=replace(replica.service, max_batch=known[0]))
    return replace(replica, max_active=known[0]) if isinstance(replica, Flow) else None
