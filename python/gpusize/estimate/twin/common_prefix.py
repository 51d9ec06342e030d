"""How many tokens of all prompts cost nothing, where nobody says so.

A system prompt that all requests begin with is computed once and then found in the cache. A prompt of P tokens that has
the server to itself then takes p (P - c) beside its iteration: a line that does not begin at 0. So c follows from the
first tokens of requests that had nobody beside them, if their prompts differ in length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.batching_model import single_users
from gpusize.estimate.twin.least_squares import inside

if TYPE_CHECKING:
    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["common_prefix", "without_prefix"]

FEWEST: Final = 15
"""Requests that were alone, without which nothing is told."""
SURELY: Final = 3.0
"""Standard errors by which the line has to begin below 0."""
SHORTEST: Final = 0.02
"""Quantile of the prompts that may be no longer than what all have in common."""
LEAST: Final = 0.02
"""A smaller part of the median prompt changes nothing."""


def common_prefix(visits: Sequence[Observed]) -> int:
    """Tokens that all prompts have in the cache; 0 where nothing tells.

    Args:
        visits: closed loops without pauses on one replica.
    """
    import numpy as np

    alone = [each for each in single_users(visits) if each[0].size]
    if sum(prompts.size for _, _, prompts in alone) < FEWEST:
        return 0
    tokens = np.concatenate([prompts for _, _, prompts in alone])
    waits = np.concatenate([wait_s - np.median(pace_s) for wait_s, pace_s, _ in alone])
    if float(np.ptp(tokens)) == 0:
        return 0
    # What tokens cost is spread by a factor, so long prompts say less of where the line begins.
    weights = 1.0 / (tokens + np.median(tokens))
    rows, took = np.stack([np.ones(tokens.size), tokens], axis=1) * weights[:, None], waits * weights
    found, *_ = np.linalg.lstsq(rows, took, rcond=None)
    kept = inside(took - rows @ found)
    found, *_ = np.linalg.lstsq(rows[kept], took[kept], rcond=None)
    begin_s, per_token_s = (float(each) for each in found)
    if per_token_s <= 0 or begin_s >= 0:
        return 0
    off = (took - rows @ found)[kept]
    covariance = np.linalg.inv(rows[kept].T @ rows[kept]) * float(off @ off) / max(1, off.size - 2)
    if begin_s > -SURELY * float(np.sqrt(covariance[0, 0])):
        return 0
    common = min(-begin_s / per_token_s, float(np.quantile(tokens, SHORTEST)) - 1)
    return round(common) if common >= LEAST * float(np.median(tokens)) else 0


def without_prefix(visits: Sequence[Observed], common: int) -> list[Observed]:
    """The visits with so many tokens less to compute of each prompt, and one at least."""
    import numpy as np

    return [
        replace(each, computed=np.maximum(np.minimum(1.0, each.computed), each.computed - common)) for each in visits
    ]
