"""Names of dataset rows: unique, and kept apart when rows repeat.

Copies are named as the sizing calculator of the NeMo Agent Toolkit names them (its ``adjust_dataset``), so that results
compare item by item.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["repeated_ids", "unique_ids"]

_COPY_SUFFIX: Final = re.compile(r"(?:_rep[0-9]+)+\Z")


def unique_ids(wanted: Sequence[str]) -> list[str]:
    """``wanted`` with ``_row<number>`` added where an id is taken already."""
    taken = set(wanted)
    seen: set[str] = set()
    ids = []
    for number, name in enumerate(wanted):
        own = name
        if own in seen:
            own = f"{name}_row{number}"
            while own in taken or own in seen:
                own += "x"
        seen.add(own)
        ids.append(own)
    return ids


def repeated_ids(ids: Sequence[str], rows: Iterable[int]) -> list[str]:
    """One id for each request, given the row that it sends.

    The first use of a row keeps the row's id, use k (from 1) after it is ``<id>_rep<k>``. When any row repeats, a
    ``_rep<k>`` that an id brought along is stripped first, so that no copy is named like another row.
    """
    used = list(rows)
    counts = Counter(used)
    names = list(ids)
    if any(count > 1 for count in counts.values()):
        stripped = [_COPY_SUFFIX.sub("", name) for name in ids]
        names = unique_ids(stripped)
    seen: Counter[int] = Counter()
    result = []
    for row in used:
        copy = seen[row]
        seen[row] += 1
        result.append(f"{names[row]}_rep{copy}" if copy else names[row])
    return result
