"""A feed over every course of connections: what it stamps is the truth, but for the gaps that it states."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize.cluster.access.api import Answer, Resource
from gpusize.cluster.access.refused import KubeRefused
from gpusize.cluster.access.stream import Broken
from gpusize.cluster.clock import CLIENT
from gpusize.cluster.tables import CLIENT_CLOCK, SERVER_CLOCK
from gpusize.cluster.watch import feed as feeds
from gpusize.cluster.watch.feed import Feed
from gpusize.cluster.watch.kinds import Watched
from gpusize.cluster.watch.stamp_book import StampBook
from tests.cluster.watch.pods import STATES, line, pod, stamps, take

Entry = tuple[str, dict[str, Any]]
PODS = Resource("v1", "Pod", "pods", namespaced=True)
ENDS = ("end", "drop", "line", "garbage", "expired")


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    """Lines of a watch of some pods: each goes from state to state, may skip some, and may be deleted anywhere."""
    lives = []
    for number in range(draw(st.integers(1, 4))):
        states = [state for state in STATES if state == "new" or draw(st.booleans())]
        lives.append([(number, state) for state in states] + [(number, "gone")] * draw(st.integers(0, 1)))
    lines: list[Entry] = []
    seen: set[int] = set()
    while any(lives):
        life = draw(st.sampled_from([each for each in lives if each]))
        number, state = life.pop(0)
        if state == "gone":
            lines.append(("DELETED", versioned(last(lines, number), len(lines))))
        else:
            lines.append(("MODIFIED" if number in seen else "ADDED", versioned(pod(number, state), len(lines))))
        seen.add(number)
    return lines


def last(lines: list[Entry], number: int) -> dict[str, Any]:
    return next(item for _, item in reversed(lines) if item["metadata"]["uid"] == f"uid-{number}")


def versioned(item: dict[str, Any], place: int) -> dict[str, Any]:
    return {**item, "metadata": {**item["metadata"], "resourceVersion": str(place + 1)}}


@dataclass
class Server:
    """Plays a history: each connection brings some lines and ends somehow; the last one brings the rest.

    Attributes:
        now: how many lines of the history have happened.
        skipped: intervals of lines that no watch told, as the version was forgotten.
        told: places of the lines that came.
        listed: what lists have shown: how many lines had happened.
        carried: the version of the last line, or list, which the next watch has to go on from.
    """

    history: list[Entry]
    script: list[tuple[int, str, int]]
    watch_lists: bool
    now: int = 0
    skipped: list[tuple[int, int]] = field(default_factory=list)
    told: set[int] = field(default_factory=set)
    listed: list[int] = field(default_factory=list)
    carried: str = ""
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def alive(self, at: int | None = None) -> dict[str, dict[str, Any]]:
        """The objects after so many lines, by uid."""
        found: dict[str, dict[str, Any]] = {}
        for what, item in self.history[: self.now if at is None else at]:
            uid = item["metadata"]["uid"]
            if what == "DELETED":
                found.pop(uid)
            else:
                found[uid] = item
        return found

    async def ask(self, _method: str, _path: str, **_: Any) -> Answer:
        """A list."""
        self.listed.append(self.now)
        self.carried = str(self.now)
        body = {"metadata": {"resourceVersion": str(self.now)}, "items": list(self.alive().values())}
        return Answer(200, {}, json.dumps(body).encode())

    @asynccontextmanager
    async def open(self, _access: Any, _path: str, params: dict[str, str], **_: Any) -> AsyncIterator[Any]:
        """A watch."""
        if "sendInitialEvents" in params and not self.watch_lists:
            raise KubeRefused.answered(422, b"{}", "GET pods")
        yield self._lines(params)

    async def _lines(self, params: dict[str, str]) -> AsyncIterator[tuple[int, bytes]]:
        if "sendInitialEvents" in params:
            self.listed.append(self.now)
            for item in self.alive().values():
                yield CLIENT.now_ns(), line("ADDED", item)
            notes = {"k8s.io/initial-events-end": "true"}
            mark = {"metadata": {"resourceVersion": str(self.now), "annotations": notes}}
            yield CLIENT.now_ns(), line("BOOKMARK", mark)
            at, self.carried = self.now, str(self.now)
        else:
            assert params["resourceVersion"] == self.carried
            at = self.now  # a line that came twice has an old version; the server does not go back by it
        count, how, again = self.script.pop(0) if self.script else (len(self.history), "stay", 0)
        if how == "expired":
            self.skipped.append((at, min(len(self.history), at + count)))
            self.now = min(len(self.history), at + count)
            said = {"kind": "Status", "metadata": {}, "status": "Failure", "code": 410, "reason": "Expired"}
            yield CLIENT.now_ns(), line("ERROR", said)
            return
        # Lines that come twice, as after a cache of the server was changed under it.
        for place in [*range(max(0, at - again), at), *range(at, min(len(self.history), at + count))]:
            if place < at and place not in self.told:
                continue
            self.told.add(place)
            self.now = max(self.now, place + 1)
            self.carried = str(place + 1)
            yield CLIENT.now_ns(), line(*self.history[place])
        if how == "stay":
            self.done.set()
            await asyncio.Event().wait()
        if how == "garbage":
            yield CLIENT.now_ns(), b"no object\n"
        if how in ("drop", "line"):
            raise Broken("the watch broke off")


NOWHERE = Path("/nonexistent/gpusize")
"""No folder: nothing was stamped before, and nothing is written."""


def stamped(entries: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    """What the server's times in these versions say, each taken alone and in order."""
    book = StampBook(NOWHERE, ["Pod"])
    for item in entries:
        take(book, "Pod", item, 1)
    return times_of(book.frame())


def times_of(rows: pl.DataFrame) -> set[tuple[Any, ...]]:
    server = rows.filter(pl.col("clock") == SERVER_CLOCK)
    return set(server.select("uid", "part", "moment", "source", "at_ns", "workload", "reason").iter_rows())


async def play(server: Server) -> tuple[Feed, dict[str, int], pl.DataFrame]:
    """Follow until the history is over, and reconcile."""
    book = StampBook(NOWHERE, ["Pod"])
    api: Any = SimpleNamespace(access=None, ask=server.ask)
    feed = Feed(api, Watched(PODS), "team", book)
    task = asyncio.create_task(feed.follow())
    waits = asyncio.create_task(server.done.wait())
    await asyncio.wait({task, waits}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    found = await feed.reconcile()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return feed, {"appeared": found.appeared, "changed": found.changed, "vanished": found.vanished}, book.frame()


@settings(max_examples=150)
@given(
    histories(),
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from(ENDS), st.integers(0, 3)), max_size=8),
    st.booleans(),
)
def test_what_is_stamped_is_the_truth_but_for_the_gaps_that_are_stated(
    history: list[Entry], script: list[tuple[int, str, int]], watch_lists: bool
) -> None:
    server = Server(history, script, watch_lists)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feeds, "open_lines", server.open)
        patch.setattr(feeds, "_PAUSE_S", (0.0, 0.0))
        feed, last_list, rows = asyncio.run(play(server))
    shown = [history[place][1] for place in sorted(server.told)]
    shown += [item for count in server.listed for item in server.alive(count).values()]
    assert times_of(rows) == stamped(shown)
    # What is missing of the truth happened in lines that no watch told, and a gap stands for each of those times.
    untold = set(range(len(history))) - server.told
    assert untold == {place for begin, end in server.skipped for place in range(begin, end)} - server.told
    gaps = [each for each in feed.lost if each.relisted and "410" in each.why]
    assert len(gaps) == len(server.skipped)
    for gap, (begin, end) in zip(gaps, server.skipped, strict=True):
        before, after = server.alive(begin), server.alive(end)
        both = before.keys() & after.keys()
        assert gap.appeared == len(after.keys() - before.keys())
        assert gap.vanished == len(before.keys() - after.keys())
        assert gap.changed == sum(before[uid] != after[uid] for uid in both)
        assert gap.from_ns <= gap.to_ns
        assert sorted(gap.vanished_names) == sorted(
            before[uid]["metadata"]["name"] for uid in before.keys() - after.keys()
        )
    assert last_list == {"appeared": 0, "changed": 0, "vanished": 0}
    assert_deletions(server, rows)


def assert_deletions(server: Server, rows: pl.DataFrame) -> None:
    """Each object that was seen and is gone has one such stamp; a watch reported it unless a list came first."""
    seen = {server.history[place][1]["metadata"]["uid"] for place in server.told}
    seen |= {uid for count in server.listed for uid in server.alive(count)}
    gone = seen - server.alive().keys()
    deleted = rows.filter(pl.col("moment") == "deleted")
    assert sorted(deleted["uid"]) == sorted(gone)
    hidden = {place for begin, end in server.skipped for place in range(begin, end)}
    told = {
        server.history[place][1]["metadata"]["uid"]
        for place in server.told - hidden
        if server.history[place][0] == "DELETED"
    }
    assert dict(deleted.select("uid", "reported").iter_rows()) == {uid: uid in told for uid in gone}


@given(histories(), st.randoms(use_true_random=False))
def test_lines_in_any_order_and_number_give_the_same_stamps(history: list[Entry], random: Any) -> None:
    lines = [item for _, item in history]
    mixed = [*lines, *random.choices(lines, k=len(lines))]
    random.shuffle(mixed)
    assert stamped(mixed) == stamped(lines)


@given(histories(), st.randoms(use_true_random=False))
def test_a_watch_stamps_the_first_line_that_shows_a_moment_once(history: list[Entry], random: Any) -> None:
    lines = [item for what, item in history if what != "DELETED"]
    mixed = [*lines, *random.choices(lines, k=len(lines))]
    book = StampBook(NOWHERE, ["Pod"])
    for place, item in enumerate(mixed):
        take(book, "Pod", item, place)
    rows = book.frame().filter(pl.col("clock") == CLIENT_CLOCK)
    created = dict(rows.filter(pl.col("moment") == "created").select("uid", "at_ns").iter_rows())
    first: dict[str, int] = {}
    for place, item in enumerate(lines):
        first.setdefault(item["metadata"]["uid"], place)
    assert created == first
    assert rows.select("uid", "part", "moment").is_unique().all()


def test_a_second_command_stamps_nothing_twice(tmp_path: Path) -> None:
    # Each command lists first, and then watches.
    for listed, told in (("new", "started"), ("started", "ready"), ("ready", "ended"), ("ended", "ended")):
        book = StampBook(tmp_path, ["Pod"])
        take(book, "Pod", pod(1, listed), 5, reported=False)
        take(book, "Pod", pod(1, told), 6)
        asyncio.run(book.flush(last=True))
    rows = stamps(tmp_path)
    assert rows.select("uid", "part", "moment", "source").is_unique().all()
    moments = {"created", "scheduled", "bound", "started", "running", "ready", "succeeded"}
    assert set(rows.filter(pl.col("source") == "watch")["moment"]) == moments
