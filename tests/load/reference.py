"""The schedule by its definition (docs/reference/engine.md), in plain Python: slow, and independent of the engine."""

from __future__ import annotations

import heapq
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import polars as pl

NS = 1_000_000_000
_MASK = 0xFFFFFFFF
_GAP, _ROW = 1 << 32, (1 << 32) + 1


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10 of Salmon et al. (SC 2011)."""
    c, k = counter, key
    for _ in range(10):
        left, right = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = ((right >> 32) ^ c[1] ^ k[0], right & _MASK, (left >> 32) ^ c[3] ^ k[1], left & _MASK)
        k = ((k[0] + 0x9E3779B9) & _MASK, (k[1] + 0xBB67AE85) & _MASK)
    return c


def _words(value: int) -> tuple[int, int]:
    return value & _MASK, (value >> 32) & _MASK


class Draw:
    """Draws of one purpose in one stream."""

    def __init__(self, seed: int, stream: int, purpose: int) -> None:
        w = philox((*_words(stream), *_words(purpose)), _words(seed))
        self.key = (w[0], w[1])

    def bits(self, low: int, high: int = 0) -> int:
        w = philox((*_words(low), *_words(high)), self.key)
        return w[0] | (w[1] << 32)

    def exp(self, seq: int) -> float:
        return -math.log1p(-((self.bits(seq) >> 11) / (1 << 53)))

    def permute(self, n: int, epoch: int, index: int) -> int:
        if n <= 1:
            return 0
        half = -(-(n - 1).bit_length() // 2)
        mask, value = (1 << half) - 1, index
        while True:
            left, right = value >> half, value & mask
            for turn in range(6):
                bits = self.bits(right | (turn << 32), epoch | (1 << 63))
                left, right = right, left ^ (bits & mask)
            value = (left << half) | right
            if value < n:
                return value


def _spread(phases: list[Mapping[str, Any]], repeat: bool) -> Iterator[tuple[int | None, float, float]]:
    while True:
        for phase in phases:
            yield phase["duration_ns"], phase["from"], phase["to"]
        if not repeat:
            return


def moments(rate: Mapping[str, Any], targets: Iterator[float]) -> Iterator[int]:
    """The nanoseconds at which the integral of the rate reaches ascending targets; ends when it never does."""
    at_ns, before = Fraction(0), Fraction(0)
    target = next(targets)
    for duration_ns, low, high in _spread(rate["phases"], rate["repeat"]):
        a, b = Fraction(low), Fraction(high)
        whole = None if duration_ns is None else (a + b) / 2 * duration_ns / NS
        # What is due where the integral only reaches it comes when the integral passes it: after a pause.
        while (whole is None and low) or (whole is not None and Fraction(target) - before < whole):
            need = float(Fraction(target) - before)
            if a == b:
                inside = need / low * NS
            else:
                slope = float((b - a) / duration_ns * NS)
                root = math.sqrt(max(low * low + 2 * slope * need, 0.0))
                inside = 2 * need / (low + root) * NS if low + root else 0.0
            yield round(float(at_ns) + inside)
            target = next(targets)
        if duration_ns is None:
            return
        at_ns += duration_ns
        before += whole or 0


def offsets(stream: Mapping[str, Any], seed: int) -> Iterator[int]:
    rate = stream["arrivals"]["rate"]
    draw = Draw(seed, stream["id"], _GAP)
    phases = rate["phases"]
    flat = len(phases) == 1 and phases[0]["duration_ns"] is None
    if rate["process"] == "constant":
        if flat:
            return (round((k + rate["lead"]) * 1e9 / phases[0]["from"]) for k in itertools.count())
        return moments(rate, (k + rate["lead"] for k in itertools.count()))
    if rate["process"] != "poisson":
        raise NotImplementedError("gamma draws are the engine's own")
    if flat:
        return itertools.accumulate(round(draw.exp(k) * 1e9 / phases[0]["from"]) for k in itertools.count())
    return moments(rate, itertools.accumulate(draw.exp(k) for k in itertools.count()))


def _items(stream: Mapping[str, Any], place: int, plan: Mapping[str, Any], due: Iterator[int]) -> Iterator[tuple]:
    for seq, at_ns in enumerate(due):
        if stream["count"] is not None and seq >= stream["count"]:
            return
        yield (at_ns + stream["start_ns"], place, seq)


def schedule(plan_json: str, dataset_rows: int, *, limit: int | None = None, **arrays: bytes) -> pl.DataFrame:
    """As ``_core.schedule``, without gamma arrivals."""
    import numpy as np

    plan = json.loads(plan_json)
    streams, stop = plan["load"]["open"]["streams"], plan["stop"]
    given = {name: np.frombuffer(data, kind) for (name, data), kind in _kinds(arrays)}
    if "due" in given:
        ids = [each["id"] for each in streams]
        numbers = given.get("streams", np.full(len(given["due"]), ids[0], np.uint16))
        seqs: dict[int, int] = dict.fromkeys(ids, 0)
        items = []
        for due, number in zip(given["due"].tolist(), numbers.tolist(), strict=True):
            items.append((due, ids.index(number), seqs[number]))
            seqs[number] += 1
        merged: Iterator[tuple] = iter(items)
    else:
        each = (_items(s, place, plan, offsets(s, plan["seed"])) for place, s in enumerate(streams))
        merged = heapq.merge(*each)
    found: dict[str, list[Any]] = {
        name: [] for name in ("index", "stream", "seq", "due_ns", "row", "target", "priority")
    }
    for index, (due, place, seq) in enumerate(merged):
        if stop["duration_ns"] is not None and due >= stop["duration_ns"]:
            break
        if index >= min(x for x in (stop["count"], limit, math.inf) if x is not None):
            break
        stream = streams[place]
        first, count = stream["rows"] or (0, dataset_rows)
        row = seq % count
        if plan["order"] == "shuffled":
            row = Draw(plan["seed"], stream["id"], _ROW).permute(count, seq // count, row)
        row = int(given["rows"][index]) if "rows" in given else first + row
        target = int(given["targets"][index]) if "targets" in given else None
        for name, value in zip(found, (index, stream["id"], seq, due, row, target, stream["priority"]), strict=True):
            found[name].append(value)
    kinds = (pl.UInt64, pl.UInt16, pl.UInt64, pl.Int64, pl.UInt32, pl.UInt16, pl.Int32)
    return pl.DataFrame(found, schema=dict(zip(found, kinds, strict=True)))


def _kinds(arrays: Mapping[str, bytes]) -> list[tuple[tuple[str, bytes], str]]:
    kinds = {"due": "<i8", "rows": "<u4", "targets": "<u2", "streams": "<u2"}
    return [((name, data), kinds[name]) for name, data in arrays.items()]


def schedule_count(plan_json: str, dataset_rows: int, **arrays: bytes) -> int:
    """As ``_core.schedule_count``."""
    return len(schedule(plan_json, dataset_rows, limit=None, **arrays))
