"""A piece of a long visit, as long as a model of the replica needs: what it costs does not grow with the run.

A fit knows its few numbers to a hundredth from ten thousand requests, and what it gets wrong of a server does not
become less with a million. Whether it repeats the records is asked with the errors of about as many, too: where no
difference is chance any more, no model of a real server would be near enough. The attainment itself is always counted
over all requests (``attainment_curve``).
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["REQUESTS", "excerpt"]

REQUESTS: Final = 20_000
ROUNDS: Final = 100
"""At least so many for each user, so that few stand at the beginning, where those before them are missing."""


def excerpt(visit: Observed) -> Observed:
    """The end of a visit that has more requests than that; the same where it has not.

    Who was under way at its beginning belongs to it, with its true times. The steady part begins where the visit's
    does, or with the piece.
    """
    import numpy as np

    most = max(REQUESTS, ROUNDS * visit.users)
    if visit.due_s.size <= most:
        return visit
    begin_s = float(visit.due_s[-most])
    there = visit.left_s >= begin_s
    each = {field.name: getattr(visit, field.name) for field in fields(visit)}
    arrays: dict[str, Any] = {name: value[..., there] for name, value in each.items() if isinstance(value, np.ndarray)}
    calls = None if visit.calls is None else visit.calls.cut(there)
    return replace(visit, window=(max(visit.window[0], begin_s), visit.window[1]), calls=calls, **arrays)
