"""Lateness at 1,000/s, 10,000/s and 50,000/s, each beside a bare timerfd loop on the same core."""

from __future__ import annotations

from benches.lib.context import Context
from benches.lib.lateness import lateness_at, lateness_bars
from benches.sections.truth import real_time

__all__ = ["timing"]

SECONDS = {1_000.0: 2, 10_000.0: 1, 50_000.0: 1}
"""Length of a turn by rate."""


def timing(ctx: Context) -> None:
    """The engine's lateness is sent - due: until just before the write, its own queueing included.

    It stands and falls with the server's answers, too, which the bare loop does without: so that neighbours on the two
    cores are not taken for the engine, loop, engine and server have real-time priority where the system allows it.
    """
    with real_time() as alone:
        for rate, seconds in SECONDS.items():
            bare, ours = lateness_at(ctx, rate, ctx.size(seconds, 1))
            lateness_bars(ctx, f"timing_{rate / 1000:.0f}k", bare, ours)
    shared = "had real-time priority" if alone else "shared the cores with whatever else this machine does"
    ctx.report.text(f"Loop, engine and server {shared}.\n")
