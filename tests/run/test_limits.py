"""A sweep with more connections than files may be open is refused, or the limit is raised, before anything is sent."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest

from gpusize.base.errors import EnvironmentLacks
from gpusize.engine.limits import RESERVE, allow_connections, allow_most_files
from gpusize.workload.load import Load

if TYPE_CHECKING:
    from collections.abc import Callable

INFINITY = resource.RLIM_INFINITY


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], list[tuple[int, int]]]:
    """Pretends limits and collects what they are set to; the test's own process keeps its limits."""

    def pretend(soft: int, hard: int) -> list[tuple[int, int]]:
        calls: list[tuple[int, int]] = []
        monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, hard))
        monkeypatch.setattr(resource, "setrlimit", lambda _which, pair: calls.append(pair))
        return calls

    return pretend


@pytest.mark.parametrize("soft, hard", [(4096, 4096), (2000 + RESERVE, 4096), (INFINITY, INFINITY)])
def test_what_fits_is_left_alone(limits: Callable[[int, int], list[tuple[int, int]]], soft: int, hard: int) -> None:
    calls = limits(soft, hard)
    allow_connections(2000)
    assert calls == []


@pytest.mark.parametrize("hard", [2000 + RESERVE, 20_000, INFINITY])
def test_the_soft_limit_is_raised(limits: Callable[[int, int], list[tuple[int, int]]], hard: int) -> None:
    calls = limits(1024, hard)
    allow_connections(2000)
    assert calls == [(2000 + RESERVE, hard)]


def test_beyond_the_hard_limit_there_is_a_clear_word(limits: Callable[[int, int], list[tuple[int, int]]]) -> None:
    calls = limits(1024, 1999 + RESERVE)
    with pytest.raises(EnvironmentLacks, match="2000 connections need 2128 open files; the limit here is 2127"):
        allow_connections(2000)
    assert calls == []


def test_a_server_takes_what_it_may(limits: Callable[[int, int], list[tuple[int, int]]]) -> None:
    calls = limits(1024, 4096)
    allow_most_files()
    assert calls == [(4096, 4096)]


def test_connections_of_the_largest_level() -> None:
    assert Load(concurrencies=[1, 2000, 4]).most_connections == 2000
    assert Load(rates=[5.0], duration_s=1, connections=77).most_connections == 77
