"""Servers in virtual time whose capacity is known by their formula: levels of closed loops, no simulator of ours.

Nothing here shares code with the package but the frames' names: what an estimate says of these is judged from outside.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from gpusize.analysis.level import LevelData
from gpusize.estimate.methods import levels_from_frames

GAP_S = 5e-5
"""From an answer to the same user's next request, at most."""


@dataclass(frozen=True)
class Server:
    """At most ``slots`` requests are worked on; each takes ``time_s`` of the number at work as it begins.

    Attributes:
        time_s: seconds by the number at work, the new one included.
        slots: the others wait in order.
        noise: standard deviation of the logarithm of what requests take by themselves.
        whole: whether a new one begins only when all are done (a static batch).
    """

    time_s: Callable[[int], float]
    slots: int = 10_000
    noise: float = 0.002
    whole: bool = False


def closed_loop(server: Server, users: int, requests: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """(sent, ended) in seconds of the first requests that ended, each of shape (requests,); one server, such users."""
    rng = np.random.default_rng([seed, users])
    queue = [k * GAP_S / users for k in range(users)]
    ends: list[float] = []
    at_work: list[tuple[float, float]] = []
    sent: list[float] = []
    while len(ends) < requests:
        if queue and _free(server, at_work) and (not at_work or queue[0] <= at_work[0][0]):
            at_work = _begin(server, at_work, queue, ends[-1] if ends else 0.0, rng)
        else:
            end, start = heapq.heappop(at_work)
            sent.append(start)
            ends.append(end)
            heapq.heappush(queue, end + GAP_S * float(rng.random()))
    return np.array(sent), np.array(ends)


def _free(server: Server, at_work: Sequence[tuple[float, float]]) -> bool:
    return not at_work if server.whole else len(at_work) < server.slots


def _begin(
    server: Server, at_work: list[tuple[float, float]], queue: list[float], last_s: float, rng: np.random.Generator
) -> list[tuple[float, float]]:
    """The next one, or the next batch of those who are there, begins."""
    begun_s = max(queue[0], last_s)
    size = min(server.slots, sum(sent <= begun_s for sent in queue)) if server.whole else 1
    for sent in [heapq.heappop(queue) for _ in range(size)]:
        own = float(np.exp(server.noise * rng.standard_normal()))
        took_s = server.time_s(size) if server.whole else server.time_s(len(at_work) + 1) * own
        heapq.heappush(at_work, (begun_s + took_s, sent))
    return at_work


def levels(
    server: Server, loads: Sequence[int], *, requests: int = 200, gpus: int = 1, seed: int = 1
) -> list[LevelData]:
    """One level per load, of so many requests each."""
    visits = [closed_loop(server, users, requests, seed) for users in loads]
    records = pl.concat(
        [pl.DataFrame({"visit": [k] * len(sent), "due_s": sent, "end_s": end}) for k, (sent, end) in enumerate(visits)]
    )
    known = pl.DataFrame({"visit": range(len(loads)), "concurrency": list(loads), "gpus": [gpus] * len(loads)})
    return levels_from_frames(records, known)


def steady_time_s(server: Server, users: int) -> float:
    """Time from sending to the end with so many users for long: of a server without batches, by Little's law."""
    busy = min(users, server.slots)
    return users / busy * server.time_s(busy)
