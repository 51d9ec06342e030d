"""How many requests a replica holds at once, where its pages show that it was full, and how many it was seen with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gpusize.estimate.telemetry.lengths import Lengths
    from gpusize.estimate.telemetry.production import Production

__all__ = ["Limit", "limit_of"]

QUEUE: Final = 3.0
"""A queue stands where more wait than so many, and than ``JOINING`` times those who came during one iteration."""
JOINING: Final = 4.0
FEWEST: Final = 3
"""Fewer scrapes that saw a queue say nothing."""
STEADY: Final = 0.93
"""The same number is at work always where the middle of the scrapes is so near the largest."""
FULL: Final = 0.9
"""A cache that is so full while requests wait is what limits them."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What a replica holds.

    Attributes:
        most_seen: requests at work that any scrape saw on one replica.
        batch: most at once; None where it was never seen to be reached.
        cache: requests of usual length that fill its cache; None where nobody tells.
        cache_tokens: the same in tokens.
        reached: whether a queue stood while batch or cache was full: then nothing about it is left open.
        queues: scrapes that saw a queue.
        told: whether the user said the limit of the batch.
    """

    most_seen: float
    batch: int | None
    cache: float | None
    cache_tokens: int | None
    reached: bool
    queues: int
    told: bool = False


def limit_of(production: Production, lengths: Lengths, batch_limit: int | None = None) -> Limit:
    """The limit as the gauges show it.

    Args:
        production: what was scraped.
        lengths: of requests.
        batch_limit: the most at once, as the server was started with; None where the user does not say.
    """
    import numpy as np

    steps = production.steps
    running, waiting = production.running, np.nan_to_num(production.waiting)
    use = steps.gauge("kv_cache_use")[:, 1]
    known = np.isfinite(running)
    most = float(running[known].max()) if known.any() else 0.0
    count = steps.rise("itl_count")
    with np.errstate(divide="ignore", invalid="ignore"):
        step_s = np.where(count > 0, steps.rise("itl_sum") / count, 0.0)
    joining = np.nan_to_num(steps.rise("ttft_count") / steps.length_s * step_s)
    queued = known & (waiting > np.maximum(QUEUE, JOINING * joining))
    cache, tokens = _cache(running, use, lengths)
    queues, told = int(queued.sum()), batch_limit is not None
    known_so_far = Limit(most, batch_limit, cache, tokens, reached=told, queues=queues, told=told)
    if queues < FEWEST:
        return known_so_far
    middle = float(np.median(running[queued]))
    full = cache is not None and float(np.nanmedian(use[queued])) >= FULL
    if full or told:
        return replace(known_so_far, reached=True)
    if middle >= STEADY * most or most - middle <= 1:
        return replace(known_so_far, batch=round(most), reached=True)
    if cache is None and middle >= 0.5 * most:
        # Numbers that vary while others wait: tokens limit it, though no gauge says of how many.
        return replace(known_so_far, cache=middle, cache_tokens=round(middle * _held(lengths)), reached=True)
    return known_so_far


def _cache(running: object, use: object, lengths: Lengths) -> tuple[float | None, int | None]:
    """Requests and tokens that fill the cache, by what share of it how many hold."""
    import numpy as np

    at_work, share = np.asarray(running), np.asarray(use)
    known = np.isfinite(at_work) & np.isfinite(share) & (at_work >= 1) & (share > 0)
    if share[known].sum() < 0.01 * max(1, known.sum()) or known.sum() < FEWEST:
        return None, None
    requests = float(at_work[known].sum() / share[known].sum())
    return requests, max(1, round(requests * _held(lengths)))


def _held(lengths: Lengths) -> float:
    """Mean tokens of a request at work: long answers are there for longer."""
    import numpy as np

    output = lengths.output.astype(np.float64)
    return float(((lengths.prompt + output) * output).sum() / output.sum())
