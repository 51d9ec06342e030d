"""Requests that a server puts off, fails at or hangs up on, once more: what is no measurement need not hear of that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from gpusize.cluster.access.refused import KubeRefused
from gpusize.cluster.access.stream import Broken

__all__ = ["PUT_OFF", "patiently"]

PUT_OFF: Final = frozenset({429, 500, 502, 503, 504})
"""Statuses after which a request is sent again."""

_TRIES: Final = 5
_FIRST_PAUSE_S: Final = 0.25

T = TypeVar("T")


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """What is asked for, after up to four more tries with growing pauses, or those that the server asks for.

    Args:
        ask: asks once; to ask twice must do no harm.

    Raises:
        KubeRefused: refused for good, or put off each time.
        Broken: connected, but without an answer, each time.
        TargetError: no connection.
    """
    for again in range(_TRIES - 1):
        try:
            return await ask()
        except KubeRefused as refused:
            if refused.status not in PUT_OFF:
                raise
            wait_s = refused.retry_after_s or 0.0
        except Broken:
            wait_s = 0.0
        await asyncio.sleep(max(wait_s, _FIRST_PAUSE_S * 2.0**again))
    return await ask()
