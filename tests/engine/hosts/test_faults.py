"""What goes wrong on many hosts: a level goes on with the others, says what is missing, and nothing sends after it."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benches.client import target_spec
from gpusize import _core
from gpusize.base.errors import StoreError, UsageError
from gpusize.engine.hosts.access import Access
from gpusize.engine.hosts.agent import join
from gpusize.engine.hosts.head import Head, HostsOptions
from gpusize.engine.hosts.part import HostPart
from gpusize.engine.hosts.protocol import Frame
from gpusize.engine.session import AnyLevel, Engine, EngineLevel, LevelOutcome
from gpusize.workload.load import Load
from tests.engine.hosts.hosting import LOOPBACK, WITHIN_S, agents, hosts, kept
from tests.servers.tls import OPENSSL, make_certificates, sign

STEADY = Load(rates=[200.0], duration_s=4.0, connections=4, process="constant")
QUIET_S = 0.5
NOBODY = Access()


@pytest.fixture
def server() -> Iterator[Any]:
    found = _core.NullServer("127.0.0.1", 0, threads=1)
    yield found
    found.stop()


def queued(engine: Any, load: Load, folder: Path) -> AnyLevel:
    (level,) = load.levels(1)
    (folder / "0000" / "records").mkdir(parents=True)
    found: AnyLevel = engine.queue({**level.plan, "visit": 0, "dir": str(folder / "0000" / "records")})
    return found


def until(what: Callable[[], bool]) -> None:
    """Wait for something that comes; the test's own time limit ends it where it does not."""
    while not what():
        time.sleep(0.02)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts begin a second after they were told: on two cores that others use a tenth may be too soon."""
    monkeypatch.setattr("gpusize.engine.hosts.level.LEAD_NS", 1_000_000_000)


def level_beside(head: Head, server: Any, folder: Path, fault: Callable[[], None]) -> LevelOutcome:
    """A level on all hosts, beside which something goes wrong when it has begun."""
    with head.engine(target_spec(server.port), [], [[b""]], workers=1) as engine:
        level = queued(engine, STEADY, folder)
        until(lambda: level.poll()["due"] > 100)
        fault()
        assert level.wait(WITHIN_S)
        return level.outcome()


def is_quiet(server: Any) -> bool:
    """Whether nobody sends any more."""
    before = server.requests
    time.sleep(QUIET_S)
    return bool(server.requests == before)


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "stalls"])
def test_a_host_that_is_lost_leaves_the_level_to_the_others(fault: int, server: Any, tmp_path: Path) -> None:
    with hosts(tmp_path, 2) as (head, started):
        victim = started.processes[1]
        names = {host.facts["pid"]: host.number for host in head.hosts}
        outcome = level_beside(head, server, tmp_path, lambda: os.kill(victim.pid, fault))
        gone = names[victim.pid]
    (alert,) = outcome["hosts_alerts"]
    assert f"host {gone} " in alert
    assert "50% of the load that was asked for is missing from" in alert
    by_number = {host["host"]: host for host in outcome["hosts"]}
    assert by_number[gone]["missing"].startswith("was lost")
    assert 0.3 < by_number[gone]["missing_from_s"] < 4.0
    assert "missing" not in by_number[1 - gone]
    # What the other has measured is whole: its half of the schedule, and nothing else.
    assert outcome["due"] == outcome["rows"] == 400
    rows = kept(tmp_path, outcome, 0)
    assert rows["host"].unique().to_list() == [1 - gone]
    first = by_number[1 - gone]["first_worker"]
    assert rows["seq"].to_list() == list(range(first, 800, 2))
    assert outcome["write_error"] is None
    assert is_quiet(server)


def test_all_hosts_lost_end_the_run(server: Any, tmp_path: Path) -> None:
    with hosts(tmp_path, 2) as (head, started):

        def fault() -> None:
            for each in started.processes:
                each.kill()

        outcome = level_beside(head, server, tmp_path, fault)
    assert outcome["write_error"] is not None
    assert outcome["write_error"].startswith("no host is left: ")
    assert outcome["rows"] == 0
    assert is_quiet(server)


def test_the_next_level_is_sent_whole_by_those_who_are_left(server: Any, tmp_path: Path) -> None:
    with hosts(tmp_path, 2) as (head, started):
        level_beside(head, server, tmp_path / "first", started.processes[0].kill)
        with head.engine(target_spec(server.port), [], [[b""]], workers=1) as engine:
            level = queued(engine, Load(rates=[200.0], count=100, connections=4), tmp_path / "second")
            assert level.wait(WITHIN_S)
            outcome = level.outcome()
    assert outcome["due"] == outcome["rows"] == 100
    assert outcome["hosts_alerts"] == []
    assert kept(tmp_path / "second", outcome, 0)["seq"].to_list() == list(range(100))


HEAD = """
import sys
from gpusize.engine.hosts.head import Head, HostsOptions
from benches.client import target_spec
from gpusize.workload.load import Load
with Head(HostsOptions(2, ("127.0.0.1", int(sys.argv[1])))) as head:
    head.gather()
    with head.engine(target_spec(int(sys.argv[2])), [], [[b""]], workers=1) as engine:
        plan = Load(rates=[200.0], duration_s=600.0, connections=4).levels(1)[0].plan
        level = engine.queue({**plan, "visit": 0, "dir": None})
        print("queued", flush=True)
        level.wait(600)
"""


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "stalls"])
def test_hosts_that_lose_the_head_stop_by_themselves(fault: int, server: Any, tmp_path: Path) -> None:
    from tests.engine.hosts.hosting import free_port

    port = free_port()
    with agents(tmp_path) as started:
        started.start(("127.0.0.1", port), 2)
        words = [sys.executable, "-c", HEAD, str(port), str(server.port)]
        head = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            until(lambda: server.requests > 100)
            os.kill(head.pid, fault)
            ended = started.ended()
            assert is_quiet(server)
        finally:
            os.kill(head.pid, signal.SIGCONT)
            head.kill()
            head.communicate()
    assert [code for code, _ in ended] == [3, 3], ended
    assert all("the head was lost" in said for _, said in ended)
    assert started.left_behind() == []


def test_hosts_tell_of_a_level_twice_a_second_and_at_once_of_what_is_waited_for(server: Any, tmp_path: Path) -> None:
    heard: list[tuple[int, str, bool, list[int]]] = []
    original = HostPart.hear

    def seen(part: HostPart, frame: Frame) -> None:
        if frame.kind == "progress":
            told = [second["second"] for second in frame.fields["seconds"]]
            heard.append((part.host.number, frame.fields["progress"]["state"], frame.fields["ready"], told))
        original(part, frame)

    with pytest.MonkeyPatch.context() as patch, hosts(tmp_path, 2) as (head, _):
        patch.setattr(HostPart, "hear", seen)
        level_beside(head, server, tmp_path, lambda: None)
    for number in (0, 1):
        mine = [each[1:] for each in heard if each[0] == number]
        # Ready once; then each state, and twice a second between.
        assert sum(ready for _, ready, _ in mine) == 1
        assert mine[-1][0] == "done"
        changes = sum(a[0] != b[0] for a, b in itertools.pairwise(mine))
        assert len(mine) <= 2 * 4 + changes + 4
        # No second is left out or told twice, and none waits for the next one. The last answers may come in a fifth.
        seconds = [second for *_, told in mine for second in told]
        assert seconds == list(range(max(4, len(seconds))))
        # One that had no core for half a second tells two at once.
        assert sorted(len(told) for *_, told in mine)[-2:] in ([1, 1], [1, 2])


def test_a_user_who_ends_the_run_ends_it_everywhere(server: Any, tmp_path: Path) -> None:
    with hosts(tmp_path, 2) as (head, started), head.engine(target_spec(server.port), [], [[b""]]) as engine:
        level = queued(engine, Load(rates=[200.0], duration_s=600.0, connections=4), tmp_path)
        until(lambda: level.poll()["due"] > 50)
        level.stop(30_000_000_000)
        assert level.wait(WITHIN_S)
        outcome = level.outcome()
    # On a busy machine a request may be due that no slot has begun; it is cancelled, and that is said.
    left = outcome["outcomes"].get("cancelled", 0)
    assert outcome["stop_reason"] == ("cancelled" if left else "stopped")
    assert outcome["rows"] == outcome["due"] >= 50
    assert is_quiet(server)
    assert [code for code, _ in started.ended()] == [0, 0]


def test_failures_are_judged_over_all_hosts_and_end_the_level(tmp_path: Path) -> None:
    """Each host sees 8 failures, below the 10 from which a share is judged; together they are enough."""
    from tests.engine.hosts.hosting import free_port

    nobody = target_spec(free_port(), connect_timeout_ns=500_000_000)
    with hosts(tmp_path, 2) as (head, _), head.engine(nobody, [], [[b""]], workers=1) as engine:
        level = queued(engine, Load(rates=[200.0], duration_s=600.0, connections=4), tmp_path)
        assert level.wait(WITHIN_S)
        outcome = level.outcome()
    assert outcome["stop_reason"] == "errors"
    assert sum(outcome["outcomes"].get(name, 0) for name in ("connect_error", "cancelled", "shed")) == outcome["due"]


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="there is no prlimit")
def test_a_full_disk_is_one_hosts_own(server: Any, tmp_path: Path) -> None:
    with agents(tmp_path) as started, Head(HostsOptions(2, LOOPBACK)) as head:
        started.start(head.address, 1)
        # No file of its may grow beyond 4 KiB: it cannot write a part.
        started.start(head.address, 1, command=["prlimit", "--fsize=4096"])
        head.gather()
        names = {host.facts["pid"]: host.number for host in head.hosts}
        outcome = level_beside(head, server, tmp_path, lambda: None)
    full = names[started.processes[1].pid]
    assert len(outcome["hosts_alerts"]) == 1
    assert f"host {full} " in outcome["hosts_alerts"][0]
    assert "could not keep its records" in outcome["hosts_alerts"][0]
    assert outcome["write_error"] is None
    by_number = {host["host"]: host for host in outcome["hosts"]}
    assert by_number[full]["write_error"]
    assert by_number[1 - full]["rows"] == 400
    rows = kept(tmp_path, outcome, 0)
    assert rows.height == outcome["rows"]
    assert rows.filter(rows["host"] == 1 - full).height == 400


class LateLevel(EngineLevel):
    """A level on a host to which the word of the start comes too late."""

    def start_at(self, _ns: int) -> None:
        raise UsageError("the start is 3 ms too late", "start_at")


class LateEngine(Engine):
    def queue(self, plan: Mapping[str, Any], **arrays: bytes) -> EngineLevel:
        level = super().queue(plan, **arrays)
        level.__class__ = LateLevel
        return level


def test_a_host_that_comes_late_to_the_start_is_left_behind(server: Any, tmp_path: Path) -> None:
    with hosts_here([Engine, LateEngine]) as head:
        outcome = level_beside(head, server, tmp_path, lambda: None)
    assert outcome["due"] == outcome["rows"] == 400
    (late,) = [host for host in outcome["hosts"] if "missing" in host]
    assert late["missing_from_s"] == 0.0
    assert "came late to the start" in outcome["hosts_alerts"][0]
    assert "50% of the load that was asked for is missing from 0.0 s after the start on" in outcome["hosts_alerts"][0]


@pytest.mark.skipif(OPENSSL is None, reason="there is no openssl")
def test_a_level_comes_home_over_tls(server: Any, tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    mine, theirs = Access(None, made.ca, made.certificate, made.key), Access(None, made.ca, *sign(made, "agent"))
    with hosts_here([Engine, Engine], mine, theirs) as head:
        outcome = level_beside(head, server, tmp_path, lambda: None)
    assert outcome["hosts_alerts"] == []
    assert kept(tmp_path, outcome, 0)["seq"].to_list() == list(range(800))


class hosts_here:  # noqa: N801 -- used as a function
    """A head with agents on threads of this process, each with an engine of its own."""

    def __init__(self, engines: list[Any], mine: Access = NOBODY, theirs: Access = NOBODY) -> None:
        self._engines, self._theirs = engines, theirs
        self._head = Head(HostsOptions(len(engines), LOOPBACK, mine))

    def __enter__(self) -> Head:
        self._head.__enter__()
        self._threads = [
            threading.Thread(target=join, args=(self._head.address, self._theirs, {}), kwargs={"engine": engine})
            for engine in self._engines
        ]
        for thread in self._threads:
            thread.start()
        self._head.gather()
        return self._head

    def __exit__(self, *_: object) -> None:
        self._head.__exit__()
        for thread in self._threads:
            thread.join(WITHIN_S)


def test_a_plan_that_is_wrong_is_refused_with_the_hosts_name(server: Any, tmp_path: Path) -> None:
    with hosts(tmp_path, 2) as (head, _), head.engine(target_spec(server.port), [], [[b""]], workers=1) as engine:
        plan = Load(rates=[200.0], duration_s=1.0, connections=4).levels(1)[0].plan
        level = engine.queue({**plan, "visit": 0, "dir": None, "order": "sideways"})
        with pytest.raises(UsageError, match=r"on host "):
            level.wait(WITHIN_S)


def test_a_target_that_one_host_cannot_reach_is_refused_before_anything_starts(server: Any) -> None:
    class Apart(Engine):
        def __init__(self, target: Mapping[str, Any], *more: Any, **named: Any) -> None:
            from tests.engine.hosts.hosting import free_port

            super().__init__({**target, "port": free_port()}, *more, **named)

    with hosts_here([Engine, Apart]) as head, head.engine(target_spec(server.port), [], [[b""]]) as engine:
        record = engine.probe()
    assert record["outcome"] == "connect_error"
    assert record["message"] is not None
    assert record["message"].startswith("from host ")


def test_a_disk_that_is_full_at_home_ends_the_level_with_an_error(server: Any, tmp_path: Path) -> None:
    with hosts(tmp_path, 2) as (head, _), head.engine(target_spec(server.port), [], [[b""]], workers=1) as engine:
        level = queued(engine, Load(rates=[200.0], count=50, connections=4), tmp_path)
        # A file lies where a folder has to be.
        (tmp_path / "0000" / "seconds").write_text("")
        with pytest.raises(StoreError):
            level.wait(WITHIN_S)


STAGES = {
    "open": Load(stages="200/s@4s, 100/s@1s, 150/s@1s", connections=4, process="constant"),
    "closed": Load(stages="4@4s, 2@1s, 6@1s"),
}


@pytest.mark.parametrize("kind", STAGES)
def test_stages_after_a_host_was_lost_are_sent_whole_by_the_others(kind: str, server: Any, tmp_path: Path) -> None:
    load = STAGES[kind]
    with hosts(tmp_path, 2) as (head, started), head.engine(target_spec(server.port), [], [[b""]]) as engine:
        queued_levels = []
        for visit, level in enumerate(load.levels(1)):
            (tmp_path / f"{visit:04d}" / "records").mkdir(parents=True)
            folder = str(tmp_path / f"{visit:04d}" / "records")
            queued_levels.append(engine.queue({**level.plan, "visit": visit, "dir": folder}))
        until(lambda: queued_levels[0].poll()["due"] > 50)
        started.processes[0].kill()
        for each in queued_levels:
            assert each.wait(WITHIN_S), each.poll()
        first, *others = [each.outcome() for each in queued_levels]
    assert len(first["hosts_alerts"]) == 1
    assert [len(each["hosts"]) for each in others] == [1, 1]
    assert [each["hosts_alerts"] for each in others] == [[], []]
    if kind == "open":
        assert [each["due"] for each in others] == [100, 150]
        for visit, outcome in enumerate(others, start=1):
            assert kept(tmp_path, outcome, visit)["seq"].to_list() == list(range(outcome["due"]))
    else:
        for users, visit in ((2, 1), (6, 2)):
            # All users are the one host's now: each keeps a connection of its own.
            rows = kept(tmp_path, others[visit - 1], visit)
            assert rows.filter(rows["due_ns"] > 0).select("worker", "conn").unique().height >= users
    assert is_quiet(server)
