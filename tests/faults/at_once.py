"""Cases that mostly wait, run at once: a fault of time may then have a long time, which no busy machine uses up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

__all__ = ["AtOnce", "at_once"]


class AtOnce:
    """Starts a group of cases when one of them is asked for."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._groups: dict[str, dict[str, Future[None]]] = {}

    def run(self, group: str, cases: Mapping[str, Callable[[], None]], name: str) -> None:
        """Wait for a case, and raise what it raised.

        Args:
            group: what the cases have in common.
            cases: all of them, by name; each waits most of its time.
            name: the one that is wanted.
        """
        if group not in self._groups:
            self._groups[group] = {each: self._pool.submit(case) for each, case in cases.items()}
        self._groups[group][name].result()


@pytest.fixture(scope="module")
def at_once() -> Iterator[AtOnce]:
    with ThreadPoolExecutor(max_workers=32) as pool:
        yield AtOnce(pool)
