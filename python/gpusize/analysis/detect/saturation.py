"""Is the target saturated: does it answer less than is offered, or no more however many requests are in flight?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from gpusize.analysis.detect.blocks import theil_sen

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["EFFECT", "Growth", "answered_behind", "growing", "plateau"]

EFFECT: Final = 0.05
"""Share of the offered requests that stay unanswered from which an open loop is saturated."""
LEAST_STEPS: Final = 10
LEAST_OFFERED: Final = 20
NOISE: Final = 3.0
"""Standard deviations of chance that the unanswered requests must exceed."""
LONG: Final = 2.0
"""Windows shorter than this many runtimes are not judged: what is in flight may still be filling up."""
LENGTHENED: Final = 0.1
"""Rise of the runtime over a short window, relative to its lower decile, from which it is not filling up."""
MOST_POINTS: Final = 400
STEP: Final = 1.5
"""Ratio of two concurrencies from which their throughputs are compared: closer ones differ by less than noise."""
FLAT: Final = 0.1
"""Elasticity of throughput below which it no longer rises: 10 % more users, 1 % more throughput."""
RISES: Final = 0.5
"""Elasticity of runtime from which it does: by Little's law it is 1 where throughput has stopped."""


class Growth(NamedTuple):
    """Whether a backlog grows.

    Attributes:
        status: ``growing``, ``not growing`` or ``not judged``.
        share: share of the offered requests that were not answered within the window; None where not judged.
        per_s: by how many requests per second what is in flight or waiting grows; None where not judged.
        text: in words.
    """

    status: Literal["growing", "not growing", "not judged"]
    share: float | None
    per_s: float | None
    text: str


def growing(
    offered: ArrayLike,
    completed: ArrayLike,
    in_flight: ArrayLike | None = None,
    *,
    step_s: float = 1.0,
    runtime_s: ArrayLike | None = None,
    effect: float = EFFECT,
) -> Growth:
    """Whether requests come faster than they are answered, over a window of steps of equal length.

    Grows when the requests offered and not answered are at least ``effect`` of those offered, exceed three standard
    deviations of chance (of the steps' differences, as if independent; a queue that holds its length varies less), and,
    where ``in_flight`` is given and nothing was shed, its Theil-Sen slope is above 0 as well.

    A monitor of a running level gives the last 30 or more whole seconds of the engine's ``seconds``.

    Args:
        offered: requests that became due in each step, shape (n,).
        completed: requests that ended with an answer in each step, shape (n,): not those that were shed, timed out or
            were cancelled.
        in_flight: requests due and not ended, waiting ones included, at the end of each step, shape (n,).
        step_s: length of a step in seconds.
        runtime_s: median runtime of the requests that ended in each step, seconds, nan where none did; shape (n,). A
            window shorter than twice its lower decile is judged only where runtimes rise too: after a rise of the load
            the number in flight grows for one runtime on any server.
        effect: share of the offered requests that counts.

    Raises:
        ValueError: the arrays differ in length.
    """
    import numpy as np

    came, went = np.asarray(offered, dtype=float), np.asarray(completed, dtype=float)
    held = None if in_flight is None else np.asarray(in_flight, dtype=float)
    if came.shape != went.shape or (held is not None and held.shape != came.shape):
        raise ValueError("offered, completed and in_flight must have one value per step each")
    n, total = came.size, float(came.sum())
    why = _too_little(n, total) or _filling(n * step_s, runtime_s)
    if why:
        return Growth("not judged", None, None, why)
    left = came - went
    missing = float(left.sum())
    chance = float(left.std(ddof=1)) * math.sqrt(n)
    share, per_s = missing / total, missing / (n * step_s)
    lasting = missing >= effect * total and missing > NOISE * chance
    # Requests that were shed are missing although nothing waits for them.
    if lasting and held is not None and float(held[-1] - held[0]) >= effect * missing:
        lasting = theil_sen(*_thinned(held)).slope > 0
    rates = f"{total / (n * step_s):.4g}/s were offered, {float(went.sum()) / (n * step_s):.4g}/s were answered"
    return Growth("growing" if lasting else "not growing", share, per_s, rates)


def answered_behind(offered: int, length_s: float, end_s: ArrayLike, sampled: int = 1) -> Growth:
    """Whether a backlog grew where all answers came after the last request was due: by how far apart they are.

    Args:
        offered: requests that became due in the window.
        length_s: its length.
        end_s: when they were answered, seconds, in any order; shape (n,), n at least 1.
        sampled: how many answers each of them stands for.
    """
    import numpy as np

    ends = np.asarray(end_s, dtype=float)
    why = _too_little(LEAST_STEPS, offered)
    took_s, answered = float(ends.max() - ends.min()), sampled * ends.size
    if why or took_s <= LONG * length_s:
        return Growth("not judged", None, None, why or f"no answer came within the window of {length_s:.3g} s")
    came, went = offered / length_s, answered / took_s
    rates = f"{came:.4g}/s were offered, {went:.4g}/s were answered"
    return Growth("growing", 1 - went / came, came - went, rates)


def _too_little(steps: int, total: float) -> str:
    if steps < LEAST_STEPS:
        return f"{steps} steps, {LEAST_STEPS} are needed"
    return "" if total >= LEAST_OFFERED else f"{total:.0f} requests were offered, {LEAST_OFFERED} are needed"


def _filling(length_s: float, runtime_s: ArrayLike | None) -> str:
    """Why the number in flight may rise on any server; empty where it may not."""
    import numpy as np

    times = np.asarray([] if runtime_s is None else runtime_s, dtype=float)
    known = np.isfinite(times)
    if not known.any():
        return ""
    low_s = float(np.quantile(times[known], 0.1))
    if length_s >= LONG * low_s:
        return ""
    if known.sum() >= LEAST_STEPS:
        line = theil_sen(*_thinned(times[known]), correlated=False)
        if line.low > 0 and line.slope * known.sum() >= LENGTHENED * low_s:
            return ""
    return f"the window of {length_s:.3g} s is shorter than {LONG:g} runtimes of {low_s:.3g} s"


def _thinned(held: ArrayLike) -> tuple[ArrayLike, ArrayLike]:
    """Places and values of at most so many steps: a line through all pairs costs the square of their number."""
    import numpy as np

    values = np.asarray(held, dtype=float)
    every = max(1, math.ceil(values.size / MOST_POINTS))
    return np.arange(0, values.size, every, dtype=float), values[::every]


def plateau(concurrency: ArrayLike, throughput: ArrayLike, runtime_s: ArrayLike) -> list[bool | None]:
    """Which levels of a closed sweep lie beyond the knee: more users there bring longer runtimes and no more work.

    A level is compared with the nearest one of at most 2/3 of its concurrency. It is saturated when throughput rose
    with an elasticity (relative change over relative change of the concurrency, in logarithms) below 0.1 while that of
    the runtime is above 0.5; 1 and 0 are the elasticities of throughput and runtime without any queueing.

    Args:
        concurrency: requests in flight of each level, shape (n,), in any order; repeats are allowed.
        throughput: completed requests per second, shape (n,).
        runtime_s: median or mean runtime, shape (n,).

    Returns:
        Per level whether it is saturated; None for those without a level to compare with.
    """
    import numpy as np

    users, rates, times = (np.asarray(each, dtype=float) for each in (concurrency, throughput, runtime_s))
    known = np.isfinite(rates) & np.isfinite(times) & (rates > 0) & (times > 0) & (users > 0)
    found: list[bool | None] = []
    for k in range(users.size):
        lower = np.flatnonzero(known & (users <= users[k] / STEP))
        if not known[k] or lower.size == 0:
            found.append(None)
            continue
        nearest = lower[users[lower] == users[lower].max()]
        more = math.log(users[k] / users[nearest[0]])
        rate = math.log(rates[k] / float(rates[nearest].mean())) / more
        time = math.log(times[k] / float(times[nearest].mean())) / more
        found.append(rate < FLAT and time > RISES)
    return found
