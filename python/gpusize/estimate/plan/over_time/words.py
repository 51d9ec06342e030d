"""What is said of a trace and of what replicas carry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.plan.over_time.capacity import Capacities
    from gpusize.estimate.plan.over_time.policies import ScalingRules
    from gpusize.estimate.twin.simulate import Batching

__all__ = ["bounds", "too_much", "unlike"]

OTHER_LENGTHS: Final = 2.0
"""Requests of a trace that are so many times as long as the measured ones are warned of."""


def too_much(carried: Capacities, most: float, limit: int | None) -> str:
    """Why there is no answer where nothing carries the largest window."""
    if carried.most <= 0:
        return "one replica carries next to no requests within the SLOs when they come at random"
    if limit is not None:
        return (
            f"the largest window has {most:.4g} requests/s, and no number of replicas carries more than "
            f"{carried.most:.4g} within the SLOs: they slow each other down"
        )
    return f"no number of replicas was found that carries the {most:.4g} requests/s of the largest window"


def bounds(carried: Capacities, rates: NDArray[np.float64], rules: ScalingRules) -> list[str]:
    """What is said of windows that need more than there may be."""
    if rules.max_replicas is None:
        return []
    more = int((carried.needed(rates) > rules.max_replicas).sum())
    if not more:
        return []
    windows = "1 window needs" if more == 1 else f"{more} windows need"
    return [f"{windows} more than the {rules.max_replicas} replicas that there may be"]


def unlike(measured: Batching, tokens: NDArray[np.uint32]) -> list[str]:
    """What is said of requests that are not as long as the measured ones."""
    found = []
    for name, own, asked in (
        ("prompts", measured.prompt_tokens, tokens[0]),
        ("answers", measured.output_tokens, tokens[1]),
    ):
        before, after = float(own.mean()), float(asked.mean())
        if max(before, after) > OTHER_LENGTHS * min(before, after):
            found.append(
                f"the trace's {name} have {after:.4g} tokens on average and the measured ones {before:.4g}: "
                "what they cost is carried on from the measured lengths; measure with lengths like the trace's"
            )
    return found
