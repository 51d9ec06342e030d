"""Levels by passes on targets whose capacity is known: requests of one second's work on average, in virtual time."""

import heapq
from dataclasses import replace

import numpy as np

from tests.analysis.open_levels import START_NS
from tests.analysis.synthetic import level


def alone(users, work_s):
    """Each request takes its time, whatever else is in flight."""
    ends, slots = np.empty(work_s.size), np.zeros(users)
    due = np.empty(work_s.size)
    for k, takes_s in enumerate(work_s):
        slot = int(slots.argmin())
        due[k], ends[k] = slots[slot], slots[slot] + takes_s
        slots[slot] = ends[k]
    return due, ends


def queued(users, work_s, servers=None):
    """A fourth as many servers as users, or so many, first come first served."""
    due, ends = np.zeros(work_s.size), np.zeros(work_s.size)
    waiting, free = [(0.0, user) for user in range(users)], [0.0] * (servers or users // 4)
    for k, takes_s in enumerate(work_s):
        at, user = heapq.heappop(waiting)
        due[k], ends[k] = at, max(at, heapq.heappop(free)) + takes_s
        heapq.heappush(free, ends[k])
        heapq.heappush(waiting, (ends[k], user))
    return due, ends


def shared(users, work_s):
    """All in flight share one processor equally."""
    due, ends = np.zeros(work_s.size), np.zeros(work_s.size)
    left, at, sent = dict(enumerate(work_s[:users])), 0.0, users
    while left:
        done = min(left, key=lambda k: left[k])
        work = left[done]
        at += work * len(left)
        left = {k: each - work for k, each in left.items() if k != done}
        ends[done] = at
        if sent < work_s.size:
            due[sent], left[sent], sent = at, work_s[sent], sent + 1
    return due, ends


def passes_of(target, users, passes, seed, sigma=0.4):
    """A level by passes on a target, of requests of one second's work on average."""
    work_s = np.random.default_rng([seed, users, passes]).lognormal(-(sigma**2) / 2, sigma, users * passes)
    due, end = target(users, work_s)
    due_ns, end_ns = ([START_NS + round(at * 1e9) for at in times] for times in (due, end))
    return by_passes(users, passes, {"due_ns": due_ns, "end_ns": end_ns, "tokens_out": np.full(due.size, 20)})


def by_passes(users, passes, columns):
    """A level as the engine closes it: when a slot, with its answer, finds nothing left to send."""
    made = level(users, columns, passes=passes)
    close_ns = min(end for end in columns["end_ns"] if end > max(columns["due_ns"]))
    return replace(made, meta={**made.meta, "close_ns": close_ns})
