"""What the attempts in a folder say of each workload: created, refused, not answered; and what is left to send."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.cluster.access.patience import PUT_OFF
from gpusize.cluster.folder import scan_table
from gpusize.cluster.tables import ATTEMPTS

if TYPE_CHECKING:
    import polars as pl

__all__ = ["RETRIED", "Outcomes", "Tried", "read_outcomes"]

RETRIED: Final = PUT_OFF | {0}
"""Statuses after which a request is sent again: put off, failed at, or (0) not answered."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of an object so far.

    Attributes:
        attempts: how many there were.
        created: whether it is in the cluster, or was.
        status: of the last answer; 0 without one.
        reason: of it.
    """

    attempts: int
    created: bool
    status: int
    reason: str

    def is_over(self, retries: int) -> bool:
        """Whether it is sent no more: it is there, was refused, or was put off too often.

        What was not answered is never over: it may have been created.
        """
        if self.created or self.status not in RETRIED:
            return True
        return self.status != 0 and self.attempts > retries


class Outcomes:
    """The attempts of a folder, by workload and object.

    Args:
        frame: rows of `attempts_schema`.
        objects: how many objects a workload has.
    """

    def __init__(self, frame: pl.DataFrame, objects: int) -> None:
        import polars as pl

        self._objects = objects
        self.tried: dict[int, dict[tuple[str, str], Tried]] = {}
        self.first_sent_ns: dict[int, int] = {}
        by_object = (
            frame.sort("attempt", "sent_ns")
            .group_by("index", "kind", "name", maintain_order=True)
            .agg(
                pl.col("attempt").max() + 1,
                pl.col("uid").is_not_null().any().alias("created"),
                pl.col("status").last(),
                pl.col("reason").last(),
                pl.col("sent_ns").min(),
            )
        )
        for index, kind, name, attempts, created, status, reason, sent_ns in by_object.iter_rows():
            tried = Tried(attempts, created, status, reason or "")
            self.tried.setdefault(index, {})[kind, name] = tried
            self.first_sent_ns[index] = min(sent_ns, self.first_sent_ns.get(index, sent_ns))

    def is_created(self, index: int) -> bool:
        """Whether all objects of a workload were."""
        tried = self.tried.get(index, {})
        return len(tried) == self._objects and all(each.created for each in tried.values())

    def is_over(self, index: int, retries: int) -> bool:
        """Whether nothing of a workload is sent any more."""
        tried = self.tried.get(index, {}).values()
        refused = any(not each.created and each.is_over(retries) for each in tried)
        return refused or self.is_created(index)

    def of(self, index: int) -> Mapping[tuple[str, str], Tried]:
        """What became of a workload's objects, by kind and name."""
        return self.tried.get(index, {})

    def counts(self, total: int) -> dict[str, Any]:
        """Workloads by what became of them: ``created``, ``failed`` by reason, ``unanswered``, ``not_sent``."""
        failed: dict[str, int] = {}
        created = unanswered = partly = 0
        for index, tried in self.tried.items():
            left = [each for each in tried.values() if not each.created]
            if self.is_created(index):
                created += 1
            elif not left:
                partly += 1
            elif left[0].status == 0:
                unanswered += 1
            else:
                reason = f"{left[0].status} {left[0].reason}".strip()
                failed[reason] = failed.get(reason, 0) + 1
        return {
            "workloads": total,
            "created": created,
            "failed": dict(sorted(failed.items())),
            "unanswered": unanswered,
            "partly": partly,
            "not_sent": total - len(self.tried),
        }


def read_outcomes(folder: Path, objects: int) -> Outcomes:
    """What the attempts in a folder say.

    Args:
        folder: of the test.
        objects: how many objects a workload has.

    Raises:
        StoreError: a part cannot be read.
    """
    import polars as pl

    columns = ("index", "kind", "name", "attempt", "uid", "status", "reason", "sent_ns")
    return Outcomes(scan_table(folder, ATTEMPTS).select(pl.col(columns)).collect(), objects)
