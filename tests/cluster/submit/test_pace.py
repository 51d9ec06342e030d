"""Rounds and schedules by themselves: counts, order, and due times by closed form."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.cluster.submit.options import SubmitOptions
from gpusize.cluster.submit.pace import closed_rounds
from gpusize.cluster.submit.schedule import due_times
from gpusize.cluster.submit.workloads import Workload


class Rounds:
    """Takes workloads as a sender does; each is answered after so many turns of the loop."""

    def __init__(self, turns: list[int]) -> None:
        self.turns = itertools.cycle(turns)
        self.events: list[tuple[str, int]] = []
        self.due: list[int] = []

    async def send(self, workload: Workload, due_ns: int) -> None:
        self.events.append(("sent", workload.index))
        self.due.append(due_ns)
        for _ in range(next(self.turns)):
            await asyncio.sleep(0)
        self.events.append(("answered", workload.index))


@given(n=st.integers(1, 70), p=st.integers(1, 20), turns=st.lists(st.integers(0, 5), min_size=1, max_size=7))
def test_rounds_are_exact(n: int, p: int, turns: list[int]) -> None:
    rounds, now = Rounds(turns), itertools.count()
    workloads = (Workload(index, f"w-{index}", ()) for index in range(n))
    sender: Any = rounds
    asyncio.run(closed_rounds(sender, workloads, p, 0.0, asyncio.Event(), lambda: next(now)))
    sent = [index for what, index in rounds.events if what == "sent"]
    assert sent == list(range(n))
    sizes = [len(list(group)) for _, group in itertools.groupby(rounds.due)]
    assert sizes == [p] * (n // p) + ([n % p] if n % p else [])
    for number, (what, index) in enumerate(rounds.events):
        if what == "sent":
            answered = {i for w, i in rounds.events[:number] if w == "answered"}
            assert set(range(index // p * p)) <= answered


@pytest.mark.parametrize("rate", [0.5, 3.0, 128.0])
def test_constant_arrivals_have_equal_gaps(rate: float) -> None:
    due = due_times(SubmitOptions(num_workloads=50, rate=rate, process="constant")).to_list()
    assert len(due) == 50
    gaps = [b - a for a, b in itertools.pairwise(due)]
    assert max(abs(gap - 1e9 / rate) for gap in gaps) <= 1
    assert due[0] <= 1e9 / rate


def test_poisson_arrivals_have_the_rate_and_belong_to_their_seed() -> None:
    options = SubmitOptions(num_workloads=20_000, rate=50.0, seed=7)
    due = due_times(options)
    assert len(due) == 20_000
    assert due.is_sorted()
    # The time of 20,000 arrivals has a standard deviation of 0.7 %: five of them.
    assert due[-1] / 1e9 == pytest.approx(20_000 / 50, rel=0.035)
    assert due.equals(due_times(options))
    assert not due.equals(due_times(SubmitOptions(num_workloads=20_000, rate=50.0, seed=8)))


def test_stages_say_how_many_and_when() -> None:
    due = due_times(SubmitOptions(stages="2/s@10s, 0/s@5s, 10/s@4s", process="constant")).to_list()
    inside = [sum(low * 10**9 <= each < high * 10**9 for each in due) for low, high in ((0, 10), (10, 15), (15, 19))]
    assert inside == [20, 0, 40]
    assert len(due) == 60
