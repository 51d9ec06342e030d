"""A target that fails: the visits that count for nothing are told from those of the same load that do."""

from __future__ import annotations

from dataclasses import replace

from gpusize.analysis.level import LevelData
from gpusize.estimate.evidence import evidence
from gpusize.records.schema import OUTCOMES
from tests.analysis.synthetic import MS, closed, level


def visit(number: int, users: int, *, dead: bool) -> LevelData:
    columns = closed(users, lambda _: 50 * MS, count=200)
    if dead:
        columns["outcome"] = [OUTCOMES.index("connect_error")] * len(columns["due_ns"])
    made = level(users, columns, visit=number, gpus=1, count=200, state="interrupted" if dead else "done")
    return replace(made, meta={**made.meta, "stop_reason": "errors" if dead else "count"})


def test_loads_that_held_before_are_named_by_their_visits() -> None:
    levels = [visit(k, users, dead=k >= 2) for k, users in enumerate((4, 8, 12, 16, 8, 4))]
    found = evidence(levels)
    assert [each.visit for each in found.kept] == [0, 1]
    [text] = [each for each in found.warnings if each.startswith("left out")]
    assert text.endswith(
        "whatever the load: concurrency 12, 16, and concurrency 4, 8 when sent again (levels 5, 6 of the run)"
    )


def test_a_load_that_was_sent_again_alone_is_one_level() -> None:
    levels = [visit(k, users, dead=k >= 1) for k, users in enumerate((4, 12, 4))]
    [text] = [each for each in evidence(levels).warnings if each.startswith("left out")]
    assert text.endswith("concurrency 12, and concurrency 4 when sent again (level 3 of the run)")
