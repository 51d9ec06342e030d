"""Counts and cells of several hosts as one, held against the same numbers worked out from all requests at once."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize.engine.hosts.merge import (
    Cells,
    empty_outcome,
    error_numbers,
    merged_outcome,
    merged_probe,
    merged_progress,
    merged_second,
    too_many,
)

WIDTH = 1.008


def bucket(value: int) -> tuple[int, int]:
    """A bucket of the engine's kind: at most 0.8 % wide."""
    place = math.floor(math.log(value) / math.log(WIDTH))
    return math.floor(WIDTH**place), math.floor(WIDTH ** (place + 1))


def cells_of(values: list[int]) -> list[list[int]]:
    return [[*place, count] for place, count in sorted(Counter(map(bucket, values)).items())]


HOSTS = st.lists(st.lists(st.integers(1000, 10**10), max_size=60), min_size=1, max_size=5)


@given(HOSTS, st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_percentiles_of_merged_cells_are_those_of_all_requests(hosts: list[list[int]], prob: float) -> None:
    merged, whole = Cells(), Cells()
    for values in hosts:
        merged.add({"runtime": cells_of(values)})
    everything = sorted(value for values in hosts for value in values)
    whole.add({"runtime": cells_of(everything)})
    assert merged.times().get("runtime", []) == whole.times().get("runtime", [])
    found = merged.percentile_ns("runtime", prob)
    if not everything:
        assert found is None
        return
    exact = everything[max(1, math.ceil(prob * len(everything))) - 1]
    low, high = bucket(exact)
    assert found is not None
    assert low <= found <= high + 1


def second(number: int, values: list[int], failed: int) -> Any:
    return {
        "second": number,
        "due": len(values) + failed,
        "sent": len(values),
        "done": len(values) + failed,
        "outcomes": {"ok": len(values), "timeout": failed},
        "in_flight": failed,
        "waiting": 1,
        "cpu_ns": 7,
        "times": {"runtime": cells_of(values)},
    }


@given(HOSTS, st.integers(0, 5))
def test_a_second_of_all_hosts_adds_up(hosts: list[list[int]], failed: int) -> None:
    found = merged_second([second(4, values, failed) for values in hosts])
    everything = [value for values in hosts for value in values]
    assert found == {
        **second(4, everything, failed * len(hosts)),
        "waiting": len(hosts),
        "cpu_ns": 7 * len(hosts),
        "times": {"runtime": cells_of(everything)},
    }


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_an_outcome_is_that_of_one_machine(seed: int, hosts: int) -> None:
    """Requests are dealt to hosts at random; the merged outcome is the one made of all of them."""
    draw = random.Random(seed)
    kinds = [("timeout", None, "late"), ("http_error", 500, "no"), ("http_error", 500, "other"), ("ok", None, "")]
    requests = [(draw.randrange(hosts), draw.choice(kinds), draw.randrange(1000, 10**9)) for _ in range(200)]
    shifts = [draw.randrange(-(10**12), 10**12) for _ in range(hosts)]
    outcomes: list[Any] = []
    expected = Counter(kind for _, kind, _ in requests)
    for host in range(hosts):
        mine = [(kind, value) for number, kind, value in requests if number == host]
        distinct = list(dict.fromkeys(kind for kind, _ in mine if kind[0] != "ok"))
        draw.shuffle(distinct)
        times = [value for kind, value in mine if kind[0] == "ok"]
        errors = [
            {
                "id": k,
                "outcome": kind[0],
                "status": kind[1],
                "message": kind[2],
                "count": sum(e == kind for e, _ in mine),
            }
            for k, kind in enumerate(distinct)
        ]
        outcomes.append(
            {
                **empty_outcome(0, "count"),
                "start_ns": 10**15 - shifts[host],
                "close_ns": 10**15 - shifts[host] + 10**9 + host,
                "end_ns": 10**15 - shifts[host] + 2 * 10**9 - host,
                "due": len(mine),
                "outcomes": dict(Counter(kind[0] for kind, _ in mine)),
                "residence_sum_ns": sum(times),
                "workers": 2,
                "stalled_ns": host,
                "longest_stall_ns": 3 * host,
                "addresses": [{"target": 0, "address": "a", "connections": 2}],
                "errors": errors,
                "histograms": {"runtime": cells_of(times)},
            }
        )
    found = merged_outcome(5, outcomes, shifts)
    times = [value for _, kind, value in requests if kind[0] == "ok"]
    assert (found["visit"], found["due"], found["workers"]) == (5, 200, 2 * hosts)
    assert found["start_ns"] == 10**15
    assert found["close_ns"] == 10**15 + 10**9 + hosts - 1
    assert found["end_ns"] == 10**15 + 2 * 10**9
    assert found["outcomes"] == Counter(kind[0] for _, kind, _ in requests)
    assert found["histograms"].get("runtime", []) == cells_of(times)
    assert found["addresses"] == [{"target": 0, "address": "a", "connections": 2 * hosts}]
    assert found["residence_ns"] == (sum(times) // len(times) if times else None)
    counted = {(e["outcome"], e["status"], e["message"]): e["count"] for e in found["errors"]}
    assert counted == {kind: count for kind, count in expected.items() if kind[0] != "ok"}
    assert [error["id"] for error in found["errors"]] == list(range(len(found["errors"])))
    _, numbers = error_numbers([each["errors"] for each in outcomes])
    for host, each in enumerate(outcomes):
        for error in each["errors"]:
            new = found["errors"][numbers[host][error["id"]]]
            assert (new["outcome"], new["status"], new["message"]) == (
                error["outcome"],
                error["status"],
                error["message"],
            )


def test_the_gravest_reason_stands_and_one_full_disk_is_no_end() -> None:
    fine, full = empty_outcome(0, "duration"), empty_outcome(0, "failed", "No space left on device")
    stopped = empty_outcome(0, "stopped")
    both = merged_outcome(0, [fine, full], [0, 0])
    assert (both["stop_reason"], both["write_error"]) == ("duration", None)
    assert merged_outcome(0, [fine, stopped], [0, 0])["stop_reason"] == "stopped"
    assert merged_outcome(0, [full, full], [0, 0])["write_error"] == "No space left on device"


def progress(state: str, ok: int = 0, **failed: int) -> Any:
    counts = dict.fromkeys(("due", "sent", "in_flight", "waiting", "shed", "connects", "connections"), ok)
    rates = dict.fromkeys(("rate", "offered_rate", "sent_rate", "cpu_share"), 0.5)
    done = ok + sum(failed.values())
    times = {"elapsed_ns": ok, "schedule_ns": ok, "close_after_ns": None}
    return {"state": state, "ok": ok, "done": done, "failed": failed, **counts, **rates, **times}


def test_a_level_runs_while_one_host_sends() -> None:
    def state(*states: str) -> str:
        return merged_progress([progress(each) for each in states], Cells(), Cells())["state"]

    assert state("queued", "queued") == "queued"
    assert state("queued", "held") in ("queued", "held")
    assert state("queued", "running") == state("held", "done") == "running"
    assert state("draining", "running") == "running"
    assert state("done", "draining") == "draining"
    assert state("done", "done") == "done"


def test_failures_are_judged_over_all_hosts() -> None:
    def judged(stop: dict[str, Any], *parts: Any) -> bool:
        return too_many(merged_progress(parts, Cells(), Cells()), stop)

    share = {"max_error_share": 0.01, "min_errors": 10}
    assert not judged(share, progress("running", 0, timeout=9))
    assert judged(share, progress("running", 0, timeout=5), progress("running", 0, timeout=5))
    assert not judged(share, progress("running", 0, timeout=10), progress("running", 990))
    assert judged(share, progress("running", 0, timeout=10), progress("running", 989))
    assert not judged({"max_error_share": None}, progress("running", 0, timeout=99))
    assert judged({"max_error_share": 0.0, "min_errors": 1}, progress("running", 10**6, timeout=1))
    assert not judged({"max_error_share": 0.0, "min_errors": 1}, progress("running", 10, shed=3, cancelled=2))


def test_a_host_that_cannot_reach_the_target_is_named() -> None:
    good: Any = {"outcome": "ok", "status": None, "message": None, "service_ns": 5}
    bad: Any = {"outcome": "connect_error", "status": None, "message": "refused", "service_ns": None}
    assert merged_probe([("a", good), ("b", good)]) == good
    assert merged_probe([("a", good), ("b", bad)])["message"] == "from host b: refused"
