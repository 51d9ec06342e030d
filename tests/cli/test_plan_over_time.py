"""gpusize plan --arrivals: a trace and a run in, tables, documents and pictures out; refusals."""

from __future__ import annotations

import json

import pytest

from gpusize.estimate.plan.over_time.demand import drawn
from tests.estimate.virtual import level


@pytest.fixture
def plan(gpusize, monkeypatch, tmp_path):
    """The command, with levels of a cluster in virtual time for what a run folder holds."""
    from gpusize.analysis.slo import Slo
    from gpusize.result import Result

    levels = tuple(level(users, requests=800 if users > 12 else 150) for users in (1, 8, 18, 22, 26, 30))

    class Virtual(Result):
        def __init__(self):
            self._users = self._rate = None
            self._damaged_runs = ()
            self._damaged_levels = []
            self._slos = (Slo.parse("p95 runtime <= 8s"),)

    monkeypatch.setattr(Virtual, "levels", levels)
    monkeypatch.setattr("gpusize.result.open_run", lambda *_args, **_more: Virtual())
    due = drawn([0, 300, 600, 900], [2, 7, 2], 1) / 1e9
    rows = [f"{at:.6f},{100 + i % 50},{80 + i % 40}" for i, at in enumerate(due)]
    (tmp_path / "trace.csv").write_text("arrival_s,input_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    return lambda *argv: gpusize("plan", "runs", *argv)


def test_a_trace_is_answered(plan, tmp_path):
    done = plan("--arrivals", "trace.csv", "--out", "out", "--plot", "day.svg", "--gpu-hour-price", "2 EUR")
    assert done.code == 0
    for words in ("static", "planned", "reactive", "EUR", "requests over 14 min", "as long as the trace says"):
        assert words in done.out
    document = json.loads((tmp_path / "out" / "over_time.json").read_text())
    assert [course["policy"] for course in document["courses"]] == ["static", "planned", "reactive"]
    static, planned, _ = document["courses"]
    assert planned["gpu_hours"] < static["gpu_hours"]
    assert planned["cost"] == pytest.approx(2 * planned["gpu_hours"])
    assert (tmp_path / "day.svg").read_text().startswith("<?xml")


def test_a_profile_and_json(plan, tmp_path):
    (tmp_path / "profile.csv").write_text("time_s,rate_per_s\n0,2\n300,7\n600,2\n")
    done = plan("--arrivals", "profile.csv", "--policy", "planned", "--json", "--speed", "2", "--arrivals-until", "10m")
    document = json.loads(done.out)
    assert document["duration_s"] == 300
    assert document["requests"] == pytest.approx(2 * (300 * 2 + 300 * 7) / 2, rel=0.1)
    assert [course["policy"] for course in document["courses"]] == ["static", "planned"]
    assert done.err == ""
    asked = plan("--arrivals", "profile.csv", "--policy", "planned", "--lengths", "trace", "--json")
    assert asked.code == 0
    assert asked.complaint.startswith("the trace's lengths were asked for, but not every request of it has tokens")


def test_a_no_is_told_by_the_exit_code(plan):
    done = plan("--arrivals", "trace.csv", "--max-replicas", "1", "--policy", "planned")
    assert (done.code, done.complaint) == (1, "no policy that scales meets the SLOs over the whole trace")
    assert "more than the 1 replicas that there may be" in done.out
    done = plan("--arrivals", "trace.csv", "--slo", "p95 runtime <= 500s")
    assert done.code == 1
    assert done.complaint.startswith("no answer over time: ")
    assert "no measured load misses an SLO" in done.complaint
    assert "no measured load misses an SLO" in done.out
    assert "measure next" in done.out


@pytest.mark.parametrize(
    "argv, complaint",
    [
        (["--window", "30s"], "--window: this option is for GPUs over time"),
        (["--arrivals", "trace.csv", "--users", "20"], "--users: this cannot be combined with arrivals"),
        (["--arrivals", "nothing.csv"], "there is no such file"),
        (["--arrivals", "dataset"], "there is no dataset to take arrival times from"),
        (["--arrivals", "trace.csv", "--policy", "guess"], "there is no policy 'guess'"),
        (["--arrivals", "trace.csv", "--window", "0s"], "--window: window must be 1 s or more, not 0 s"),
        (["--arrivals", "trace.csv", "--lengths", "mine"], "--lengths: there is no lengths 'mine'"),
        (["--arrivals", "trace.csv", "--arrivals-from", "2h"], "nothing is left of the trace"),
        (["--arrivals", "trace.csv", "--plot", "day.txt"], "of no picture"),
        (["--arrivals", "trace.csv", "--gpus-per-replica", "2"], "1 GPU were measured as one replica, not 2"),
        (["--arrivals", "trace.csv", "--min-replicas", "3", "--max-replicas", "2"], "exclude each other"),
    ],
)
def test_what_cannot_be_meant_is_refused(plan, argv, complaint):
    done = plan(*argv)
    assert done.code == 2
    assert complaint in done.complaint


@pytest.mark.parametrize(
    "rows, complaint",
    [
        ("0,2", "profile.csv: a profile with a single rate has no end"),
        ("0,2\n0,3", "profile.csv:3: this time is not later"),
        ("0,2\n5,-1", 'profile.csv:3: "rate_per_s" is -1'),
        ("0,2\n5,fast", 'profile.csv:3: "rate_per_s" is'),
        ("0,0\n5,0", "no request comes at these rates"),
    ],
)
def test_profiles_that_cannot_be_read(plan, tmp_path, rows, complaint):
    (tmp_path / "profile.csv").write_text(f"time_s,rate_per_s\n{rows}\n")
    done = plan("--arrivals", "profile.csv")
    assert done.code == 2
    assert complaint in done.complaint


def test_lengths_stay_with_their_requests(tmp_path):
    from gpusize.estimate.plan.over_time.demand import demand

    rows = [f"{at},{10 + at},{100 + at}" for at in (5, 3, 4, 0, 9)]
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    found = demand(path)
    assert (found.due_ns / 1e9).tolist() == [0, 3, 4, 5, 9]
    assert found.tokens is not None
    assert found.tokens.tolist() == [[10, 13, 14, 15, 19], [100, 103, 104, 105, 109]]
    assert found.duration_s == pytest.approx(9 * 5 / 4)
    thrice = demand(path, rate_scale=3.0, from_s=3.0)
    assert thrice.due_ns.size == 12
    assert thrice.tokens is not None
    assert sorted(thrice.tokens[0].tolist()) == [13, 13, 13, 14, 14, 14, 15, 15, 15, 19, 19, 19]
    assert ((thrice.tokens[1] - thrice.tokens[0]) == 90).all()
    path.write_text("arrival_s,input_tokens,output_tokens\n0,1,\n1,2,3\n")
    assert demand(path).tokens is None
