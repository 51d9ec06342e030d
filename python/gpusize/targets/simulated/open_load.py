"""What an open load on a simulated cluster must give, by the model in virtual time: rates, waiting, shed requests.

The truth that a real run under overload is held against: the same due times and requests, the same connections and
queue in front of them, and a client that takes no time itself.
"""

from __future__ import annotations

import json
import sys
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpusize.base.errors import UsageError
from gpusize.engine.session import core
from gpusize.targets.simulated.config import config_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import polars as pl

__all__ = ["OpenTruth", "simulate_open"]


@dataclass(frozen=True, slots=True)
class OpenTruth:
    """What the model gives for an open load.

    Attributes:
        rows: one row per request that was due in the window, in order: ``index``, ``gpu``, ``due_ns``, ``sent_ns``
            (null when it was shed), ``start_ns``, ``first_token_ns``, ``end_ns``, ``prompt_tokens``, ``tokens_out``,
            ``outcome``. Times are ns from the start.
        window_s: the window's length; rates are per second of it.
        offered: requests that were due.
        sent: requests that were sent, in the window or later.
        shed: requests that found the queue full; with ``sent`` they make ``offered``.
        completed: requests that were answered, in the window or later.
        offered_rate: due in the window, per second.
        sent_rate: sent in the window, per second.
        achieved_rate: answered in the window, per second.
        waiting_s: seconds from due to sent, of what was sent: ``mean``, ``p50``, ``p90``, ``p95``, ``p99``, ``max``;
            exact, interpolated as numpy does. Empty when nothing was.
        service_s: seconds from sent to end, of what was answered; the same.
        runtime_s: seconds from due to end; the same.
        ttft_s: seconds from due to the first token; the same.
    """

    rows: pl.DataFrame
    window_s: float
    offered: int
    sent: int
    shed: int
    completed: int
    offered_rate: float
    sent_rate: float
    achieved_rate: float
    waiting_s: dict[str, float]
    service_s: dict[str, float]
    runtime_s: dict[str, float]
    ttft_s: dict[str, float]


def simulate_open(
    config: Mapping[str, Any],
    due_ns: Iterable[int] | bytes,
    *,
    connections: int | None = None,
    queue: int | None = None,
    prompt_tokens: int | Sequence[int] = 100,
    output_tokens: int | Sequence[int] | None = None,
    duration_s: float | None = None,
) -> OpenTruth:
    """What a cluster would make of requests that are due at these times.

    Each connection carries one request at a time. A request that is due takes a free one, else it waits, first come,
    first served; when ``queue`` requests wait already, it is shed. All that is sent is worked off to its end.

    Args:
        config: the cluster's configuration.
        due_ns: ns from the start, ascending: numbers, or little-endian 64-bit integers as ``Session.level`` takes them.
        connections: the client's connections; None: as many as it takes.
        queue: requests that may wait for a connection; None: any number.
        prompt_tokens: length of every prompt, or of each.
        output_tokens: length of every answer, or of each; None: as the cluster is configured.
        duration_s: what is due, sent or answered up to here makes the rates; None: up to the last due time.

    Raises:
        UsageError: an invalid configuration or load.
    """
    import polars as pl

    from gpusize.records.schema import OUTCOMES, outcome_dtype

    load: dict[str, Any] = {"arrivals": "plan", "duration_s": duration_s, "connections": connections, "queue": queue}
    more: dict[str, bytes] = {}
    for name, tokens in (("prompt_tokens", prompt_tokens), ("output_tokens", output_tokens)):
        if isinstance(tokens, int):
            load[name] = {"fixed": {"tokens": tokens}}
        elif tokens is not None:
            more[name] = _little_endian("I", name, tokens)
    due = due_ns if isinstance(due_ns, bytes) else _little_endian("q", "due_ns", due_ns)
    stream, said = core().simulate(config_text(config), json.dumps(load), due=due, **more)
    summary, rows = json.loads(said), pl.DataFrame(stream).drop("user", "warmup")
    window_s = float(summary["window_s"])
    return OpenTruth(
        rows=rows.with_columns(outcome=pl.Series(OUTCOMES, dtype=outcome_dtype()).gather(rows["outcome"])),
        window_s=window_s,
        offered=summary["requests"],
        sent=summary["sent"],
        shed=summary["outcomes"].get("shed", 0),
        completed=summary["outcomes"].get("ok", 0),
        offered_rate=summary["requests"] / window_s,
        sent_rate=summary["sent_rate_per_s"],
        achieved_rate=summary["rate_per_s"],
        **{name: summary[name] or {} for name in ("waiting_s", "service_s", "runtime_s", "ttft_s")},
    )


def _little_endian(code: str, name: str, numbers: Iterable[int]) -> bytes:
    try:
        values = array(code, numbers)
    except (OverflowError, TypeError) as error:
        raise UsageError(f"not whole numbers that fit: {error}", name, "give whole numbers from 0") from None
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()
