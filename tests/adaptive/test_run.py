"""A search from Python: over a function, and when it is one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import gpusize
from gpusize.base.errors import UsageError
from gpusize.cli.exit_code import judge
from gpusize.estimate.search import visits

ROWS = gpusize.Dataset.from_prompt("x")
SLO = "p95 runtime <= 5s"


async def answers(_row: object) -> str:
    await asyncio.sleep(0.002)
    return "yes"


def test_slos_without_a_load_are_searched_for(tmp_path: Path) -> None:
    asked = gpusize.Adaptive(most_users=3)
    result = gpusize.run(answers, ROWS, slos=SLO, out=tmp_path, adaptive=asked)
    assert result.search is not None
    assert (result.search.reason, result.search.low, result.search.terms) == ("limit", 3.0, asked)
    # On a busy machine a load may be measured more than once.
    assert list(dict.fromkeys(level.concurrency for level in result.levels)) == [1, 2, 3]
    assert result.meta["options"]["most_users"] == 3
    # What is opened later says the same.
    assert gpusize.open_run(result.path).search == result.search


def test_no_search_without_slos_or_where_it_is_not_wanted(tmp_path: Path) -> None:
    load = gpusize.Load(concurrencies=(1,), passes=2)
    assert gpusize.run(answers, ROWS, load, slos=SLO, out=tmp_path).search is None
    result = gpusize.run(answers, ROWS, slos=SLO, out=tmp_path, adaptive=False)
    assert result.search is None
    assert [level.concurrency for level in result.levels] == [1, 2, 4, 8, 16, 32]


@pytest.mark.parametrize(
    "load, slos",
    [
        (gpusize.Load(concurrencies=(1, 2)), SLO),
        (gpusize.Load(duration_s=5), SLO),
        (gpusize.Load(passes=2), SLO),
        (gpusize.Load(rates=(3,), count=5), SLO),
        (gpusize.Load(stages="8@1m"), SLO),
        (gpusize.Load(sample_records=10), SLO),
        (None, None),
    ],
)
def test_what_contradicts_a_search_is_refused(load: gpusize.Load | None, slos: str | None, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        gpusize.run(answers, ROWS, load, slos=slos, out=tmp_path, adaptive=True)
    assert list(tmp_path.iterdir()) == []


async def marked(_row: object) -> str:
    with gpusize.call("llm"):
        await asyncio.sleep(0.002)
    return "yes"


def test_a_search_by_calls_ends_where_no_request_tells_of_any(tmp_path: Path) -> None:
    asked = gpusize.Adaptive(most_users=2)
    silent = gpusize.run(answers, ROWS, slos="p95 llm_latency <= 1s", out=tmp_path, adaptive=asked)
    assert silent.search is not None
    assert (silent.search.reason, silent.search.slo, silent.search.levels) == ("silent", "p95 llm_latency <= 1s", 1)
    assert judge(silent, []) == (1, "no request has data for p95 llm_latency <= 1s")
    no_data = silent.estimates(users=5, gpus=1)[0]
    assert no_data.reason.startswith("no level has data for p95 llm_latency <= 1s; gpusize.call")
    assert no_data.next_levels == ()
    told = gpusize.run(marked, ROWS, slos="p95 llm_latency <= 1s", out=tmp_path, adaptive=asked)
    assert told.search is not None
    assert (told.search.reason, told.search.low) == ("limit", 2)


def test_another_search_is_not_gone_on_with(tmp_path: Path) -> None:
    first = gpusize.run(answers, ROWS, slos=SLO, out=tmp_path, adaptive=gpusize.Adaptive(most_users=2))
    with pytest.raises(UsageError, match="the search differs"):
        gpusize.run(answers, ROWS, slos=SLO, resume=first.path, adaptive=gpusize.Adaptive(most_users=4))


def test_a_resumed_search_measures_again_what_the_generator_was_the_limit_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = gpusize.Adaptive(most_users=3)
    monkeypatch.setattr(visits, "unbelieved", lambda level: level.concurrency == 2)
    first = gpusize.run(answers, ROWS, slos=SLO, out=tmp_path, adaptive=asked)
    assert first.search is not None
    assert (first.search.reason, first.search.limited, first.search.loads) == ("limit", (2,), 3)
    assert [level.concurrency for level in first.levels].count(2) == 3
    count = len(first.levels)
    last = first.levels[-1].visit
    monkeypatch.setattr(visits, "unbelieved", lambda level: level.concurrency == 2 and level.visit <= last)
    again = gpusize.run(answers, ROWS, slos=SLO, out=tmp_path, adaptive=asked, resume=first.path)
    [new] = again.levels[count:]
    assert new.concurrency == 2
    assert [new.meta["search"][name] for name in ("why", "of", "part")] == ["repeat", "grow", 1]
    assert again.search is not None
    assert (again.search.reason, again.search.limited, again.search.low) == ("limit", (), 3.0)
    # With nothing left to be measured again, it is over at once.
    assert len(gpusize.run(answers, ROWS, slos=SLO, adaptive=asked, resume=first.path).levels) == count + 1
