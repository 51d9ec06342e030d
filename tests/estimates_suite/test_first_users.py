"""First users' systems get the right number or the right refusal: a part of the benchmark's 200, and their truths."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from benches.estimates.first_drive import search, sweep
from benches.estimates.first_servers import Constant, Dying, Limited, Linear, RateLimited, Server, Single
from benches.estimates.first_users import SEED, Case, draw, judge, main
from gpusize.analysis.slo import Slo
from gpusize.estimate.search import Adaptive

NUMBERS = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 18, 20, 21, 22, 23)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_first_users_system_gets_the_right_answer(number: int) -> None:
    found = judge(draw(number))
    assert found.right, (found.kind, found.way, found.said, found.wanted)


def test_the_part_has_every_kind_and_way() -> None:
    cases = [draw(number) for number in NUMBERS]
    assert len({case.kind for case in cases}) == 6
    assert {case.way for case in cases} == {"search", "sweep", "passes"}
    again, other = draw(4), draw(4, SEED + 1)
    assert (again.bound_s, again.users) == (cases[3].bound_s, cases[3].users) != (other.bound_s, other.users)


def settled(server: Server, users: int, rounds: int = 30) -> list[tuple[float, bool]]:
    """(runtime, ok) of requests of a closed loop, by turns and without the driver: the second half of them."""
    chance, free = random.Random(1), [k * server.idle_s / users for k in range(users)]
    seen: list[tuple[float, bool]] = []
    busy: list[float] = []
    for _ in range(rounds * users):
        user = min(range(users), key=free.__getitem__)
        now = free[user]
        busy = [end for end in busy if end > now]
        answer = server.begin(now, len(busy), chance.random())
        free[user] = now + answer.took_s
        busy += [free[user]] if answer.outcome == "ok" else []
        seen.append((answer.took_s, answer.outcome == "ok"))
    return seen[len(seen) // 2 :]


@pytest.mark.parametrize(
    "make, bound_s, capacity",
    [
        (lambda: Linear(0.2, 0.025), 0.41, 8),
        (lambda: Single(0.1), 0.55, 5),
        (lambda: Limited(0.1, 6), 0.5, 6),
        (lambda: RateLimited(0.1, 65.0), 0.5, 6),
        (lambda: Constant(0.1), 0.2, math.inf),
        (lambda: Constant(0.1), 0.05, 0),
    ],
)
def test_the_closed_form_is_what_a_closed_loop_shows(
    make: Callable[[], Server], bound_s: float, capacity: float
) -> None:
    assert make().capacity(bound_s) == capacity

    def kept(users: int) -> float:
        seen = settled(make(), users)
        return sum(ok and took_s <= bound_s for took_s, ok in seen) / len(seen)

    most = 40 if math.isinf(capacity) else int(capacity)
    if most:
        assert kept(most) == 1
    if math.isfinite(capacity):
        assert kept(most + 1) < 0.95


def test_a_server_that_dies_answers_nobody_again() -> None:
    slo = Slo.parse("p95 runtime <= 1s")
    for levels in (
        sweep(Dying(Constant(0.1), 60), 1),
        search(Dying(Constant(0.1), 60, end="silent"), 1, slo, Adaptive(budget=2000)),
    ):
        assert "ok" not in levels[-1].outcomes()
        assert levels[-1].concurrency == 1, "the lowest load was looked at before it was given up"


def test_a_wrong_number_is_called_wrong() -> None:
    case = Case(0, "linear in load", lambda: Linear(0.2, 0.025), 0.41, 36, "sweep", 8.0)
    assert judge(case).right
    assert not judge(replace(case, capacity=2.0)).right
    assert not judge(replace(case, capacity=math.inf)).right
    assert not judge(replace(case, dies=True)).right


def test_the_command_prints_its_table_and_its_bar(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--count", "4", "--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    assert "First users' systems" in printed
    assert "BAR estimate_first_users_right 1 " in printed
