"""Stages as levels: settings, plans, and schedules that go on without a gap."""

import json

import pytest

from gpusize.base.errors import UsageError
from gpusize.workload.load import Bursts, Load, Stage
from gpusize.workload.schedule.from_engine import arrivals

STAIRS = "0.5/s@10m, 1/s@10m, 1.5/s@10m, 2/s@30m"
NS = 10**9


def due_s(level, rows=1):
    frame = arrivals(level.plan, rows, level.explicit)
    return [due / 1e9 for due in frame["due_ns"].to_list()]


def test_stairs_are_one_level_for_each_step():
    load = Load(stages=STAIRS, process="constant")
    levels = load.levels(7)
    assert [level.setting["expected"] for level in levels] == [300, 600, 900, 3600]
    assert [level.setting["at_s"] for level in levels] == [0, 600, 1200, 1800]
    assert levels[1].setting == {
        "kind": "open", "rate": 1.0, "process": "constant", "overload": "queue", "queue": 10000, "connections": 256,
        "passes": None, "count": None, "duration_s": 600.0, "stage": 1, "at_s": 600.0, "expected": 600,
    }  # fmt: skip
    assert levels[1].plan["stop"]["duration_ns"] == 600 * NS
    assert levels[1].plan["load"] == {
        "open": {
            "streams": [
                {
                    "id": 0,
                    "arrivals": {
                        "rate": {
                            "phases": [{"duration_ns": None, "from": 1.0, "to": 1.0}],
                            "repeat": False, "process": "constant", "shape": 1.0, "lead": 0.0,
                        }
                    },
                    "start_ns": 0, "rows": None, "priority": 0, "count": None,
                }
            ],
            "connections": 256, "max_connections": None, "queue": 10000, "overload": "queue", "unit": "request",
            "think": {"fixed": 0},
        }
    }  # fmt: skip
    assert json.loads(json.dumps(levels[1].plan)) == levels[1].plan


def test_a_ramp():
    [level] = Load(stages="1/s..5/s constant@1m").levels(1)
    assert {name: level.setting[name] for name in ("rate", "from_rate", "to_rate", "process", "expected")} == {
        "rate": 3.0, "from_rate": 1.0, "to_rate": 5.0, "process": "constant", "expected": 180,
    }  # fmt: skip
    due = due_s(level)
    # Arrival k comes where t + t^2 / 30 = k.
    assert all(abs(t + t * t / 30 - k) < 1e-6 for k, t in enumerate(due))


def test_bursts_come_at_the_end_of_each_period():
    [level] = Load(stages="1/s burst 20/s for 1s every 5s constant@10s").levels(1)
    assert level.setting["bursts"] == {"rate": 20.0, "length_s": 1.0, "every_s": 5.0}
    assert level.setting["rate"] == 4.8
    inside = [t for t in due_s(level) if 4 <= t < 5 or 9 <= t < 10]
    assert (len(inside), level.setting["expected"]) == (40, 48)


def test_a_pause_sends_nothing_and_lasts():
    levels = Load(stages="2/s@10s, 0/s@1m, 2/s@10s", process="constant").levels(1)
    pause = levels[1]
    assert (pause.setting["rate"], pause.setting["expected"], pause.setting["duration_s"]) == (0.0, 0, 60.0)
    assert pause.plan["stop"]["duration_ns"] == 60 * NS
    assert due_s(pause) == []
    # The engine takes a rate of nothing at all for a mistake.
    [stream] = pause.plan["load"]["open"]["streams"]
    assert any(phase["from"] for phase in stream["arrivals"]["rate"]["phases"])


def test_stages_of_concurrency():
    load = Load(stages="8@1m, 8..64@5m", think="exp(2s)")
    assert (load.kind, load.most_connections, load.by_passes, load.error_share) == ("closed", 64, False, 0.01)
    first, second = load.levels(3)
    assert second.setting == {
        "kind": "closed", "concurrency": 64, "from": 8, "think_s": 0.0, "think": "exp(2s)", "passes": None,
        "count": None, "duration_s": 300.0, "stage": 1, "at_s": 60.0,
    }  # fmt: skip
    assert second.plan["load"]["closed"] == {
        "concurrency": 64, "from": 8, "ramp_ns": 300 * NS, "think": {"exponential": 2 * NS}, "start": "staggered",
        "stagger_ns": None, "unit": "request",
    }  # fmt: skip
    assert (first.plan["load"]["closed"]["from"], first.plan["load"]["closed"]["ramp_ns"]) == (None, 0)


def test_a_stage_names_its_process_or_takes_the_loads():
    load = Load(stages="1/s gamma@1s, 1/s gamma(2)@1s, 1/s constant@1s", process="constant", burstiness=0.25)
    rates = [
        level.plan["load"]["open"]["streams"][0]["arrivals"]["rate"]
        for level in load.changed(stages=load.steps[2:], burstiness=None).levels(1)
    ]
    assert [(rate["process"], rate["shape"]) for rate in rates] == [("constant", 1.0)]
    from gpusize.workload.load.open_levels import process_of

    chosen = [process_of(load, (stage.process, stage.shape)) for stage in load.steps]
    assert chosen == [("gamma", 0.25), ("gamma", 2.0), ("constant", None)]


def test_levels_draw_from_seeds_of_their_own():
    levels = Load(stages="9/s@10s, 9/s@10s", seed=4).levels(1)
    assert due_s(levels[0]) != due_s(levels[1])
    assert [level.plan["seed"] for level in levels] == [
        level.plan["seed"] for level in Load(rates=[1, 2], count=1, seed=4).levels(1)
    ]


def test_rate_sweeps_keep_their_schedule():
    [level] = Load(rates=[100], duration_s=2, seed=3).levels(5)
    assert level.setting["expected"] == len(due_s(level))
    assert Load(rates=[100], count=7).settings(5)[0]["expected"] == 7


@pytest.mark.parametrize(
    "kwargs, what",
    [
        ({"duration_s": 5}, "stages have their own lengths"),
        ({"count": 5}, "stages have their own lengths"),
        ({"passes": 5}, "passes belong to concurrencies"),
        ({"rates": [1]}, "rates and stages are both given"),
        ({"think": "exp(2s)"}, "a think time belongs to concurrencies"),
        ({"overload": "drop"}, "not a way with overload"),
        ({"max_connections": 512}, "belongs to --overload grow"),
        ({"overload": "grow", "max_connections": 5}, "below connections"),
        ({"burstiness": 0.5}, "belongs to gamma"),
        ({"process": "gamma", "burstiness": 0}, "burstiness:? must be at least 0.001, not 0"),
        ({"sample_records": 0}, "sample_records must be 1 or more, not 0"),
    ],
)
def test_what_cannot_be_meant(kwargs, what):
    with pytest.raises(UsageError, match=what):
        Load(stages="1/s@1m", **kwargs)


def test_stages_of_both_kinds_from_python():
    with pytest.raises(UsageError, match="mixed"):
        Load(stages=[Stage(1, 1, 60), Stage(8, 8, 60, "closed")])


def test_overload_and_sampling_reach_the_plan():
    load = Load(stages=[Stage(1, 1, 60, bursts=Bursts(5, 1, 5))], overload="grow", sample_records=10)
    [level] = load.levels(1)
    assert level.plan["sample"] == 10
    assert (level.plan["load"]["open"]["overload"], level.plan["load"]["open"]["max_connections"]) == ("grow", 1024)
    assert load.most_connections == 1024
    assert "sample" not in Load().levels(1)[0].plan


def test_sessions():
    load = Load(rates=[2], duration_s=5, sessions=True, think="lognormal(1s,0.5)")
    [level] = load.levels(4)
    assert (level.plan["load"]["open"]["unit"], level.setting["unit"]) == ("session", "session")
    assert (level.plan["load"]["open"]["think"], level.setting["think"]) == (
        {"lognormal": [NS, 0.5]},
        "lognormal(1s,0.5)",
    )
    [closed] = Load(concurrencies=[3], duration_s=5, sessions=True, think="recorded").levels(4)
    assert (closed.plan["load"]["closed"]["unit"], closed.plan["load"]["closed"]["think"]) == ("session", "recorded")
