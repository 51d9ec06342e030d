"""From options to a monitor: all is checked before anything is started."""

from __future__ import annotations

import socket

import httpx
import pytest

from gpusize.base.errors import EnvironmentLacks, SloError, UsageError
from gpusize.measure.monitor import MonitorOptions


def test_nothing_given_is_nothing_done() -> None:
    options = MonitorOptions.of({"stop_when": None, "metrics_port": None})
    assert not options
    with options.open() as monitor:
        assert (monitor.rules, monitor.tally, list(monitor.closing)) == ((), None, [])


def test_rules_alone_need_no_page() -> None:
    options = MonitorOptions.of({"stop_when": "saturation"})
    assert options
    assert [rule.kind for rule in options.open().rules] == ["saturation"]
    assert len(MonitorOptions.of({"stop_when": ["saturation", "errors > 5% for 10s"]}).rules) == 2


@pytest.mark.parametrize(
    "options, what",
    [
        ({"stop_when": ["p99 ttft > 2s"]}, "for how long"),
        ({"metrics_port": 70_000}, "not a port"),
        ({"push_gateway": "gateway:9091"}, "not an address of a Pushgateway"),
        ({"push_gateway": "http://g", "push_every": "100ms"}, "once a second"),
        ({"push_every": "soon"}, "not a duration"),
    ],
)
def test_what_cannot_be_meant(options: dict, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        MonitorOptions.of(options)
    assert issubclass(SloError, UsageError)


def test_the_page_is_told_and_ends_with_the_monitor() -> None:
    told: list[str] = []
    options = MonitorOptions.of({"metrics_port": 0, "push_gateway": "http://127.0.0.1:9", "push_every": 3600})
    with options.open({"run": "r1"}, levels=4, workers=2, note=told.append):
        url = told[0].split()[-1]
        page = httpx.get(url, trust_env=False).text
        assert 'gpusize_run_info{run="r1"} 1.0' in page
        assert "gpusize_run_levels 4.0" in page
        assert "gpusize_run_workers 2.0" in page
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)
    assert len(told) == 2, "the page's place, and that the gateway is not there"


def test_a_taken_port_starts_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = MonitorOptions.of({"metrics_port": taken.getsockname()[1], "push_gateway": "http://127.0.0.1:9"})
        with pytest.raises(EnvironmentLacks, match="--metrics-port"):
            options.open()
