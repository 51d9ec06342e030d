"""Why levels broke, told from what came after them."""

from __future__ import annotations

import pytest

from gpusize.analysis.broken import Look, alike, broke, causes, check_load, has_failed

HELD, FELL, BUSY = "held", "fell", "busy"


def looks(*visits: tuple[int, str]) -> list[Look]:
    return [Look(load, how != HELD, how == BUSY) for load, how in visits]


@pytest.mark.parametrize(
    "visits, expected",
    [
        # Nobody looked: the failures themselves have to say it.
        ([(1, HELD), (2, HELD), (4, FELL)], ["unknown"]),
        ([(1, HELD), (2, HELD), (4, BUSY)], ["load"]),
        # A lower load held afterwards, however the failures looked.
        ([(1, HELD), (2, HELD), (4, FELL), (2, HELD)], ["load"]),
        # One that had held broke as well: then so did all until it held again.
        ([(1, HELD), (2, HELD), (4, BUSY), (8, BUSY), (2, BUSY), (1, BUSY), (16, BUSY)], ["failed"] * 5),
        ([(1, HELD), (4, FELL), (1, FELL), (4, HELD), (8, FELL), (4, HELD)], ["failed", "failed", "load"]),
        # Near the capacity a load may hold once and break once: the lowest tells.
        ([(1, HELD), (8, HELD), (16, BUSY), (8, BUSY), (1, HELD)], ["load", "passing"]),
        # As many held at another time: it has to come again.
        ([(1, HELD), (4, FELL), (8, HELD)], ["passing"]),
        ([(8, HELD), (4, FELL), (2, HELD), (4, FELL), (2, HELD)], ["load", "load"]),
        # A load that never held tells nothing of a larger one, of which it is a harder case only for a dead target.
        ([(8, BUSY), (4, BUSY), (2, HELD)], ["load", "load"]),
        ([(1, FELL), (1, FELL)], ["unknown", "unknown"]),
        # Above a load that broke it nobody has to look again.
        ([(1, HELD), (4, FELL), (1, HELD), (8, FELL)], ["load", "load"]),
    ],
)
def test_failures_are_of_the_load_or_of_the_target(visits: list[tuple[int, str]], expected: list[str]) -> None:
    assert [cause for cause in causes(looks(*visits)) if cause is not None] == expected


@pytest.mark.parametrize(
    "lower, here, cause",
    [
        # A bad row, in a level of four requests; 2 % of errors at any load.
        ((0, 4), (1, 4), "alike"),
        ((1, 60), (2, 12), "alike"),
        ((10, 80), (2, 16), "alike"),
        # More than chance makes of it.
        ((0, 40), (5, 20), "load"),
        ((1, 60), (5, 30), "load"),
        # Most of them, however few there were.
        ((0, 2), (3, 4), "load"),
        # Nobody counted.
        ((0, 0), (0, 0), "load"),
    ],
)
def test_failures_that_come_at_any_load_are_not_of_the_load(
    lower: tuple[int, int], here: tuple[int, int], cause: str
) -> None:
    low, broken = Look(1, False, False, False, *lower), Look(8, True, False, False, *here)
    assert causes([low, broken, Look(1, broke=False)]) == [None, cause, None]
    # What load brings, as timeouts, is of the load all the same.
    assert causes([low, broken._replace(brought=True), Look(1, broke=False)])[1] == "load"


def broken(load: float, failed: int, ended: int) -> Look:
    return Look(load, broke=True, failed=failed, ended=ended)


def test_a_target_of_which_a_part_died_has_failed() -> None:
    """One of two backends is gone: the lowest load that had held fails as often as any other."""
    held = [Look(load, broke=False, ended=40) for load in (1, 2, 4)]
    gone = [broken(load, 8, 20) for load in (8, 4, 1)]
    assert causes([*held, *gone])[3:] == ["failed"] * 3
    # One of ten in ten is chance at the lowest load, and so it is no more at the others.
    assert causes([*held, broken(8, 1, 20), broken(1, 1, 10)])[3] == "alike"
    assert causes([*held, broken(8, 9, 20), broken(1, 1, 10)])[3] == "load"


def test_a_share_that_fails_at_every_load_is_of_none() -> None:
    every = [broken(2, 4, 106), broken(4, 10, 161), broken(8, 9, 214), broken(12, 5, 218)]
    assert alike(every) == pytest.approx(28 / 699)
    assert alike(every[:1]) == 0, "a lower load may tell"
    assert alike([broken(1, 4, 106)]) > 0
    assert alike([]) == 0
    for other in (
        broken(16, 40, 200),
        Look(16, broke=False, ended=100),
        broken(16, 4, 100)._replace(brought=True),
        broken(16, 4, 100)._replace(fading=True),
    ):
        assert alike([*every, other]) == 0
    assert alike([broken(load, 60, 200) for load in (1, 2, 4)]) == 0, "of a half the target is to be asked"


def test_a_load_below_which_none_held_is_held_against_none() -> None:
    assert causes([Look(8, broke=False, ended=40), *(broken(load, 2, 10) for load in (4, 4, 2))])[1:] == ["failed"] * 3


def test_a_target_that_answers_most_requests_has_not_failed() -> None:
    """24 of 25 at the lowest load, after an overload whose last requests were still in its hands."""
    held, over = Look(1, broke=False, ended=40), Look(16, broke=True, brought=True, failed=30, ended=40)
    again = Look(1, broke=True, failed=1, ended=25)
    assert causes([held, over, again])[1] == "load"
    assert not has_failed([held, over, again])
    for dead in (again._replace(failed=13), again._replace(fading=True), Look(1, broke=True)):
        assert causes([held, over, dead])[1] == "failed"


def test_the_last_request_before_a_target_is_found_dead_died_with_it() -> None:
    fading = Look(2, broke=False, fading=True)
    dead = [Look(1, broke=False), fading, Look(4, broke=True), Look(1, broke=True)]
    assert causes(dead) == [None, "failed", "failed", "failed"]
    # It never held for a whole level, but did until a moment, and then not even once more at the lowest load.
    assert causes([Look(1, broke=True, fading=True), Look(1, broke=True, brought=True)])[0] == "failed"
    # One failure at the end of a level, and all well after it, is nothing.
    assert causes([Look(1, broke=False), fading, Look(4, broke=False)]) == [None, None, None]


@pytest.mark.parametrize(
    "visits, load, failed",
    [
        ([(1, HELD), (2, HELD)], None, False),
        ([(1, HELD), (2, HELD), (4, FELL)], 2, False),
        ([(1, HELD), (2, HELD), (4, FELL), (8, FELL)], 2, False),
        ([(1, HELD), (2, HELD), (4, FELL), (2, HELD)], None, False),
        ([(1, HELD), (2, HELD), (4, FELL), (2, FELL)], 1, False),
        ([(1, HELD), (2, HELD), (4, FELL), (2, FELL), (1, FELL)], None, True),
        ([(1, HELD), (2, HELD), (4, FELL), (2, FELL), (1, HELD)], None, False),
        ([(1, FELL)], None, False),
        ([(1, HELD), (4, FELL), (1, HELD), (8, FELL)], None, False),
        # At a load that had held itself, something lower tells.
        ([(1, HELD), (4, HELD), (4, FELL)], 1, False),
    ],
)
def test_the_load_to_look_at_is_the_largest_that_held_below(
    visits: list[tuple[int, str]], load: float | None, failed: bool
) -> None:
    assert (check_load(looks(*visits)), has_failed(looks(*visits))) == (load, failed)


@pytest.mark.parametrize(
    "state, meta, expected",
    [
        ("interrupted", {}, True),
        ("done", {"stop_reason": "count", "outcomes": {"ok": 99, "timeout": 1}}, False),
        ("done", {"stop_reason": "saturation"}, True),
        # However many failures the user allows, half of them is no measurement of times.
        ("done", {"stop_reason": "count", "outcomes": {"ok": 5, "connect_error": 5}}, True),
        # What was shed was never asked of the target.
        ("done", {"stop_reason": "duration", "outcomes": {"ok": 5, "shed": 50}}, False),
        ("cancelled", {"outcomes": {"connect_error": 5}}, False),
    ],
)
def test_a_level_broke_when_it_was_stopped_or_mostly_failed(
    state: str, meta: dict[str, object], expected: bool
) -> None:
    assert broke(state, meta) is expected


def test_a_level_that_ends_with_its_first_failure_fails_like_the_others() -> None:
    """With passes nothing is answered after the first failure, at one user least of all; a dead target answers none."""
    one = Look(1, True, fading=True, failed=1, ended=20)
    assert alike([one, Look(2, True, fading=True, failed=1, ended=34)]) == pytest.approx(2 / 54)
    assert alike([Look(1, True, fading=True, failed=1, ended=1), Look(2, True, fading=True, failed=2, ended=2)]) == 0.0
    assert alike([one, Look(2, True, fading=True, failed=3, ended=60)]) == 0.0
