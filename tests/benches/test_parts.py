"""What the benchmarks read, run and write."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benches import http
from benches.lib import command
from benches.lib.bars import Bar
from benches.lib.host import facts
from benches.lib.peers import H2loadCount, WrkCount, parse_h2load, parse_wrk
from benches.lib.procs import BenchFailed, LineServer, pinned, run_measured
from benches.lib.results import Report, markdown_table
from benches.lib.stats import Interval
from benches.lib.wire import comparable
from benches.sections.instructions import collected

CORE = min(os.sched_getaffinity(0))

WRK = """Running 2s test @ http://127.0.0.1:38865/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   273.76us  237.80us   5.31ms   98.54%
  255767 requests in 2.00s, 19.03MB read
"""

H2LOAD = """starting benchmark...
finished in 3.00s, 31077.33 req/s, 1.13MB/s
requests: 93232 total, 93296 started, 93232 done, 93232 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 93232 2xx, 0 3xx, 0 4xx, 0 5xx
"""


def test_wrks_total() -> None:
    assert parse_wrk(WRK) == WrkCount(255_767, 2.0, 0)
    assert parse_wrk(WRK.replace("2.00s,", "1.50m,")).seconds == 90.0


def test_wrks_errors_are_counted() -> None:
    bad = WRK + "  Socket errors: connect 1, read 2, write 0, timeout 4\n  Non-2xx or 3xx responses: 8\n"
    assert parse_wrk(bad).errors == 15


def test_wrk_without_a_total_is_no_measurement() -> None:
    with pytest.raises(BenchFailed):
        parse_wrk("unable to connect to 127.0.0.1:1 Connection refused\n")


def test_h2loads_total() -> None:
    assert parse_h2load(H2LOAD) == H2loadCount(93_232, 3.0, 0)
    assert parse_h2load(H2LOAD.replace("3.00s,", "250.00ms,")).seconds == 0.25


def test_h2loads_errors_are_counted() -> None:
    assert parse_h2load(H2LOAD.replace("93232 succeeded, 0 failed", "93230 succeeded, 2 failed")).errors == 2
    assert parse_h2load(H2LOAD.replace("0 timeout", "5 timeout")).errors == 5


def test_h2load_without_a_total_is_no_measurement() -> None:
    with pytest.raises(BenchFailed):
        parse_h2load("[ERROR] Could not resolve or connect\n")


def test_callgrinds_count() -> None:
    assert collected("==12== Events    : Ir\n==12== Collected : 123456789\n") == 123_456_789
    with pytest.raises(BenchFailed):
        collected("==12== nothing\n")


def test_heads_compare_by_meaning() -> None:
    ours = comparable(b"GET / HTTP/1.1\r\nhost:127.0.0.1:81\r\nAccept: x", 81)
    theirs = comparable(b"GET / HTTP/1.1\r\nAccept: x\r\nHost: 127.0.0.1:92", 92)
    assert ours == theirs
    assert comparable(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:92", 92) != theirs


def test_a_measured_process_is_charged_for_its_threads() -> None:
    code = (
        "import threading, time\n"
        "def work():\n"
        "    while time.thread_time() < 0.1: pass\n"
        "threads = [threading.Thread(target=work) for _ in range(3)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]; print('done')"
    )
    finished = run_measured(pinned([sys.executable, "-c", code], CORE))
    assert finished.stdout == "done\n"
    assert finished.cpu_s >= 0.29
    assert finished.peak_rss_bytes > 1024**2


def test_a_failed_process_is_no_measurement() -> None:
    with pytest.raises(BenchFailed, match=r"ended with 3:\n.*told you"):
        run_measured([sys.executable, "-c", "import sys; sys.stderr.write('told you'); sys.exit(3)"])


def test_a_server_is_ended(tmp_path: Path) -> None:
    code = """import signal; print('{"port": 7}', flush=True); print('{"x": 2}', flush=True); signal.pause()"""
    with LineServer([sys.executable, "-c", code], CORE) as server:
        assert server.port == 7
        assert server.next_line() == {"x": 2}
        process = server._process
    assert process.returncode == -15


def test_a_server_that_does_not_start_is_no_measurement() -> None:
    with pytest.raises(BenchFailed, match="ended early with 2"):
        LineServer([sys.executable, "-c", "import sys; sys.exit(2)"], CORE)


def test_the_record_grows_and_keeps_what_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    report.table("a table", ["", "wrk"], [["CPU us", Interval(1.0, 0.5, 1.5)]], "a note")
    report.bar(Bar("cpu", Interval(0.9, 0.8, 0.94), 0.95))
    path = tmp_path / "RESULTS.md"
    report.append_to(path, {"cpu": "one"}, "python -m benches.http")
    once = path.read_text()
    report.append_to(path, {"cpu": "two"}, "python -m benches.http --only cpu")
    text = path.read_text()
    assert text.startswith(once)
    assert text.count("BAR cpu 0.9 [0.8,0.94] 0.95 ok") == 2
    assert text.count("# Results\n") == 1
    assert "- cpu: one" in text
    assert "- cpu: two" in text
    assert "BAR cpu 0.9" in capsys.readouterr().out


def test_tables_are_aligned() -> None:
    lines = markdown_table(["a", "long header"], [["a long cell", 1]]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].strip("|-") == ""


def test_the_hosts_facts_name_what_numbers_depend_on() -> None:
    known = facts()
    assert {"cpu", "cores", "kernel", "python", "memory"} <= set(known)
    assert all(known.values())


def quick_run(monkeypatch: pytest.MonkeyPatch, root: Path, arguments: list[str], hi: float) -> int:
    (root / "benches").mkdir(exist_ok=True)
    monkeypatch.setattr(command, "ROOT", root)
    monkeypatch.setattr(command, "build_tools", lambda: None)
    monkeypatch.setitem(http.SECTIONS, "cpu", lambda ctx: ctx.report.bar(Bar("cpu", Interval(hi, hi, hi), 0.95)))
    return http.main(["--only", "cpu", *arguments])


def test_only_a_full_run_is_for_the_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    results = tmp_path / "benches" / "RESULTS.md"
    assert quick_run(monkeypatch, tmp_path, ["--quick"], 0.9) == 0
    assert not results.exists()
    assert quick_run(monkeypatch, tmp_path, [], 0.9) == 0
    assert quick_run(monkeypatch, tmp_path, [], 0.96) == 1
    assert results.read_text().count("## ") == 2


def test_what_cannot_be_measured_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise BenchFailed("no wrk here")

    monkeypatch.setattr(command, "build_tools", fails)
    assert http.main(["--only", "cpu", "--quick"]) == 2
    assert "bench: no wrk here" in capsys.readouterr().err


def test_ctrl_c_ends_it_without_a_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_ctx: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "build_tools", lambda: None)
    assert command.run_sections("it", {"one": interrupted}, []) == command.INTERRUPTED
    assert "interrupted" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_section_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(_: object) -> None:
        raise BenchFailed("wrk ended with 1:\nusage\nunable to connect")

    monkeypatch.setitem(http.SECTIONS, "open", fails)
    assert quick_run(monkeypatch, tmp_path, ["--only", "open,cpu"], 0.9) == 2
    record = (tmp_path / "benches" / "RESULTS.md").read_text()
    assert "open: not measured\n\nwrk ended with 1: ... unable to connect" in record
    assert "BAR cpu 0.9 [0.9,0.9] 0.95 ok" in record


@pytest.mark.parametrize("arguments", [["--only", "gpu"], ["--pairs", "3"]])
def test_wrong_options_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        http.main(arguments)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err
