"""KEDA's rules as KEDA 2.20.2 itself followed them on the same courses, and formulas as Expr evaluated them there."""

from __future__ import annotations

import gzip
import json
import math
from typing import Any

import pytest

from gpusize import _core
from gpusize.base.errors import UsageError
from tests.autoscale.keda_courses import course
from tests.autoscale.keda_peer import COURSES, FORMULAS, RECORDED, formulas, shortened
from tests.autoscale.test_keda_rules import outcomes


@pytest.fixture(scope="module")
def recorded() -> Any:
    return json.loads(gzip.decompress(RECORDED.read_bytes()))


def test_each_poll_and_each_answer_is_kedas(recorded: Any) -> None:
    assert len(recorded["courses"]) == COURSES
    answers = 0
    for seed, expected in enumerate(recorded["courses"]):
        assert shortened(outcomes(course(seed))) == expected, f"course({seed})"
        answers += sum(isinstance(each, int) for each in expected)
    assert answers > 5000


def test_each_formula_comes_to_what_it_came_to_there(recorded: Any) -> None:
    asked = formulas(1, FORMULAS)
    assert len(recorded["formulas"]) == len(asked)
    values = lenient = 0
    for one, expected in zip(asked, recorded["formulas"], strict=True):
        try:
            found = _core.keda_formula(one["text"], list("abc"), one["values"])
        except UsageError:
            assert expected in ("refused", "failed"), one
            continue
        if expected in ("refused", "failed"):
            lenient += 1
            continue
        values += 1
        if isinstance(expected, str):
            assert found is not None
            assert {"+Inf": math.inf, "-Inf": -math.inf}.get(expected, math.nan) == found or math.isnan(found), one
        else:
            assert found == (None if expected is None else pytest.approx(expected, rel=1e-12)), one
    assert values > 1000
    # What cannot be in a branch that is not taken is refused there more often than here.
    assert lenient <= 0.002 * FORMULAS
