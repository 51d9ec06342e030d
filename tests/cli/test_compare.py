"""``gpusize compare``: folders in, table, Markdown, JSON and exit codes out."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

import gpusize as package
from tests.cli.conftest import Gpusize
from tests.estimate.virtual import level
from tests.whatif.folder import stored


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of each of three systems: the second is the first once more, the third takes half as long again."""
    out = tmp_path_factory.mktemp("runs")
    for name, slowness, first in (("old", 1.0, 0), ("same", 1.0, 10), ("slow", 1.5, 20)):
        for k in range(first, first + 3):
            known = [level(users, requests=200, slowness=slowness, seed=100 * k + users) for users in (4, 12)]
            about = {
                "schema": 1,
                "run": f"{name}-{k}",
                "created": f"2026-11-{k + 1:02d}T00:00:00Z",
                "labels": {"at": str(k % 10)},
            }
            stored(out / name, about, known)
    return out


def test_the_table_says_what_is_worse(gpusize: Gpusize, runs: Path) -> None:
    done = gpusize("compare", runs / "old", runs / "slow")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("slow against old: worse in ")
    [header] = [line for line in lines if "verdict" in line]
    assert [word for word in ("old", "slow", "change", "95 % interval", "could see") if word not in header] == []
    [row] = [line for line in lines if line.startswith("4 users")]
    assert "p50 runtime" in row
    assert " worse " in row


def test_a_gate_ends_with_1_where_the_evidence_carries_it(gpusize: Gpusize, runs: Path) -> None:
    done = gpusize(
        *("compare", runs / "old", runs / "slow", "--fail-if", "p50 runtime > +10%", "--junit", "gates.xml"),
        *("--fail-if", "p50 runtime at 4 users > +90%"),
    )
    assert done.code == 1
    assert done.complaint == "2 of 3 gates failed"
    assert done.out.count("failed: p50 runtime > +10%: p50 runtime at ") == 2
    assert "passed: p50 runtime at 4 users > +90%" in done.out
    root = ElementTree.parse("gates.xml").getroot()
    assert (root.get("tests"), root.get("failures")) == ("3", "2")
    fine = gpusize("compare", runs / "old", runs / "same", "--fail-if", "p50 runtime > +10%")
    assert (fine.code, fine.err) == (0, "")
    blind = gpusize("compare", runs / "old", runs / "same", "--fail-if", "p50 runtime at 12 > +2%")
    assert (blind.code, blind.complaint) == (2, "1 of 1 gates could not be judged")
    assert "beyond the bound, and runs differ too much to tell whether by chance" in blind.out


def test_a_gate_that_cannot_be_judged_does_not_pass(gpusize: Gpusize, runs: Path) -> None:
    single = ("compare", runs / "old" / "old-0", runs / "slow" / "slow-20", "--junit", "gates.xml")
    done = gpusize(*single, "--fail-if", "p50 runtime at 4 > +10%")
    assert (done.code, done.complaint) == (2, "1 of 1 gates could not be judged")
    assert "not judged: p50 runtime at 4 > +10%: p50 runtime at 4 users" in done.out
    root = ElementTree.parse("gates.xml").getroot()
    assert [root.get(name) for name in ("tests", "failures", "skipped", "errors")] == ["1", "0", "0", "1"]


def test_a_failed_gate_comes_before_one_that_could_not_be_judged(gpusize: Gpusize, runs: Path, tmp_path: Path) -> None:
    more = level(30, requests=200, seed=7)
    for k in range(3):
        about = {"schema": 1, "run": f"wide-{k}", "created": f"2026-10-{k + 1:02d}T00:00:00Z", "labels": {}}
        stored(
            tmp_path / "wide", about, [level(users, requests=200, seed=900 + k + users) for users in (4, 12)] + [more]
        )
    gate = ("--fail-if", "p50 runtime > +10%")
    done = gpusize("compare", tmp_path / "wide", runs / "slow", *gate, "--json")
    assert done.code == 1
    told = {each["load"]: (each["failed"], each["why_not"]) for each in json.loads(done.out)["gates"]}
    assert told == {"4 users": (True, None), "12 users": (True, None), "30 users": (False, "only wide has this load")}
    fine = gpusize("compare", tmp_path / "wide", runs / "old", *gate)
    assert (fine.code, fine.complaint) == (2, "1 of 3 gates could not be judged")
    named = gpusize("compare", tmp_path / "wide", runs / "old", "--fail-if", "p50 runtime at 4 users > +10%")
    assert named.code == 0


def test_json_and_python_say_the_same(gpusize: Gpusize, runs: Path) -> None:
    done = gpusize("compare", runs / "old", f"new={runs / 'slow'}", "--figure", "p50 runtime", "--json")
    told = json.loads(done.out)
    found = package.compare({"old": runs / "old", "new": runs / "slow"}, figures=["p50 runtime"])
    assert [each["change"] for each in told["differences"]] == [each.change for each in found.differences]
    assert [each["verdict"] for each in told["differences"]] == ["worse", "worse"]
    assert told["sides"] == [{"name": "old", "runs": 3}, {"name": "new", "runs": 3}]


def test_markdown(gpusize: Gpusize, runs: Path) -> None:
    done = gpusize("compare", runs / "old", runs / "same", "--format", "md", "--noise")
    lines = done.out.splitlines()
    assert lines[0].startswith("**same against old: no evidence of a difference")
    tables = [line for line in lines if line.startswith("|")]
    assert {line.count("|") for line in tables} == {9, 8}, "two tables, their rows as wide as their headers"


def test_one_side_and_its_noise(gpusize: Gpusize, runs: Path) -> None:
    done = gpusize("compare", runs / "old", "--noise")
    assert done.code == 0
    assert "old: 3 runs, held against each other" in done.out
    assert "from run to run" in done.out


def test_labels_choose_the_runs(gpusize: Gpusize, runs: Path) -> None:
    done = gpusize("compare", runs / "old", runs / "slow", "--label", "at=0", "--json")
    assert [each["runs"] for each in json.loads(done.out)["sides"]] == [1, 1]


@pytest.mark.parametrize(
    "argv, what",
    [
        (("old",), "old: one run has nothing to be compared with"),
        (("nowhere", "old"), "nowhere"),
        (("old", "old"), "two sides are named old"),
        (("a=old", "a=old"), "two sides are named a"),
        (("old", "b=old"), "a run is on the sides old and b. Give each side its own runs"),
        (("old", "b=slow", "--fail-if", "achieved rate < -100%"), "has no meaning: nothing changes anything by more"),
        (("old", "b=old", "--margin", "much"), "--margin: 'much' is not a share. Write it as 20% or 0.2"),
        (("old", "b=slow", "--margin", "0"), "--margin: must be above 0"),
        (("old", "b=old", "--figure", "p95"), "figure, column"),
        (("old", "b=old", "--fail-if", "slower"), "--fail-if: 'slower' is no gate. Write it as in: p95 runtime > +5%"),
        (("old", "b=slow", "--fail-if", "p95 runtime at 99 > 1%"), "--fail-if: nothing was compared at 99"),
        (("old", "b=old", "--junit", "x.xml"), "--junit: there are no gates to write"),
        (("old", "b=old", "--format", "html"), "--format: there is no format 'html'"),
    ],
)
def test_bad_input_is_named(gpusize: Gpusize, runs: Path, argv: tuple[str, ...], what: str) -> None:
    Path("old").symlink_to(runs / "old" / "old-0")
    Path("slow").symlink_to(runs / "slow" / "slow-20")
    done = gpusize("compare", *argv)
    assert done.code == 2
    assert what in done.err
    assert not done.out
