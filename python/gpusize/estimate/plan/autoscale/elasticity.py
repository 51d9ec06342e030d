"""How well replicas followed what was needed: too few, too many, and for how long.

Source: N. Herbst et al., "Ready for Rain? A View from SPEC Research on the Future of Cloud Metrics", SPEC-RG-2016-01:
provisioning accuracy, time share and instability. Accuracies are given in replicas times time too, so that they add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Elasticity", "elasticity"]


@dataclass(frozen=True, slots=True)
class Elasticity:
    """Replicas against those that were needed.

    Attributes:
        under_s: replicas times seconds that were missing.
        over_s: replicas times seconds that were there and not needed.
        under_share: of the time, in which some were missing.
        over_share: of the time, in which more were there than needed.
        under: missing replicas over the needed ones, averaged over the time.
        over: superfluous replicas over the needed ones, averaged over the time; over one where none is needed.
        turns: how often the replicas began to fall after they had risen, or the other way round.
    """

    under_s: float
    over_s: float
    under_share: float
    over_share: float
    under: float
    over: float
    turns: int


def elasticity(
    needed: tuple[NDArray[np.float64], NDArray[np.int64]],
    ready: tuple[NDArray[np.float64], NDArray[np.int64]],
    duration_s: float,
) -> Elasticity:
    """Hold what was ready against what was needed.

    Args:
        needed: from when on (s, ascending from 0) how many replicas were needed; shape (n,) each.
        ready: from when on how many took requests; shape (m,) each.
        duration_s: until when.
    """
    import numpy as np

    at = np.unique(np.concatenate([needed[0], ready[0]]))
    at = at[at < duration_s]
    length = np.diff(np.append(at, duration_s))
    wanted, there = (each[1][np.searchsorted(each[0], at, "right") - 1] for each in (needed, ready))
    missing, spare = np.maximum(wanted - there, 0), np.maximum(there - wanted, 0)
    of = np.maximum(wanted, 1)
    steps = np.sign(np.diff(ready[1][np.append(True, np.diff(ready[1]) != 0)]))
    return Elasticity(
        under_s=float((missing * length).sum()),
        over_s=float((spare * length).sum()),
        under_share=float(length[missing > 0].sum() / duration_s),
        over_share=float(length[spare > 0].sum() / duration_s),
        under=float((missing / of * length).sum() / duration_s),
        over=float((spare / of * length).sum() / duration_s),
        turns=int((np.diff(steps) != 0).sum()),
    )
