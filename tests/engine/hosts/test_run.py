"""Whole runs over agents: the folder is one machine's, with the hosts in it; what is judged is what was sent."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import gpusize
from gpusize import _core
from gpusize.analysis.delivery.delivery import delivery_of
from gpusize.base.errors import EnvironmentLacks, StoreError, UsageError
from gpusize.base.interrupt import StopSwitch
from gpusize.engine.hosts.head import Head, HostsOptions
from gpusize.measure.sweep import ProgressEvent
from gpusize.records.intact import check_level
from gpusize.records.store import level_dirs, open_level_dirs, read_level, read_run
from gpusize.report.live.facts import hosts_line
from tests.engine.hosts.hosting import LOOPBACK, WITHIN_S, Agents, agents, free_port


@pytest.fixture
def server() -> Iterator[Any]:
    found = _core.NullServer("127.0.0.1", 0, threads=1)
    yield found
    found.stop()


def target_of(server: Any) -> gpusize.Target:
    url = f"http://127.0.0.1:{server.port}/"
    return gpusize.Target(url, api="generic", method="GET", content_type="text/plain", stream=False)


@contextlib.contextmanager
def waiting(folder: Path, count: int = 2, *options: str) -> Iterator[tuple[dict[str, Any], Agents]]:
    """Agents that wait for a head; and the arguments of a run that is theirs."""
    port = free_port()
    with agents(folder) as started:
        started.start(("127.0.0.1", port), count, *options)
        yield {"hosts": count, "listen": f"127.0.0.1:{port}", "out": folder / "runs", "metrics_url": "none"}, started


PROMPT = gpusize.Dataset.from_prompt("hello")


def page(result: gpusize.Result) -> str:
    return result.report(plots=False).read_text("utf-8")


def test_a_run_of_two_hosts_is_a_run(server: Any, tmp_path: Path) -> None:
    load = gpusize.Load(rates=[150.0, 300.0], duration_s=1.5, connections=8)
    with waiting(tmp_path) as (run, started):
        result = gpusize.run(target_of(server), PROMPT, load, slos="p95 runtime <= 10s", **run)
        assert [code for code, _ in started.ended()] == [0, 0]
    assert started.left_behind() == []
    assert [each["host"] for each in read_run(result.path)["hosts"]] == [0, 1]
    # Both are on this machine, and told apart wherever they are named.
    names = [socket.gethostname(), f"{socket.gethostname()}-2"]
    assert [each["name"] for each in read_run(result.path)["hosts"]] == names
    assert all(f"{name}, " in page(result) for name in names)
    assert open_level_dirs(result.path) == []
    assert not list((result.path / "levels").glob(".*"))
    for level, folder in zip(result.levels, level_dirs(result.path), strict=True):
        meta = read_level(folder)
        check_level(folder, meta)
        assert (meta["state"], meta["alerts"]) == ("done", [])
        assert [host["share"] for host in meta["hosts"]] == [0.5, 0.5]
        assert [host["name"] for host in meta["hosts"]] == names
        line = hosts_line(meta["hosts"])
        assert all(re.search(rf" {re.escape(name)} \d", line) for name in names), line
        assert sum(host["due"] for host in meta["hosts"]) == meta["due"] == meta["rows"]
        assert delivery_of(level).checks[-1].text == "2 hosts sent to the end"
    # The percentiles are those of all rows of both hosts, put one behind the other.
    for row, folder in zip(result.summary.iter_rows(named=True), level_dirs(result.path), strict=True):
        meta = read_level(folder)
        (steady,) = [each for each in meta["intervals"] if each["name"] == "steady"]
        rows = pl.concat([pl.read_parquet(folder / part) for part in meta["parts"]], how="diagonal")
        inside = rows.filter((rows["due_ns"] >= steady["start_ns"]) & (rows["due_ns"] < steady["end_ns"]))
        assert set(inside["host"].to_list()) == {0, 1}
        runtimes = ((inside["end_ns"] - inside["due_ns"]) / 1e9).to_numpy()
        for prob in (50, 95, 99):
            assert row[f"runtime_p{prob}_s"] == pytest.approx(np.quantile(runtimes, prob / 100), rel=1e-12)


def test_a_load_with_a_share_missing_is_not_delivered(server: Any, tmp_path: Path) -> None:
    load = gpusize.Load(concurrencies=[4], duration_s=3.0)
    with waiting(tmp_path) as (run, started):

        def progress(event: ProgressEvent) -> None:
            if event.progress["done"] > 100 and started.processes[0].poll() is None:
                started.processes[0].kill()

        result = gpusize.run(target_of(server), PROMPT, load, progress=progress, **run)
    (level,) = result.levels
    found = delivery_of(level)
    assert found.delivered is False
    assert any("1 of 2 hosts did not" in reason for reason in found.reasons)
    assert any("50% of the load" in alert for alert in level.meta["alerts"])
    assert level.meta["rows"] > 0


def test_a_run_whose_hosts_are_all_lost_says_so_and_how_to_go_on(server: Any, tmp_path: Path) -> None:
    load = gpusize.Load(rates=[100.0], duration_s=600.0, connections=4)
    with waiting(tmp_path) as (run, started):

        def progress(event: ProgressEvent) -> None:
            if event.progress["done"] > 50:
                for each in started.processes:
                    each.kill()

        with pytest.raises(StoreError, match=r"no host is left: .*--resume"):
            gpusize.run(target_of(server), PROMPT, load, progress=progress, **run)


def test_a_run_goes_on_with_hosts_that_join_anew(server: Any, tmp_path: Path) -> None:
    load, switch = gpusize.Load(rates=[100.0, 110.0, 120.0], count=60, connections=4, process="constant"), StopSwitch()

    def progress(event: ProgressEvent) -> None:
        if event.kind == "level":
            switch.ask()

    with waiting(tmp_path) as (run, _):
        first = gpusize.run(target_of(server), PROMPT, load, progress=progress, stop=switch, **run)
    assert first.cancelled
    with waiting(tmp_path) as (run, _):
        again = gpusize.run(target_of(server), PROMPT, load, resume=first.path, **run)
    done = [read_level(folder) for folder in level_dirs(again.path)]
    finished = {level["step"]: level for level in done if level["state"] == "done"}
    assert sorted(finished) == [0, 1, 2]
    assert all(level["rows"] == 60 for level in finished.values())


def test_rows_may_stay_on_their_hosts(server: Any, tmp_path: Path) -> None:
    load = gpusize.Load(rates=[400.0], count=900, connections=8, process="constant")
    with waiting(tmp_path, 2, "--keep", str(tmp_path / "kept")) as (run, _):
        result = gpusize.run(target_of(server), PROMPT, load, records="remote", **run)
    (folder,) = level_dirs(result.path)
    meta = read_level(folder)
    assert (meta["due"], meta["rows"], meta["sampled"]) == (900, 9, 100)
    rows = pl.concat([pl.read_parquet(folder / part) for part in meta["parts"]], how="diagonal")
    assert sorted(rows["seq"].to_list()) == list(range(0, 900, 100))
    kept = [pl.read_parquet(f"{host['kept']}/records/*.parquet") for host in meta["hosts"]]
    assert sorted(seq for frame in kept for seq in frame["seq"].to_list()) == list(range(900))
    # Theirs are the hosts' own times.
    for frame, host in zip(kept, meta["hosts"], strict=True):
        mine = rows.filter(rows["host"] == host["host"]).sort("seq")
        theirs = frame.filter(frame["seq"] % 100 == 0).sort("seq")
        assert (mine["due_ns"] - host["shift_ns"]).to_list() == theirs["due_ns"].to_list()
    counted = pl.concat([pl.read_parquet(part) for part in folder.glob("seconds/*.parquet")], how="diagonal")
    assert counted["due"].sum() == 900
    assert result.summary["n"].item() > 9


def test_the_command_and_its_agents_end_together(server: Any, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a token that is long enough")
    port = free_port()
    words = ["--hosts", "2", "--listen", f"127.0.0.1:{port}", "--token-file", str(token), "--metrics-url", "none"]
    words += ["--url", f"http://127.0.0.1:{server.port}/", "--method", "GET", "--prompt", "x", "--out", str(tmp_path)]
    words += ["--rates", "100", "--duration", "1s", "--json", "--no-plots"]
    with agents(tmp_path) as started:
        started.start(("127.0.0.1", port), 2, environment={"GPUSIZE_TOKEN": token.read_text()})
        run = subprocess.run(
            [sys.executable, "-m", "gpusize", "run", *words],
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
            env={**os.environ},
        )
        ended = started.ended()
    assert run.returncode == 0, run.stderr
    assert "waiting for 2 hosts at" in run.stderr
    assert "2 of 2" in run.stderr
    assert re.search(r"hosts: \S+ [0-9.]+ \S+, \S+ [0-9.]+ \S+ late \(p99\)", run.stderr)
    assert len(json.loads(run.stdout)["summary"]) == 1
    assert [code for code, _ in ended] == [0, 0]
    assert all("the head has no more to do" in said for _, said in ended)
    kept = next(tmp_path.glob("*/run.json")).read_text()
    assert token.read_text() not in kept


def test_a_rate_beyond_the_hosts_is_refused() -> None:
    with Head(HostsOptions(1, LOOPBACK)) as head:
        for number, rate in enumerate((30_000.0, 20_000.0)):
            head.hosts.append(_fake(number, {"rate_per_s": rate}))
        head.can_send(50_000.0)
        head.can_send(None)
        with pytest.raises(EnvironmentLacks, match="asks for 50,001 requests/s, these 2 hosts send at most 50,000"):
            head.can_send(50_001.0)
        head.hosts.append(_fake(2, {}))
        head.can_send(50_001.0)


def _fake(number: int, facts: dict[str, Any]) -> Any:
    return type("Host", (), {"number": number, "facts": facts, "lost": None, "dismiss": lambda _: None})()


@pytest.mark.parametrize(
    "given, said",
    [
        ({"listen": "127.0.0.1:1"}, "no number of hosts"),
        ({"hosts": 2, "listen": "0.0.0.0:0"}, "could send load, or join"),
        ({"hosts": 0}, "must be at least 1"),
        ({"hosts": 2, "records": "there"}, "kept at home, or remote"),
        ({"hosts": 2, "hosts_ca": "ca.pem"}, "no file of the cert"),
    ],
    ids=["no count", "open door", "none", "no such place", "half of TLS"],
)
def test_what_hosts_cannot_do_is_refused(
    given: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUSIZE_TOKEN", raising=False)
    with pytest.raises(UsageError, match=said):
        gpusize.run("http://127.0.0.1:9/v1", PROMPT, gpusize.Load(concurrencies=[1]), out=tmp_path, **given)


def test_a_function_is_run_here(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="on this machine alone"):
        gpusize.run(lambda row: row, PROMPT, gpusize.Load(concurrencies=[1]), out=tmp_path, hosts=2)


def test_a_rule_is_judged_over_all_hosts_and_ends_all_of_them(server: Any, tmp_path: Path) -> None:
    load = gpusize.Load(rates=[300.0], duration_s=600.0, connections=8, process="constant")
    with waiting(tmp_path) as (run, _):
        rule = "p50 runtime > 1us for 1s"
        result = gpusize.run(target_of(server), PROMPT, load, stop_when=rule, **run)
    (level,) = result.levels
    assert level.meta["stop_reason"] == "slo"
    assert level.meta["state"] == "done"
    assert any("ended early" in alert for alert in level.meta["alerts"])
    # One request of each host before the level, and all others of it: nothing was sent after its end.
    assert server.requests == level.meta["sent"] + level.meta["asked_again"] + 2


def test_a_search_decides_at_the_head(tmp_path: Path) -> None:
    terms = gpusize.Adaptive(budget=300, most_users=32)
    with waiting(tmp_path) as (run, started):
        with gpusize.SimulatedCluster({"gpus": 1}) as cluster:
            result = gpusize.run(cluster, PROMPT, slos="p95 runtime <= 20s", users=10, adaptive=terms, **run)
        assert [code for code, _ in started.ended()] == [0, 0]
    searched = [level.meta for level in result.levels if level.meta.get("search")]
    assert searched
    for meta in searched:
        users = meta["setting"]["concurrency"]
        assert len(meta["hosts"]) == 2
        assert sum(host["due"] for host in meta["hosts"]) == meta["due"]
        # One user is one host's, more are both's.
        assert sum(host["due"] > 0 for host in meta["hosts"]) == min(2, users)
