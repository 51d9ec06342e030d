"""Pulling through ``kubectl port-forward``, by a stand-in for kubectl."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gpusize.api.pull import Server, pull_series
from gpusize.observe.series.time_range import TimeRange
from tests.samples.kubectl_standin import PROGRAM
from tests.series.double import Double
from tests.series.test_pull import BEGIN_S, END_S, expected, found, stored


def test_a_service_in_a_cluster_is_reached_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text(PROGRAM.format(python=sys.executable))
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{kubectl.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("FORWARD_DIR", str(tmp_path))
    with Double(stored(), now_ms=(END_S + 600) * 1000) as double:
        (tmp_path / "to").write_text(double.url.rpartition(":")[2])
        server = Server("kube://monitoring/prometheus:9090", wall_ns=double.wall_ns)
        whole = TimeRange(BEGIN_S * 10**9, END_S * 10**9, "test")
        for _ in range(2):
            done = pull_series(server, tmp_path / "out", whole, presets=["vllm", "deployment"], margin_s=0.0)
            assert found(done) == expected(double)
            # The way has another port each time, and it is the same server.
            assert (done.facts["server"], done.facts["notes"]) == ("kube://monitoring/prometheus:9090", [])
        before = len(double.asked)
        pull_series(server, tmp_path / "out", whole, presets=["vllm", "deployment"], margin_s=0.0)
        assert len(double.asked) == before
