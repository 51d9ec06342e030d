"""The HPA decides as the controller of Kubernetes 1.37.2 did, which was run on the same courses."""

from __future__ import annotations

import itertools
import json

import pytest

from gpusize import _core
from gpusize.base.errors import UsageError
from tests.autoscale.controller import RECORDED, STEPS
from tests.autoscale.courses import course


def decisions(one: dict) -> list[dict]:
    told = _core.hpa_decisions(json.dumps(one["policy"]), one["initial"], json.dumps(one["steps"]))
    found: list[dict] = json.loads(told)
    return found


def test_each_step_of_each_course_is_the_controllers() -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    reasons = set()
    changes = 0
    for seed, expected in enumerate(recorded):
        found = decisions(course(seed, STEPS))
        assert [each["replicas"] for each in found] == expected, f"course {seed}"
        reasons |= {each["reason"] for each in found}
        changes += sum(a != b for a, b in itertools.pairwise(expected))
    # The courses reach every rule, so that a wrong one shows.
    assert reasons == {"metrics", "metric_failed", "stabilized", "rate_limited", "bounds", "disabled"}
    assert len(recorded) == 200
    assert changes > 400


def test_a_decision_says_what_each_metric_asked_for() -> None:
    policy = {
        "max_replicas": 10,
        "metrics": [
            {"source": "external", "target": {"average_value": 2000}},
            {"source": "external", "target": {"value": 1000}},
        ],
    }
    pods = [{"phase": "running", "ready": True}] * 2
    seen = [
        {"now_ns": 0, "status_replicas": 2, "pods": pods, "readings": [{"values": [9000]}, {"values": [1500]}]},
        {"now_ns": 15 * 10**9, "status_replicas": 5, "pods": pods, "readings": ["failed", {"values": [1000]}]},
    ]
    told = json.loads(_core.hpa_decisions(json.dumps(policy), 2, json.dumps(seen)))
    assert told == [
        # 9 / 2 is 4.5; half as much again as wanted on 2 ready pods is 3: the most counts, up to 4 at once.
        {"replicas": 4, "asked": 5, "proposals": [5, 3], "reason": "rate_limited"},
        # One failed, and the other would change nothing; the 5 of before counts still, and may be reached now.
        {"replicas": 5, "asked": 4, "proposals": [None, 4], "reason": "stabilized"},
    ]


@pytest.mark.parametrize(
    "change, problem",
    [
        ({"max_replicas": 0}, "max_replicas must be at least min_replicas and 1, not 0"),
        ({"metrics": []}, "metrics must have at least one"),
        ({"metrics": [{"source": "pods", "target": {"value": 1}}]}, "metrics[0].target is none that"),
        ({"metrics": [{"source": "external", "target": {"value": 0}}]}, "metrics[0].target must be above 0"),
        ({"min_replicas": 0, "metrics": [{"source": "cpu", "target": {"utilization": 5}}]}, "min_replicas must be"),
        ({"unknown": 1}, "unknown field `unknown`"),
    ],
)
def test_a_policy_that_the_api_server_would_refuse_is_refused(change: dict, problem: str) -> None:
    policy = {"max_replicas": 3, "metrics": [{"source": "external", "target": {"value": 1}}], **change}
    with pytest.raises(UsageError) as raised:
        _core.hpa_decisions(json.dumps(policy), 1, "[]")
    assert problem in str(raised.value)
