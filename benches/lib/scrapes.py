"""What scrapes of vLLM's metrics pages would have stored, from the requests of simulated replicas.

Histograms have vLLM's own bucket edges (``vllm/v1/metrics/loggers.py``, 0.33), and are told when vLLM tells them: first
tokens as they come, times between tokens likewise, all else of a request when it ends. Rows of a simulation do not say
when each token came: those of an answer are taken as equally far apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpusize.records.series import labels_text, series_schema

__all__ = ["ITL", "LENGTHS", "REQUEST", "TTFT", "Served", "scrape_times", "scraped"]

TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
        160.0, 640.0, 2560.0)  # fmt: skip
ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
REQUEST = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
           1920.0, 7680.0)  # fmt: skip
LENGTHS = tuple(float(m * 10**e) for e in range(6) for m in (1, 2, 5) if m * 10**e <= 131_072)
"""``build_1_2_5_buckets`` of a model of 131,072 tokens."""


@dataclass(frozen=True)
class Served:
    """Requests of all replicas; times in s, arrays of shape (n,).

    Attributes:
        replica: its number.
        due_s: when it came.
        start_s: when it was taken into the batch.
        first_s: first token.
        end_s: last token.
        prompt: tokens.
        output: tokens.
        held: share of the cache that it holds from start to end; None where nobody tells.
    """

    replica: NDArray[np.int64]
    due_s: NDArray[np.float64]
    start_s: NDArray[np.float64]
    first_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    held: NDArray[np.float64] | None = None

    def of(self, number: int) -> Served:
        """Those of one replica."""
        mine = self.replica == number
        return Served(
            self.replica[mine], self.due_s[mine], self.start_s[mine], self.first_s[mine], self.end_s[mine],
            self.prompt[mine], self.output[mine], None if self.held is None else self.held[mine],
        )  # fmt: skip


def scrape_times(
    rng: np.random.Generator, begin_s: float, end_s: float, *, every_s: float = 15.0, missed: float = 0.01
) -> NDArray[np.float64]:
    """Times of one target's scrapes: an offset of its own, some ms of jitter, a few missed. Shape (k,)."""
    times = np.arange(begin_s + rng.uniform(0, every_s), end_s, every_s)
    times = times + rng.normal(0, 0.004, times.size)
    return times[rng.random(times.size) >= missed]


def scraped(
    served: Served, times: Sequence[NDArray[np.float64]], *, wall_ns: int, model: str = "m", reasons: bool = True
) -> pl.DataFrame:
    """The samples as they are stored, of all replicas.

    Args:
        served: the requests.
        times: of the scrapes of each replica, s.
        wall_ns: when the simulation began, ns since 1970.
        model: the label ``model_name``.
        reasons: whether requests that ended are counted by ``finished_reason``.
    """
    pages = [_Page(served.of(k), t, k, model).frame(wall_ns, reasons=reasons) for k, t in enumerate(times)]
    return pl.concat(pages) if pages else pl.DataFrame(schema=series_schema())


class _Page:
    """The pages of one replica at its scrapes."""

    def __init__(self, mine: Served, times: NDArray[np.float64], number: int, model: str) -> None:
        self.mine, self.t = mine, times
        self.labels = {"engine": "0", "instance": f"10.0.0.{number}:8000", "model_name": model, "pod": f"vllm-{number}"}
        self.parts: list[tuple[str, dict[str, str], float | None, NDArray[np.float64]]] = []

    def frame(self, wall_ns: int, *, reasons: bool) -> pl.DataFrame:
        self._gauges()
        self._counters(reasons=reasons)
        mine = self.mine
        gaps = np.maximum(mine.output - 1, 1)
        self._histogram("ttft", TTFT, mine.first_s, mine.first_s - mine.due_s)
        self._histogram("request_time", REQUEST, mine.end_s, mine.end_s - mine.due_s)
        self._histogram("queue_time", REQUEST, mine.end_s, mine.start_s - mine.due_s)
        self._histogram("prefill_time", REQUEST, mine.end_s, mine.first_s - mine.start_s)
        self._histogram("decode_time", REQUEST, mine.end_s, mine.end_s - mine.first_s)
        self._histogram("tpot", ITL, mine.end_s, (mine.end_s - mine.first_s) / gaps * (mine.output > 1))
        self._histogram("prompt_length", LENGTHS, mine.end_s, mine.prompt.astype(float))
        self._histogram("output_length", LENGTHS, mine.end_s, mine.output.astype(float))
        self._between_tokens()
        t_ns = wall_ns + np.round(self.t * 1e3).astype(np.int64) * 1_000_000
        frames = [
            pl.DataFrame(
                {
                    "t_ns": t_ns,
                    "name": [name] * t_ns.size,
                    "labels": [labels_text(labels)] * t_ns.size,
                    "le": pl.Series([le] * t_ns.size, dtype=pl.Float64),
                    "value": values,
                },
                schema=series_schema(),
            )
            for name, labels, le, values in self.parts
        ]
        return pl.concat(frames)

    def _add(self, name: str, values: NDArray[np.float64], le: float | None = None, **more: str) -> None:
        self.parts.append((name, {**self.labels, **more}, le, np.asarray(values, np.float64)))

    def _until(self, at_s: NDArray[np.float64], what: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """How many events had been at each scrape, or the sum of what they brought."""
        order = np.argsort(at_s, kind="stable")
        counts = np.searchsorted(at_s[order], self.t, "right")
        if what is None:
            return counts.astype(float)
        return np.concatenate([[0.0], np.cumsum(what[order])])[counts]

    def _gauges(self) -> None:
        mine = self.mine
        came, taken, ended = (self._until(each) for each in (mine.due_s, mine.start_s, mine.end_s))
        self._add("running", taken - ended)
        self._add("waiting", came - taken)
        if mine.held is not None:
            self._add("kv_cache_use", self._until(mine.start_s, mine.held) - self._until(mine.end_s, mine.held))

    def _counters(self, *, reasons: bool) -> None:
        mine = self.mine
        self._add("tokens_in", self._until(mine.first_s, mine.prompt.astype(float)))
        if reasons:
            long = mine.output >= np.median(mine.output) if mine.output.size else np.empty(0, bool)
            for reason, chosen in (("stop", ~long), ("length", long)):
                self._add("requests", self._until(mine.end_s[chosen]), finished_reason=reason)
        else:
            self._add("requests", self._until(mine.end_s))

    def _histogram(
        self, name: str, bounds: Sequence[float], at_s: NDArray[np.float64], values: NDArray[np.float64]
    ) -> None:
        for bound in bounds:
            self._add(name, self._until(at_s[values <= bound]), le=bound)
        self._add(name, self._until(at_s), le=np.inf)
        self._add(f"{name}_sum", self._until(at_s, values))
        self._add(f"{name}_count", self._until(at_s))

    def _between_tokens(self) -> None:
        """Times between tokens, and the tokens themselves, those of answers that are under way among them."""
        mine, t = self.mine, self.t
        gaps = (mine.output - 1).astype(float)
        each_s = (mine.end_s - mine.first_s) / np.maximum(gaps, 1)
        bucket = np.searchsorted(np.array(ITL), each_s, "left")
        counts = np.zeros((t.size, len(ITL) + 1))
        sums, tokens = np.zeros(t.size), self._until(mine.first_s)
        for k, moment in enumerate(t):
            now = (mine.first_s <= moment) & (mine.end_s > moment) & (gaps > 0)
            made = np.floor((moment - mine.first_s[now]) / np.maximum(each_s[now], 1e-12))
            counts[k] += np.bincount(bucket[now], weights=made, minlength=counts.shape[1])
            sums[k] += float(made @ each_s[now])
        for k in range(counts.shape[1]):
            counts[:, k] += self._until(mine.end_s[bucket == k], gaps[bucket == k])
        sums += self._until(mine.end_s, gaps * each_s)
        below = np.cumsum(counts, axis=1)
        for k, bound in enumerate((*ITL, np.inf)):
            self._add("itl", below[:, k], le=bound)
        self._add("itl_sum", sums)
        self._add("itl_count", below[:, -1])
        self._add("tokens_out", tokens + below[:, -1])
