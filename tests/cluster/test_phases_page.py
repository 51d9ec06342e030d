"""The page of phases names every phase, moment, outcome and rule, as they are."""

from __future__ import annotations

from pathlib import Path

from gpusize.cluster.phases.known_phases import DETAILED, GENERAL, PHASES, POD_PHASES
from gpusize.cluster.phases.outcomes import OUTCOMES
from gpusize.cluster.phases.rules import RULES
from gpusize.cluster.phases.thresholds import PRESETS
from gpusize.cluster.phases.workloads import GANG_MOMENTS, MOMENTS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "cluster-phases.md").read_text()


def test_phases() -> None:
    for each in (*PHASES.values(), *POD_PHASES.values()):
        some = "" if each.certain else "; only of those that came to it"
        layout = "general" if each.name in GENERAL else "detailed" if each.name in DETAILED else ""
        row = f"| `{each.name}` | `{each.start}` | `{each.end}` | {each.what}{some} | {layout} |"
        assert row in PAGE, row


def test_words() -> None:
    for name, what in (*OUTCOMES.items(), *RULES.items()):
        assert f"| `{name}` | {what} |" in PAGE
    for moment in (*MOMENTS, *GANG_MOMENTS):
        plain = moment.removeprefix("first_").removeprefix("quorum_").removeprefix("last_")
        assert f"`{plain}`" in PAGE, moment
    for preset in PRESETS:
        assert f"| `{preset}` |" in PAGE


def test_each_end_is_a_moment() -> None:
    assert {moment for each in PHASES.values() for moment in (each.start, each.end)} <= set(MOMENTS)
    assert {moment for each in POD_PHASES.values() for moment in (each.start, each.end)} <= set(GANG_MOMENTS)
