"""The HPA's rules against the controller of Kubernetes itself, on courses that nobody has seen before."""

from __future__ import annotations

import json
import secrets

import pytest

from scripts.peers import peer_folder, peer_pieces
from tests.autoscale.controller import COURSES, RECORDED, STEPS, controller_decisions
from tests.autoscale.courses import course
from tests.autoscale.test_hpa_rules import decisions


@pytest.fixture(scope="module")
def program():
    folder = peer_folder("hpa")
    if "program" not in peer_pieces(folder):
        pytest.skip("the peer hpa is not there: make peers")
    return folder / "bin" / "hpa"


def test_what_was_recorded_is_what_it_says(program) -> None:
    courses = [course(seed, STEPS) for seed in range(COURSES)]
    assert controller_decisions(program, courses) == json.loads(RECORDED.read_text(encoding="utf-8"))


def test_new_courses_are_decided_alike(program) -> None:
    first = 1000 + secrets.randbelow(10**9)
    courses = [course(first + each, steps=100) for each in range(200)]
    for each, (one, expected) in enumerate(zip(courses, controller_decisions(program, courses), strict=True)):
        found = [decision["replicas"] for decision in decisions(one)]
        assert found == expected, f"course({first + each}, steps=100)"
