"""What a replica that batches does besides: its limits, the price of prompts, chunks, a cache that fills.

The records tell the costs of iterations, but several things move times only a little, and cannot be read off them:
whether a batch is full by its sequences, by its tokens or by both; whether a first token costs more than its prompt;
whether prompts are computed in chunks; whether a cache is reserved or fills token by token. So each is tried, and that
one is taken with which the simulated replica repeats the records best: medians and ninth deciles of runtimes, first
tokens and gaps at the levels near the capacity, each difference over its standard error. The SLO's own quantile has no
say in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.batching_model import Fits, Service
from gpusize.estimate.twin.candidates import batching, served
from gpusize.estimate.twin.common_prefix import common_prefix, without_prefix
from gpusize.estimate.twin.prefill_servers import at_once, decoding_costs, fit_apart, lone_prompts, prompt_noise
from gpusize.estimate.twin.prefix_hits import KEPT, beside_answers, with_hits
from gpusize.estimate.twin.resemblance import Records

if TYPE_CHECKING:
    from gpusize.estimate.twin.attainment_curve import Curve
    from gpusize.estimate.twin.simulate import Batching
    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["Likely", "likest"]

METRICS: Final = ("runtime", "ttft", "itl_mean")
CHUNKS: Final = (256, 512, 1024, 2048, 4096, 8192)
"""Tokens of an iteration that engines are run with."""
HEAVY: Final = 0.2
"""A prompt that takes less of an iteration's base hurts nobody, in one piece or in several."""
REQUESTS: Final = 6_000
"""Of a simulation that is held against a level."""
HELD: Final = (0.7, 0.8, 0.9, 1.0)
"""Sizes of a cache that fills, over what seems to have been held: who had to leave seems to hold something too."""
FEW: Final = 5.0
"""Users who hardly wait for each other."""
ROOMS: Final = (0.9, 1.05, 1.25)
"""Sizes of a cache, over what those hold who seem to be served at once."""
SPREAD: Final = 0.15
"""Standard deviation of the logarithm of prompts' costs, below which they are all as dear."""
LIMIT: Final = 2.0
"""What a limit more has to take off the sum of squares: as much as chance takes off (Akaike 1974)."""
CHANCE: Final = 1.5
"""A sum of squares so many times its quantiles, or less, is chance: quantiles of a level are off together."""
NEARLY: Final = 4.0
"""Likewise where a replica is as near as a model is expected to be: twice what chance makes of a difference."""
PLAINLY: Final = 0.7
"""A further mechanism is taken where so large a part of the sum of squares is left, or less."""
SURELY: Final = 12.0
"""And the sum falls by as much: what chance alone takes off is less."""


@dataclass(frozen=True, slots=True)
class Likely:
    """A replica that repeats the records best, and whether it repeats them nearly, all their times together."""

    replica: Batching
    nearly: bool


def likest(
    visits: Sequence[Observed], curves: Sequence[Curve], capacity: float, *, joint: bool, shared: Fits
) -> Likely | None:
    """The fitted replica that repeats the records best; see ``candidates.batching``.

    Args:
        visits: closed loops without pauses on one replica.
        curves: one per objective.
        capacity: users, near which records are repeated.
        joint: whether one share is asked for of requests that keep all bounds.
        shared: of the same visits.
    """
    records = Records(visits, capacity, METRICS)
    # What the server says of its cache is not guessed besides.
    told = any(bool((visit.computed < visit.tokens_in).any()) for visit in visits)
    common = common_prefix(visits) if records.quantiles and not told else 0
    # Two explanations of cheap prompts at once tell neither.
    found = _likest(visits, shared, records, curves, capacity, joint=joint, hits=not (common or told))
    if common:
        less = without_prefix(visits, common)
        other = _likest(less, Fits(less), records, curves, capacity, joint=joint, hits=True)
        if other is not None and (found is None or other[0] <= found[0] - LIMIT):
            found = other
    if found is None:
        return None
    unlike, best = found
    return Likely(best, nearly=records.quantiles > 0 and unlike <= NEARLY * records.quantiles)


def _likest(
    visits: Sequence[Observed],
    shared: Fits,
    records: Records,
    curves: Sequence[Curve],
    capacity: float,
    *,
    joint: bool,
    hits: bool,
) -> tuple[float, Batching] | None:
    """The one that repeats the records best, and its sum of squares.

    Args:
        visits: as ``likest``, so many tokens of each prompt computed.
        shared: of the same visits.
        records: what is to be repeated.
        curves: one per objective.
        capacity: users.
        joint: as ``likest``.
        hits: whether parts of prompts may be in the cache besides.
    """

    def fitted(alone: bool, chunk: int | None = None) -> Batching | None:  # noqa: FBT001
        return batching(visits, curves, joint=joint, prompts_alone=alone, shared=shared, batched_tokens=chunk)

    whole = {alone: _limited(fitted(alone), shared) for alone in (True, False)}
    if not records.quantiles:
        first = next(iter([*whole[True], *whole[False]]), None)
        return None if first is None else (0.0, first)
    mixed = _least(records, [*whole[True], *whole[False]])
    apart = _least(records, _apart(visits, curves, capacity, joint=joint, shared=shared))
    hit = None if apart is None or not hits else _least(records, _hit(apart[1], shared))
    if apart is not None and hit is not None and hit[0] <= apart[0] - LIMIT:
        apart = hit
    near = apart is not None and apart[0] <= NEARLY * records.quantiles
    if apart is not None and near and (mixed is None or apart[0] <= mixed[0] - SURELY):
        return apart
    if mixed is not None:
        unlike, best = mixed
        alone = best in whole[True]
        spread = _kept(records, unlike, best, shared) if hits else None
        if spread is not None:
            unlike, best = spread[:2]

        def chunked(chunk: int) -> Batching | None:
            other = fitted(alone, chunk)
            return other if spread is None or other is None else _spread(other, shared, spread[2])

        unlike, best = _plainly(records, unlike, best, lambda known: _chunked(known, chunked))
        return _plainly(records, unlike, best, lambda known: _filled(known, shared))
    return None


def _kept(records: Records, unlike: float, known: Batching, shared: Fits) -> tuple[float, Batching, float] | None:
    """The same with prompts that are in the cache in part, and which share still is under load; None if no better."""
    if known.service.noise < SPREAD:
        return None
    best: tuple[float, Batching, float] | None = None
    for kept in KEPT:
        spread = _spread(known, shared, kept)
        sum_of_squares = math.inf if spread is None else _unlike(records, spread)
        if spread is not None and sum_of_squares <= unlike - LIMIT:
            unlike, best = sum_of_squares, (sum_of_squares, spread, kept)
    return best


def _spread(replica: Batching, shared: Fits, kept: float) -> Batching | None:
    return with_hits(replica, *beside_answers(shared.prompts, replica.service), kept=kept)


def _least(records: Records, replicas: Sequence[Batching]) -> tuple[float, Batching] | None:
    """The one that repeats the records best, and its sum; None of none."""
    sums = [_unlike(records, each) for each in replicas]
    return (min(sums), replicas[sums.index(min(sums))]) if sums else None


def _plainly(
    records: Records, unlike: float, known: Batching, others: Callable[[Batching], Sequence[Batching]]
) -> tuple[float, Batching]:
    """The best of the others where it is plainly better, else the known one; nothing is better than chance allows."""
    if unlike <= CHANCE * records.quantiles:
        return unlike, known
    found = _least(records, others(known))
    if found is None or found[0] > min(PLAINLY * unlike, unlike - SURELY):
        return unlike, known
    return found


def _unlike(records: Records, replica: Batching) -> float:
    return records.unlike(replica, REQUESTS) + LIMIT * _limits(replica)


def _limits(replica: Batching) -> int:
    """How many limits it has."""
    return (replica.service.max_batch is not None) + (replica.service.kv_tokens is not None)


def _limited(replica: Batching | None, shared: Fits) -> list[Batching]:
    """The replica, and the same with the other limits that a queue may have stood before.

    Without any, too: where prompts wait for each other, the queue is theirs and not the batch's. What the server itself
    says of its limit is not questioned.
    """
    if replica is None:
        return []
    if shared.told:
        return [replica]
    sequences, tokens = shared.reached
    found = [replica]
    for batch, kv in ((None, None), (sequences, None), (None, tokens), (sequences, tokens)):
        service = replace(replica.service, max_batch=batch, kv_tokens=kv)
        if all(service != each.service for each in found):
            found.append(replace(replica, service=service))
    return found


def _filled(replica: Batching, shared: Fits) -> list[Batching]:
    """The same with a cache that fills token by token, of several sizes."""
    if shared.held is None:
        return []
    service = replica.service
    each = [round(share * shared.held) for share in HELD]
    return [replace(replica, service=replace(service, kv_tokens=tokens, preempts=True)) for tokens in each]


def _apart(
    visits: Sequence[Observed], curves: Sequence[Curve], capacity: float, *, joint: bool, shared: Fits
) -> list[Batching]:
    """Replicas whose prompts are computed by servers of their own, where first tokens do not wait for answers.

    Where answers wait for room in the cache, all loads together do not tell what they cost: so the costs are also taken
    from the loads where nobody waits, and the room from how many are made at once where somebody does.
    """
    import numpy as np

    servers = fit_apart(shared.prompts)
    if servers is None:
        return []
    noise = prompt_noise(shared.prompts, servers)
    found: list[Batching] = []
    few = [each for each in visits if each.users <= max(FEW, capacity / 3)]
    for some in (visits, few):
        decoding = decoding_costs(some)
        if decoding is None:
            continue
        apart = replace(servers, transfer_s=decoding.transfer_s, transfer_per_token_s=decoding.transfer_per_token_s)
        service = Service(
            decoding.base_s, decoding.per_sequence_s, servers.per_prompt_token_s, None, None, noise, apart=apart
        )
        replica = served(service, visits, curves, joint=joint)
        if replica is None:
            continue
        found.append(replica)
        most = at_once(visits, decoding)
        if most is not None:
            tokens = most * float(np.mean(replica.prompt_tokens + 0.5 * replica.output_tokens))
            rooms = [round(share * tokens) for share in ROOMS]
            found += [replace(replica, service=replace(service, kv_tokens=room, preempts=True)) for room in rooms]
    return found


def _hit(replica: Batching, shared: Fits) -> list[Batching]:
    """The same with prompts that are in the cache in part, where those that are as long cost different amounts."""
    service = replica.service
    if service.apart is None or service.noise < SPREAD:
        return []
    found = with_hits(replica, *lone_prompts(shared.prompts, service.apart))
    return [] if found is None else [found]


def _chunked(replica: Batching, fitted: Callable[[int], Batching | None]) -> list[Batching]:
    """The same with prompts in chunks that would make a difference."""
    import numpy as np

    service = replica.service
    long = float(np.quantile(replica.prompt_tokens, 0.9))
    if service.per_prompt_token_s * long < HEAVY * service.base_s:
        return []
    found = []
    for chunk in CHUNKS:
        other = fitted(chunk) if chunk < 4 * long else None
        if other is not None:
            limited = replace(other.service, max_batch=service.max_batch, kv_tokens=service.kv_tokens)
            found.append(replace(other, service=limited))
    return found
