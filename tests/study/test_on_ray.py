"""Which combinations may be measured at the same time, without any cluster."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpusize.base.errors import EnvironmentLacks, UsageError
from gpusize.studies.combination import Plan, plan_of
from gpusize.studies.on_ray import next_of, run_study_on_ray, servers_of
from gpusize.studies.task import archived, unpack


def plans(made):
    return [plan_of(made, each) for each in made.combinations]


@pytest.mark.parametrize(
    "url, servers",
    [
        ("http://127.0.0.1:8000/v1", set()),
        ("http://localhost:8000/v1", set()),
        ("http://[::1]:8000/v1", set()),
        ("http://llm.lab:8000/v1", {"llm.lab"}),
        (["http://a.lab:1/v1", "http://b.lab:2/v1", "http://127.0.0.1:3/v1"], {"a.lab", "b.lab"}),
        ("@addresses", {"10.0.0.5", "10.0.0.6"}),
    ],
)
def test_servers_that_are_not_on_the_node(study, url, servers):
    Path("addresses").write_text("http://10.0.0.5:8000/v1\nhttp://10.0.0.6:8000/v1  # the other\n", "utf-8")
    (plan,) = plans(study(run={"url": url, "concurrencies": [1], "passes": 1}))
    assert servers_of(plan) == servers
    assert servers_of(replace(plan, run={"workflow": "m:f", "llm_proxy": "http://up.lab:1/v1"})) == {"up.lab"}


def test_no_server_is_sent_to_by_two_and_none_waits_for_nothing(study):
    """By lot: combinations on any servers, ended in any order."""
    lot = random.Random(1)
    for _ in range(100):
        hosts = [lot.choice(["127.0.0.1", "a.lab", "b.lab", "c.lab"]) for _ in range(lot.randint(1, 8))]
        run = {"url": "http://{host}:8000/v1", "concurrencies": [1], "passes": 1}
        settings = [{"host": host, "n": n} for n, host in enumerate(hosts)]
        waiting, running = plans(study(settings=settings, run=run)), list[Plan]()
        whole, done = list(waiting), list[Plan]()
        nodes = lot.randint(1, 4)
        while waiting or running:
            while len(running) < nodes and (plan := next_of(waiting, running)) is not None:
                waiting.remove(plan)
                running.append(plan)
            busy = [plan.combination.settings["host"] for plan in running]
            outside = [host for host in busy if host != "127.0.0.1"]
            assert len(outside) == len(set(outside))
            # A node is free only where each that waits has its server in use.
            if len(running) < nodes:
                assert all(plan.combination.settings["host"] in outside for plan in waiting)
            done.append(running.pop(lot.randrange(len(running))))
        assert sorted(done, key=whole.index) == whole


def test_runs_with_hosts_of_their_own_are_refused_before_anything_is_started(study):
    made = study(run={"url": "http://127.0.0.1:9/v1", "concurrencies": [1], "passes": 1, "hosts": 2})
    with pytest.raises(UsageError, match="hosts of their own"):
        run_study_on_ray(made, "auto")
    assert not made.out.exists()


def test_without_ray_it_says_what_to_install(study, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    made = study()
    with pytest.raises(EnvironmentLacks, match="there is no Ray here"):
        run_study_on_ray(made, "auto")
    assert not made.out.exists()


def test_what_is_handed_over_is_what_comes_out(tmp_path):
    (tmp_path / "a" / "run" / "levels").mkdir(parents=True)
    (tmp_path / "a" / "run" / "levels" / "x").write_bytes(b"\x00\xff")
    (tmp_path / "a" / "other").write_text("not asked for")
    packed = archived(tmp_path / "a", ["run", "none"])
    unpack(packed, tmp_path / "b")
    assert [path.relative_to(tmp_path / "b").as_posix() for path in sorted((tmp_path / "b").rglob("*"))] == [
        "run", "run/levels", "run/levels/x",
    ]  # fmt: skip
    assert (tmp_path / "b" / "run" / "levels" / "x").read_bytes() == b"\x00\xff"
    assert archived(tmp_path / "a", []) == b""
    with pytest.raises(OSError, match="cannot be read"):
        unpack(b"no tar", tmp_path / "c")
