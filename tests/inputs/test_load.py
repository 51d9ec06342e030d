"""Load settings: what a level sends, and which are invalid."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.base.errors import UsageError
from gpusize.workload.dataset import Dataset
from gpusize.workload.load import DEFAULT_CONCURRENCIES, Load

SMALL = st.integers(1, 64)


@pytest.mark.parametrize(
    "rows,concurrency,passes,count",
    [
        (3, 1, 2, 2),
        (3, 2, 2, 4),
        (3, 8, 2, 16),
        (15, 4, None, 12),
        (15, 16, None, 16),
        (10, 3, None, 9),
        (10, 3, 0, 9),
        (1, 1, None, 1),
    ],
)
def test_passes_are_the_calculators(rows, concurrency, passes, count):
    load = Load(concurrencies=[concurrency], passes=passes)
    [plan] = load.plans(rows)
    assert plan["stop"] == {"count": count, "duration_ns": None, "max_error_share": 0.0, "min_errors": 1}
    assert plan["load"]["closed"] == {
        "concurrency": concurrency, "from": None, "ramp_ns": 0, "think": {"fixed": 0}, "start": "burst",
        "stagger_ns": None, "unit": "request",
    }  # fmt: skip
    assert load.settings(rows)[0]["passes"] == count // concurrency


def calculator_target(rows, concurrency, passes):
    """The formula of docs' source, written out."""
    if passes > 0:
        return concurrency * passes
    return rows // concurrency * concurrency if rows >= concurrency else concurrency


@given(st.integers(1, 500), SMALL, st.integers(0, 9))
def test_requests_follow_the_formula_for_all(rows, concurrency, passes):
    load = Load(concurrencies=[concurrency], passes=passes)
    assert load.requests(concurrency, rows) == calculator_target(rows, concurrency, passes)
    assert load.settings(rows)[0]["passes"] * concurrency == load.requests(concurrency, rows)


def test_ids_of_a_level_with_passes():
    dataset = Dataset.from_rows([{"id": i, "prompt": "p"} for i in (1, 2, 3)])
    load = Load(concurrencies=[1, 2], passes=2)
    counts = [plan["stop"]["count"] for plan in load.plans(len(dataset))]
    assert [dataset.ids_for(count) for count in counts] == [["1", "2"], ["1", "2", "3", "1_rep1"]]


def test_levels_by_time():
    load = Load(concurrencies=(2, 4, 2), duration_s=1.5, think_s=0.25, max_error_share=0.05, order="shuffled")
    plans = load.plans(3)
    assert [plan["load"]["closed"]["concurrency"] for plan in plans] == [2, 4, 2]
    assert plans[0]["load"]["closed"] == {
        "concurrency": 2, "from": None, "ramp_ns": 0, "think": {"fixed": 250_000_000}, "start": "staggered",
        "stagger_ns": None, "unit": "request",
    }  # fmt: skip
    assert plans[0]["stop"] == {"count": None, "duration_ns": 1_500_000_000, "max_error_share": 0.05, "min_errors": 10}
    assert plans[0]["order"] == "shuffled"
    assert load.settings(3)[1] == {
        "kind": "closed", "concurrency": 4, "think_s": 0.25, "passes": None, "count": None, "duration_s": 1.5,
    }  # fmt: skip
    assert Load(count=5).error_share == 0.01
    assert Load().error_share == 0.0


def test_the_open_loop():
    load = Load(rates=[5, 0.5], count=10, process="constant", connections=7, queue=3)
    assert load.kind == "open"
    opens = [plan["load"]["open"] for plan in load.plans(1)]
    assert [(each["connections"], each["queue"], each["overload"]) for each in opens] == [(7, 3, "queue")] * 2
    rates = [stream["arrivals"]["rate"] for each in opens for stream in each["streams"]]
    assert [(rate["process"], rate["phases"]) for rate in rates] == [
        ("constant", [{"duration_ns": None, "from": rate, "to": rate}]) for rate in (5.0, 0.5)
    ]
    assert load.settings(1)[1] == {
        "kind": "open", "rate": 0.5, "process": "constant", "overload": "queue", "queue": 3, "connections": 7,
        "passes": None, "count": 10, "duration_s": None, "expected": 10,
    }  # fmt: skip


def test_the_default_is_a_sweep():
    assert Load().concurrencies == DEFAULT_CONCURRENCIES
    assert Load().by_passes


def test_seeds_differ_by_level_and_repeat():
    seeds = [plan["seed"] for plan in Load(concurrencies=[1, 1, 1], seed=7).plans(1)]
    assert len(set(seeds)) == 3
    assert seeds == [plan["seed"] for plan in Load(concurrencies=[2, 3, 4], seed=7).plans(9)]
    assert seeds != [plan["seed"] for plan in Load(concurrencies=[1, 1, 1], seed=8).plans(1)]
    assert all(0 <= seed < 2**63 for seed in seeds)


@given(st.lists(SMALL, min_size=1, max_size=5), st.integers(0, 2**63 - 1), st.none() | SMALL, st.floats(1e-3, 1e6))
def test_plans_are_json(concurrencies, seed, count, duration_s):
    load = Load(concurrencies=concurrencies, seed=seed, count=count, duration_s=duration_s)
    plans = load.plans(3)
    assert json.loads(json.dumps(plans)) == plans
    assert len(plans) == len(load.settings(3)) == len(concurrencies)


@pytest.mark.parametrize(
    "kwargs,what",
    [
        ({"concurrencies": [0]}, "concurrency must be 1 or more, not 0"),
        ({"concurrencies": [1, -2]}, "concurrency must be 1 or more, not -2"),
        ({"concurrencies": [1.5]}, "1.5 is not a whole number"),
        ({"concurrencies": [True]}, "concurrency must be 1 or more, not True"),
        ({"concurrencies": "1,2"}, "given as text"),
        # More than a number with fraction can tell apart.
        ({"count": 2**53 + 1}, f"count must be at most {2**53}, not {2**53 + 1}"),
        ({"concurrencies": [2**40]}, "concurrency must be at most 1000000, not 1099511627776"),
        ({"concurrencies": [1], "rates": [1]}, "both given"),
        ({"rates": [0], "count": 1}, "a rate must be positive, not 0/s"),
        ({"rates": [-1], "count": 1}, "a rate must be positive, not -1/s"),
        ({"rates": [float("inf")], "count": 1}, "not a number"),
        ({"rates": ["5"], "count": 1}, "not a number"),
        ({"rates": [5]}, "would never end"),
        ({"rates": [5], "passes": 1}, "passes belong to concurrencies"),
        ({"rates": [5], "count": 1, "think_s": 1}, "think time"),
        ({"passes": 1, "count": 1}, "passes and a count or a duration"),
        ({"passes": 1, "duration_s": 1}, "passes and a count or a duration"),
        ({"passes": -1}, "passes must be 0 or more, not -1"),
        ({"count": 0}, "count must be 1 or more, not 0"),
        ({"duration_s": 0}, "duration_s must be positive, not 0 s"),
        ({"duration_s": "10s"}, "not a number"),
        ({"warmup_s": -1}, "warmup_s must be 0 s or more, not -1 s"),
        ({"duration_s": 5, "warmup_s": 5}, "warm-up"),
        ({"drain_s": float("nan")}, "not a number"),
        ({"stages": "1/s@1s", "wait_between_s": 1.0}, "nothing to wait between"),
        ({"max_error_share": 1.5}, "not a share"),
        ({"process": "bursty"}, "not an arrival process"),
        ({"order": "random"}, "not an order"),
        ({"seed": -1}, "seed must be 0 or more, not -1"),
        ({"connections": 0}, "connections must be 1 or more, not 0"),
        ({"queue": -1}, "queue must be 0 or more, not -1"),
        ({"workers": 0}, "workers must be 1 or more, not 0"),
    ],
)
def test_what_cannot_be_meant(kwargs, what):
    with pytest.raises(UsageError, match=what) as caught:
        Load(**kwargs)
    assert caught.value.todo


def test_a_dataset_without_rows():
    with pytest.raises(UsageError, match="nothing to send"):
        Load().plans(0)
