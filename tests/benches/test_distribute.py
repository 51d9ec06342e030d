"""bench-distribute's own parts: a link that delays every byte, a clock that is ahead, hosts whose levels are over."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from benches import distribute
from benches.lib.results import Report
from gpusize.engine.session import monotonic_ns
from tests.engine.hosts.clocks_apart import can_move_clocks, in_time_of_its_own, slow_link


def test_a_link_passes_everything_on_later() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, slow_link(listener.getsockname(), 0.02) as place:
        sent = os.urandom(300_000)

        def echo() -> None:
            with listener.accept()[0] as there:
                got = b""
                while len(got) < len(sent):
                    got += there.recv(65536)
                there.sendall(got)

        thread = threading.Thread(target=echo)
        thread.start()
        with socket.create_connection(place) as here:
            begun_ns = monotonic_ns()
            here.sendall(sent)
            got = b""
            while len(got) < len(sent):
                got += here.recv(65536)
            assert monotonic_ns() - begun_ns >= 40_000_000
        thread.join()
    assert got == sent


@pytest.mark.parametrize("offset_ns", [200_000_000, -200_000_000])
def test_a_clock_is_as_far_ahead_as_asked(offset_ns: int) -> None:
    if not can_move_clocks():
        pytest.skip("time namespaces need privileges")
    code = "from gpusize.engine.session import monotonic_ns; print(monotonic_ns())"
    command = [*in_time_of_its_own(offset_ns), sys.executable, "-c", code]
    before_ns = monotonic_ns()
    told_ns = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert before_ns <= told_ns - offset_ns <= monotonic_ns()


def test_records_of_hosts_come_home(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = distribute._options(["--rows", "64000"])
    report = Report()
    distribute._home(report, tmp_path, options)
    assert [bar.name for bar in report.bars] == ["hosts_records_home_s", "hosts_records_home_mib"]
    assert "| 64,000 |" in capsys.readouterr().out


def test_parts_of_a_plan_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribute, "PLAN_S", 0.01)
    distribute._plan(Report(), tmp_path, distribute._options([]))
