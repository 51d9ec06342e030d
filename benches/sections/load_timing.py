"""Lateness at 1,000/s, 10,000/s and 50,000/s, each beside a bare timerfd loop on the same core."""

from __future__ import annotations

from benches.lib.context import Context
from benches.lib.lateness import lateness_at, lateness_bars

__all__ = ["timing"]

SECONDS = {1_000.0: 2, 10_000.0: 1, 50_000.0: 1}
"""Length of a turn by rate."""


def timing(ctx: Context) -> None:
    """The engine's lateness is sent - due: until just before the write, its own queueing included."""
    for rate, seconds in SECONDS.items():
        lateness_bars(ctx, f"timing_{rate / 1000:.0f}k", *lateness_at(ctx, rate, ctx.size(seconds, 1)))
