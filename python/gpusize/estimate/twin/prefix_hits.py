"""Prompts of which a part is in the cache, where nobody says how large it is.

A prompt that was computed before, or begins as one that was, costs only what is left of it. Then prompts that are as
long cost different amounts: some all, some a part, and a spread about a mean does not say which. The first tokens of
requests that had nobody beside them do, one by one. So the cost of each prompt of the fitted replica is spread as that
of one of those that was about as long: its cached tokens are drawn, beside the measured pairs of prompts and answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.batching_model import Service
    from gpusize.estimate.twin.prefill_servers import Prompts
    from gpusize.estimate.twin.simulate import Batching

__all__ = ["KEPT", "beside_answers", "with_hits"]

FEWEST: Final = 30
"""Fewer prompts say nothing of how costs are spread."""
DEAREST: Final = 0.98
"""The cost per token of a prompt that was not in the cache: this quantile of all."""
NEAR: Final = 0.03
"""A prompt's cost is taken from one among so many, of all, that are as long as it."""
KEPT: Final = (1.0, 0.5)
"""Shares of what single users find in the cache that are still there under load, when others need its room."""
FEW: Final = 5
"""Users who leave each other alone often enough."""
ENOUGH: Final = 100
"""So many prompts of single users say it better than more of several: cheap ones are alone more often."""


def beside_answers(prompts: Sequence[Prompts], service: Service) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Prompts without others where iterations make answers as well, and what each cost beside them, s; shapes (n,).

    Who comes while answers are under way waits for the end of an iteration, half of one in the mean.
    """
    import numpy as np

    single = [each for each in prompts if each.users == 1]
    enough = sum(int(each.lone.sum()) for each in single) >= ENOUGH
    tokens, costs = [np.empty(0)], [np.empty(0)]
    for each in single if enough else [each for each in prompts if each.users <= FEW]:
        wait_s, running = each.wait_s[each.lone], each.running[each.lone]
        one_s = service.base_s + service.per_sequence_s * running
        costs.append(wait_s - service.per_sequence_s - one_s * np.where(running > 0, 1.5, 1.0))
        tokens.append(each.tokens[each.lone])
    return np.concatenate(tokens), np.concatenate(costs)


def with_hits(
    replica: Batching,
    tokens: NDArray[np.float64],
    cost_s: NDArray[np.float64],
    *,
    kept: float = 1.0,
    seed: int = 1,
) -> Batching | None:
    """The replica with prompts that cost what the given ones did, in place of a spread about a mean; None of too few.

    Args:
        replica: fitted; the mean cost of its prompts is right.
        tokens: of prompts that had nobody beside them, shape (n,).
        cost_s: what each cost beside what it would have without tokens, s; shape (n,).
        kept: share of the requests that still find something in the cache, of those that would if they were alone.
        seed: of the draws.
    """
    import numpy as np

    told = (tokens > 0) & np.isfinite(cost_s)
    tokens, cost_s = tokens[told], np.maximum(cost_s[told], 0.0)
    if tokens.size < FEWEST or cost_s.sum() <= 0:
        return None
    order = np.argsort(tokens, kind="stable")
    tokens, each_s = tokens[order], (cost_s / np.maximum(tokens, 1.0))[order]
    # What an iteration costs is not known to the last: of short prompts that is much of a token.
    dearest_s = float(np.quantile(each_s[tokens.size // 2 :], DEAREST))
    if dearest_s <= 0:
        return None
    known = 0 if replica.cached_tokens is None else replica.cached_tokens
    prompts = (replica.prompt_tokens - known).astype(float)
    reach = max(2, round(NEAR * tokens.size))
    draws = np.random.default_rng(seed).integers(-reach, reach + 1, prompts.size)
    # Prompts that are all as long are found anywhere among their equals, not only at their beginning.
    low, high = (np.searchsorted(tokens, prompts, side) for side in ("left", "right"))
    place = low + np.floor(np.random.default_rng(seed + 1).random(prompts.size) * (high - low + 1)).astype(int)
    like = np.clip(place + draws, 0, tokens.size - 1)
    found = np.floor(prompts * (1.0 - np.minimum(each_s[like] / dearest_s, 1.0)))
    found = np.where(np.random.default_rng(seed + 2).random(prompts.size) < kept, np.clip(found, 0, prompts - 1), 0.0)
    # All together they cost what they did: by all loads, not by those that were alone.
    price_s = replica.service.per_prompt_token_s * prompts.sum() / (prompts - found).sum()
    service = replace(replica.service, per_prompt_token_s=float(price_s), noise=0.0)
    return replace(replica, service=service, cached_tokens=(known + found).astype(np.uint32))
