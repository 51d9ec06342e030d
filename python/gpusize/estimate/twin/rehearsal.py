"""Rehearsals: one replica under a load that varies as it does behind the question's router.

Levels that hold the number in flight say nothing of what a change of it does: a batch that is missed, a queue that
grows. So the fitted replica is run through the same visit, from its first request to its last, with the same requests
at the same times, and held against it:

    g = log of the measured load over the one at which the model attains what was measured
    s = standard deviation of the attainment over the model's own repeats, over its slope by log load

and all loads are taken for larger by exp(-g). The repeats begin as the visit did and are as long, so that neither a
warm-up nor the likeness of neighbouring requests distorts them (a parametric bootstrap: Efron and Tibshirani, An
Introduction to the Bootstrap, 1993, section 6.5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.asked import Sent

if TYPE_CHECKING:
    from gpusize.estimate.twin.asked import Asked
    from gpusize.estimate.twin.observed import Objective, Observed
    from gpusize.estimate.twin.simulated import Replica

__all__ = ["Rehearsal", "load_at", "rehearsals"]

REPEATS: Final = 6
PLANNED: Final = 3
LOADS: Final = (-0.5, -0.25, -0.1, 0.0, 0.1, 0.25, 0.5)
"""Where the model's attainment is looked up, in log load around the visit's."""
LEAST: Final = 30
"""Requests without which a visit tells nothing."""
_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """One visit against the model.

    Attributes:
        load: users or requests per second.
        attained: measured share of the objective that is nearest to being missed.
        expected: the model's.
        g: see above.
        s: its standard error.
    """

    load: float
    attained: float
    expected: float
    g: float
    s: float


def rehearsals(
    replica: Replica, factors: Sequence[float], visits: Sequence[Observed], objectives: Sequence[Objective]
) -> tuple[Rehearsal, ...]:
    """All visits of one replica at a rate or with pauses against the model.

    Args:
        replica: fitted.
        factors: on the bounds of each objective, from calibration.
        visits: each with a ``loop``.
        objectives: what is judged.
    """
    found = [_held(replica, factors, each, objectives) for each in visits if each.loop is not None]
    return tuple(each for each in found if each is not None)


def _held(
    replica: Replica, factors: Sequence[float], visit: Observed, objectives: Sequence[Objective]
) -> Rehearsal | None:
    import numpy as np

    binding = _binding(visit, objectives)
    if binding is None or visit.loop is None:
        return None
    number, attained, n = binding
    sent = sent_of(visit)

    def repeated(step: float) -> tuple[float, float]:
        """Mean attainment of the repeats at so much more load, and their scatter."""
        each = [_at(replica, sent.heavier(step), number, factors[number], seed) for seed in range(1, REPEATS + 1)]
        return float(np.mean(each)), float(np.std(each, ddof=1))

    expected, spread = repeated(0.0)
    if attained > 1 - 1 / (n + 1) and expected >= attained:
        # Nothing was missed, and the model says so: more might have been carried, nobody knows how much.
        return None
    rows: dict[float, float] = {0.0: expected}
    # Attainment falls with load: outwards from the visit's, only as far as is needed.
    outward = [x for x in LOADS if (x < 0) == (expected < attained) and x != 0]
    for step in sorted(outward, key=abs):
        rows[step] = repeated(step)[0]
        if (rows[step] >= attained) == (expected < attained):
            break
    steps = sorted(rows)
    if len(steps) < 2:
        return None
    # On the scale of normal quantiles attainment is nearly straight in log load.
    level = np.minimum.accumulate([_probit(rows[x], n) for x in steps])
    wanted = _probit(attained, n)
    at = float(np.interp(-wanted, -level, steps))
    k = int(np.clip(np.searchsorted(steps, at) - 1, 0, len(steps) - 2))
    slope = max(0.5, (level[k] - level[k + 1]) / (steps[k + 1] - steps[k]))
    error = max(spread, math.sqrt(attained * (1 - attained) / n)) / _NORMAL.pdf(wanted)
    return Rehearsal(visit.loop.load, attained, expected, -at, error / slope)


def load_at(replica: Replica, factors: Sequence[float], objectives: Sequence[Objective], guess: Asked, n: int) -> Asked:
    """The load at which the model, in a visit of ``n`` requests from an empty replica on, just misses an objective."""
    warmup = n // 5

    def margin(step: float) -> float:
        sent = Sent(guess, n - warmup, warmup).heavier(step)
        return min(
            sum(_at(replica, sent, number, factor, seed) for seed in range(1, PLANNED + 1)) / PLANNED
            - (each.share or 0.0)
            for number, (each, factor) in enumerate(zip(objectives, factors, strict=True))
            if each.share is not None
        )

    low, high = -0.7, 0.9
    for _ in range(6):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if margin(middle) >= 0 else (low, middle)
    return guess.of(guess.load * math.exp(0.5 * (low + high)))


def _binding(visit: Observed, objectives: Sequence[Objective]) -> tuple[int, float, int] | None:
    """Number, attainment and requests of the objective that is nearest to being missed, or missed most."""
    import numpy as np

    found = []
    for number, objective in enumerate(objectives):
        values = visit.values[number]
        counted = visit.steady & ~np.isnan(values)
        n = int(counted.sum())
        if n < LEAST or objective.share is None:
            continue
        attained = (float((values[counted] <= objective.bound).sum()) + 0.5) / (n + 1)
        found.append((_probit(attained, n) - _probit(objective.share, n), number, attained, n))
    return min(found)[1:] if found else None


def sent_of(visit: Observed) -> Sent:
    """What was sent in a visit, with the due times of an open loop and the tokens where all are known.

    The same requests at the same times leave nothing of a difference but the model's error and the server's chance.
    """
    import numpy as np

    if visit.loop is None:
        raise ValueError("a closed loop without pauses is no rehearsal")
    warmup = int(np.argmax(visit.steady))
    sent = Sent(visit.loop, visit.due_s.size - warmup, warmup)
    if visit.loop.users is not None:
        return sent
    sent = replace(sent, due_s=visit.due_s)
    known = np.isfinite(visit.tokens_out) & (visit.tokens_out >= 1)
    if not known.all():
        return sent
    prompts = np.maximum(1, np.nan_to_num(visit.tokens_in, nan=1.0)).astype(np.uint32)
    return replace(sent, prompt_tokens=prompts, output_tokens=visit.tokens_out.astype(np.uint32))


def _at(replica: Replica, sent: Sent, number: int, factor: float, seed: int) -> float:
    """The model's attainment in a visit; between whole users in proportion."""
    if sent.loop.users is None:
        return replica.trial(sent, seed).share(number, factor)
    whole = max(1, math.floor(sent.loop.users))
    low, high = (
        replica.trial(replace(sent, loop=sent.loop.of(float(each))), seed).share(number, factor)
        for each in (whole, whole + 1)
    )
    return low + min(1.0, max(0.0, sent.loop.users - whole)) * (high - low)


def _probit(share: float, n: int) -> float:
    return _NORMAL.inv_cdf(min(max(share, 0.5 / (n + 1)), 1 - 0.5 / (n + 1)))
