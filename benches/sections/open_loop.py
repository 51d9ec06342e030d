"""Open loop at 2,000/s beside a bare timerfd loop on the same core: how late the generator is by its own doing."""

from __future__ import annotations

from benches.lib.context import Context
from benches.lib.lateness import lateness_at, lateness_bars

__all__ = ["open_loop"]

RATE = 2000.0


def open_loop(ctx: Context) -> None:
    """The engine's lateness is sent - due: until just before the write, its own queueing included."""
    lateness_bars(ctx, "open_loop", *lateness_at(ctx, RATE, ctx.size(5, 1)))
