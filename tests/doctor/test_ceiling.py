"""The highest rate: how it is looked for, and what is made of it."""

from __future__ import annotations

import io
import json
from typing import Self

import httpx
import pytest

from gpusize.base.errors import EnvironmentLacks
from gpusize.doctor import ceiling
from gpusize.doctor.ceiling import SHARES, Burst, ceiling_findings, highest, measured, split
from gpusize.doctor.null import NullServer, serve
from tests.doctor.machine import named

BUSY = Burst(100_000, 0, 0.97, 9e-6, 0.6, None)


def at(rate: float, late_s: float = 1e-4, reached: float = 1.0) -> Burst:
    return Burst(rate * reached, rate, 0.5, 1e-5, 0.3, late_s)


@pytest.mark.parametrize("bound", [1_000, 5_000, 35_000, 89_000, 1_000_000])
def test_the_highest_rate_is_found_by_halving(bound: float) -> None:
    tried: list[float] = []

    def burst(rate: float) -> Burst:
        tried.append(rate)
        return at(rate, 1e-4 if rate <= bound else 2e-3)

    best = highest(SHARES, 100_000, burst, lambda _: None)
    fitting = [share * 100_000 for share in SHARES if share * 100_000 <= bound]
    assert (best.offered if best else None) == pytest.approx(max(fitting, default=None))
    assert len(tried) <= 4


def test_on_time_means_sent_as_asked() -> None:
    assert at(1000).on_time
    assert not at(1000, 1.1e-3).on_time
    assert not at(1000, reached=0.97).on_time
    assert not at(1000)._replace(cpu_share=0.81).on_time, "a level as busy as that is generator-limited"
    assert not BUSY.on_time, "a closed loop has no times to keep"


@pytest.mark.parametrize("cores, parts", [(1, (1, 1)), (2, (1, 1)), (4, (3, 1)), (16, (11, 5))])
def test_cores_are_shared_with_the_server(cores: int, parts: tuple[int, int]) -> None:
    assert split(cores) == parts


class Idle(NullServer):
    def __enter__(self) -> Self:
        return self


class Absent(NullServer):
    def __enter__(self) -> Self:
        raise EnvironmentLacks("the null server did not start: no room", "doctor")


def test_what_limits_it_is_told(monkeypatch) -> None:
    bursts = {1: BUSY, 11: Burst(700_000, 0, 0.6, 9e-6, 0.95, None)}

    def pretend(_server, workers: int, _threads: int = 1, *, rate: float | None = None, seconds: float) -> Burst:
        return at(rate) if rate else bursts[workers]

    monkeypatch.setattr(ceiling, "NullServer", Idle)
    monkeypatch.setattr(ceiling, "measured", pretend)
    said: list[str] = []
    findings = ceiling_findings(16, note=said.append)
    assert named(findings, "1 worker").value == "100,000/s, 9 µs of CPU a request; limited by the generator"
    assert named(findings, "11 workers").value.endswith("limited by the null server")
    assert named(findings, "on time").value == "90,000/s with one worker, pacer late p99 100 µs, 50% of its core"
    assert {finding.verdict for finding in findings} == {"ok"}
    assert said[0] == "loading a null server: closed loop, 64 connections, 1 worker"


def test_a_crowded_machine_has_no_ceiling(monkeypatch) -> None:
    monkeypatch.setattr(ceiling, "NullServer", Idle)
    monkeypatch.setattr(
        ceiling, "measured", lambda *_, rate=None, seconds: at(rate, 0.1) if rate else BUSY._replace(cpu_share=0.4)
    )
    findings = ceiling_findings(2)
    assert [finding.verdict for finding in findings] == ["warn", "warn"]
    assert "generator 40% busy, null server 60%: others took the rest" in findings[0].todo
    assert findings[1].value == "even 2,000/s was not sent on time"


def test_without_a_server_nothing_can_be_measured(monkeypatch) -> None:
    monkeypatch.setattr(ceiling, "NullServer", Absent)
    [finding] = ceiling_findings(2)
    assert finding.prevents
    assert finding.value == "the null server did not start: no room"


def test_the_null_server_answers_and_ends_with_its_input() -> None:
    with NullServer(2) as server:
        with httpx.Client(trust_env=False) as client:
            answers = [client.post(server.url, content=b"x" * 100_000).text for _ in range(5)]
        stats = server.stats()
    assert answers == ["ok\n"] * 5
    assert stats["requests"] == 5
    assert stats["cpu_s"] > 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url, trust_env=False)
    assert server.stats() == {}


def test_what_it_says() -> None:
    out = io.StringIO()
    serve(1, io.StringIO("stats\nnonsense\nstats\n"), out)
    ready, *stats = [json.loads(line) for line in out.getvalue().splitlines()]
    assert ready["url"].startswith("http://127.0.0.1:")
    assert [answer["requests"] for answer in stats] == [0, 0]


def test_both_loops_against_the_real_server() -> None:
    with NullServer() as server:
        closed = measured(server, 1, seconds=0.3)
        opened = measured(server, 1, rate=500, seconds=0.5)
        assert server.stats()["requests"] >= 250
    assert closed.rate > 0
    assert closed.cpu_per_request_s > 0
    assert closed.pacer_late_p99_s is None
    assert opened.offered == 500
    assert opened.pacer_late_p99_s is not None
    assert 0 < opened.rate < 1000
