"""What servers say of themselves and records do not: limits, steps without a stream, other clients, time outside.

From the samples and statistics of a visit (docs/reference/samples.md):

- requests worked on while others waited all the time are the most that are worked on at once; of a server with batch
  statistics, and no batches, that is the mean number of busy instances;
- with k sequences at once, a step of a language model's server lasts t0 + t1 k + p P for P prompt tokens taken in with
  it. Mean steps, mean prefills and k (tokens per second times the step: Little 1961) of several loads give the costs
  where no first token was seen, as without streaming.

What servers say against the records is told by ``server_findings``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpusize.estimate.laws.bounded_least_squares import least_squares
from gpusize.records.run_json import nature_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData
    from gpusize.observe.metrics.gpus_and_replicas import Entity

__all__ = ["OTHERS", "Served", "served", "served_limit", "steps"]

FEWEST_READINGS: Final = 3
ALWAYS: Final = 0.9
"""A queue stands where requests wait in so large a share of the readings."""
FULL: Final = 0.9
"""A cache that is so full while requests wait is what limits them."""
STEADY: Final = 0.93
"""The same number is worked on at once where the middle of the readings is so near the largest."""
QUEUED: Final = 0.15
"""A queue stands where requests spend so large a share of their time in it."""
APART: Final = 1.5
"""Loads whose numbers of sequences differ by less tell nothing of what a sequence costs."""
OTHERS: Final = 0.1
"""A server that answered more beyond what was sent, or less, as a share of it, tells of another load."""
_KV: Final = "kv_cache_use"


@dataclass(frozen=True, slots=True)
class Served:
    """What a server said of one visit; None where it did not.

    Attributes:
        at_once: requests worked on while others waited all the time.
        varies: whether that number varies with their lengths, as where they wait for a cache; it is then the middle.
        step_s: mean time from token to token of a sequence.
        sequences: mean number of sequences that got a token in a step.
        prompt_tokens_per_s: prompt tokens taken in.
        prompt_tokens: of a request, mean.
        prefill_s: mean time from a request's turn to its first token.
        answered: requests that ended well in the server.
        request_s: mean time of a request in the server.
        preemptions: requests that lost their place for want of cache.
    """

    at_once: int | None = None
    varies: bool = False
    step_s: float | None = None
    sequences: float | None = None
    prompt_tokens_per_s: float = 0.0
    prompt_tokens: float | None = None
    prefill_s: float | None = None
    answered: float | None = None
    request_s: float | None = None
    preemptions: float = 0.0


def served(visit: LevelData) -> Served | None:
    """What the server said during a visit; None where nothing was sampled, or the API has requests of its own."""
    rows: Sequence[Mapping[str, Any]] = visit.meta.get("server") or ()
    targets = visit.source.get("targets") or ()
    if not rows or any(nature_of(each) is None for each in targets):
        return None
    from gpusize.records.samples import value_of

    answered, prompts = value_of(rows, "requests", "delta"), value_of(rows, "tokens_in", "delta")
    request_s, preemptions = value_of(rows, "request_time"), value_of(rows, "preemptions", "delta") or 0.0
    sent = sum((visit.meta.get("outcomes") or {}).values())
    if answered is not None and abs(answered - sent) > OTHERS * sent + (visit.concurrency or 0):
        # Of other clients too, or of some replicas only: no figures of this load.
        return Served(answered=answered, preemptions=preemptions)
    step_s, tokens = value_of(rows, "token_gap"), value_of(rows, "tokens_out", "rate")
    at_once, varies = _at_once(visit)
    if at_once is None:
        at_once = _by_instances(visit.meta.get("models") or (), value_of(rows, "busy", "rate"))
    return Served(
        at_once=at_once,
        varies=varies,
        step_s=step_s if step_s and tokens else None,
        sequences=step_s * tokens if step_s and tokens else None,
        prompt_tokens_per_s=value_of(rows, "tokens_in", "rate") or 0.0,
        prompt_tokens=prompts / answered if prompts and answered else None,
        prefill_s=value_of(rows, "prefill_time"),
        answered=answered,
        request_s=request_s,
        preemptions=preemptions,
    )


def _at_once(visit: LevelData) -> tuple[int | None, bool]:
    """Requests worked on, of all replicas, where some always waited in the steady window; whether the number varies."""
    if visit.folder is None:
        return None, False
    from gpusize.observe.metrics.gpus_and_replicas import entities_of, known_series
    from gpusize.observe.metrics.known_series import MEANINGS
    from gpusize.records.samples import scan_samples

    found = known_series(scan_samples(visit.folder))
    told = {name: entities_of(_meaning(name, MEANINGS), found) for name in ("running", "waiting", _KV)}
    low, high = visit.window()
    # While a level ends nobody comes any more, and the queue empties.
    window = low, min(high, int(visit.meta.get("close_ns") or high))
    total, varies = 0, False
    for entity in told["running"]:
        each = _of_replica(entity, told["waiting"], told[_KV], window)
        if each is None:
            return None, False
        total, varies = total + each[0], varies or each[1]
    return (total, varies) if total else (None, False)


def _meaning(name: str, meanings: Sequence[Any]) -> Any:
    return next(each for each in meanings if each.name == name)


def _of_replica(
    entity: Entity, waiting: Sequence[Entity], cache: Sequence[Entity], window: tuple[int, int]
) -> tuple[int, bool] | None:
    """(Worked on at once, whether that varies) of one replica; None where no queue stood before it."""
    import numpy as np

    t, running = _inside(entity, window)
    queue = _same(entity, waiting, t)
    if queue is None or t.size < FEWEST_READINGS or (queue >= 1).mean() < ALWAYS:
        return None
    running = running[queue >= 1]
    middle, most = float(np.median(running)), float(running.max())
    used = _same(entity, cache, t)
    full = used is not None and float(np.median(used[queue >= 1])) >= FULL
    steady = middle >= STEADY * most or most - middle <= 1
    return (round(most), False) if steady and not full else (round(middle), True)


def _inside(entity: Entity, window: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    series = entity.above[0]
    kept = (series.t >= window[0]) & (series.t <= window[1])
    return series.t[kept], series.v[kept] * entity.rule.scale


def _same(entity: Entity, others: Sequence[Entity], t: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """Another quantity of the same replica at the same readings; None where it has none."""
    import numpy as np

    for other in others:
        series = other.above[0]
        if (other.source, other.labels) == (entity.source, entity.labels) and np.isin(t, series.t).all():
            return series.v[np.searchsorted(series.t, t)] * other.rule.scale
    return None


def _by_instances(models: Sequence[Mapping[str, Any]], busy: float | None) -> int | None:
    """Instances that were busy, where a queue stood before the one model that ran, and each request ran by itself.

    With batches nobody is told: a request waits for the batch before its own even where no instance is short, so that
    the rate with as many in flight already has all there is to know.
    """
    ran = [each for each in models if each["requests"]]
    if len(ran) != 1 or not busy:
        return None
    (model,) = ran
    if {each["batch_size"] for each in model["batches"]} != {1}:
        return None
    queued = (model["queue_s"] or 0.0) >= QUEUED * (model["request_s"] or math.inf)
    return max(1, round(busy)) if queued else None


def served_limit(told: Sequence[Served | None]) -> tuple[int, bool] | None:
    """The most requests at once that servers showed over several visits, and whether it varies."""
    from statistics import median

    known = [each for each in told if each is not None and each.at_once is not None]
    fixed = [each.at_once or 0 for each in known if not each.varies]
    if fixed:
        # The middle: a reading in which one of them had just ended shows one less.
        return round(median(sorted(fixed)[len(fixed) // 2 :])), False
    return (round(median(each.at_once or 0 for each in known)), True) if known else None


def steps(told: Sequence[Served | None]) -> tuple[float, float, float] | None:
    """t0, t1 and p in seconds by the servers' mean steps; None where loads do not differ enough, or nobody told.

    Relative errors are minimised, with costs of at least 0. A prefill is a step that takes in the request's own prompt
    and those of the requests that came during the step before.
    """
    known = [each for each in told if each is not None and each.step_s and each.sequences]
    sequences = [each.sequences or 0.0 for each in known]
    if len(known) < 2 or max(sequences) < APART * min(sequences):
        return None
    rows, times = [], []
    for each, k in zip(known, sequences, strict=True):
        step_s = each.step_s or 0.0
        rows.append((1.0, k, each.prompt_tokens_per_s * step_s))
        times.append(step_s)
        if each.prefill_s and each.prompt_tokens:
            rows.append((1.0, k, each.prompt_tokens + each.prompt_tokens_per_s * step_s))
            times.append(each.prefill_s)
    found = least_squares(
        [[each / took for each in row] for row, took in zip(rows, times, strict=True)], [1.0] * len(rows)
    )
    if found is None or found[0] + found[1] <= 0:
        return None
    return found[0], found[1], found[2]
