"""The load under which a target breaks, as far as levels show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpusize.analysis.broken import causes
from gpusize.estimate.search.visits import looks_of

if TYPE_CHECKING:
    from gpusize.estimate.search.visits import Visit

__all__ = ["Wall", "wall_of"]


@dataclass(frozen=True, slots=True)
class Wall:
    """The fewest users under whom the target breaks.

    Attributes:
        users: they.
        failures: levels of so many users that were stopped.
        kept: the most users below them under whom it did not break; 0 for none.
        visits: levels of so many users as ``kept``.
        last: users of the last level.
    """

    users: int
    failures: int
    kept: int
    visits: int
    last: int


def wall_of(visits: Sequence[Visit]) -> Wall | None:
    """The wall, None where nothing broke under its load.

    A single failure of a load that held at another time, or below a load that held, is not taken for one: it has to
    come again. Nor are failures of a target that had itself failed (``gpusize.analysis.broken``).
    """
    looked, looks = looks_of(visits)
    held = [each.users for each in looked if not each.failed]
    broken = [each.users for each, cause in zip(looked, causes(looks), strict=True) if cause == "load"]
    if not broken:
        return None
    users = min(broken)
    kept = max((each for each in held if each < users), default=0)
    return Wall(users, broken.count(users), kept, held.count(kept), visits[-1].users)
