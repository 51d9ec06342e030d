"""`gpusize._core.WatchBook` beside plain Python, over random objects, and over lines that are no objects."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize._core import ObjectList, WatchBook
from tests.cluster.watch.pods import line
from tests.cluster.watch.random_objects import objects
from tests.cluster.watch.recorded import FOLDER, KINDS
from tests.cluster.watch.words_oracle import Oracle, Row

Item = dict[str, Any]


def rows_of(book: WatchBook) -> list[Row]:
    return [Row(*row) for row in pl.DataFrame(book.rows()).select(Row._fields).iter_rows()]


def take(book: WatchBook, kind: str, item: Item, at_ns: int, *, reported: bool) -> None:
    taken, _, _, ended = book.lines(kind, line("MODIFIED", item), at_ns, late=not reported)
    assert (taken, ended) == (1, None)


@settings(max_examples=100)
@given(st.lists(st.tuples(objects(), st.booleans()), max_size=12))
def test_objects_say_the_same_to_both(told: list[tuple[tuple[str, Item], bool]]) -> None:
    book, oracle = WatchBook(), Oracle()
    for place, ((kind, item), reported) in enumerate(told):
        take(book, kind, item, place, reported=reported)
        oracle.take(kind, item, place, reported=reported)
    assert rows_of(book) == oracle.rows


@given(st.lists(objects(), max_size=8))
def test_lists_say_what_lines_say(told: list[tuple[str, Item]]) -> None:
    lines, lists = WatchBook(), WatchBook()
    there: dict[str, dict[str, Item]] = {}
    for place, (kind, item) in enumerate(told):
        metadata = {**item["metadata"], "resourceVersion": str(place)}
        there.setdefault(kind, {})[metadata["uid"]] = {**item, "metadata": metadata}
        take(lines, kind, item, place, reported=False)
        listing = ObjectList(kind)
        # The other way to write the same: nothing escaped.
        page = {"metadata": {"resourceVersion": "9"}, "items": list(there[kind].values())}
        assert listing.add_page(json.dumps(page, ensure_ascii=False).encode()) is None
        assert lists.differs(listing)
        appeared, changed, vanished = lists.compare(listing, place)
        assert (len(appeared) + changed, vanished) == (1, [])
        assert (listing.version, len(listing), lists.objects(kind)) == ("9", len(there[kind]), len(there[kind]))
        assert not lists.differs(listing)
    assert rows_of(lists) == rows_of(lines)


@given(st.lists(objects(), min_size=1, max_size=8), st.data())
def test_a_second_command_knows_what_the_first_one_wrote(told: list[tuple[str, Item]], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(told)))
    first, second, whole = (WatchBook() for _ in range(3))
    take_all(first, told[:cut])
    written = pl.DataFrame(first.rows())
    second.remember(written.select("uid", "moment", "part", "source", "at_ns").rows())
    take_all(second, told)
    take_all(whole, told)
    both = [row[:6] for row in (*written.select(Row._fields).rows(), *rows_of(second))]
    assert len(set(both)) == len(both)
    assert set(both) == {row[:6] for row in rows_of(whole)}


def take_all(book: WatchBook, told: list[tuple[str, Item]]) -> None:
    for kind, item in told:
        take(book, kind, item, 1, reported=False)


def test_a_bookmark_ends_the_initial_lines_and_news_come_in_order() -> None:
    book = WatchBook(news=True)
    pod = {"metadata": {"name": "p", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-11-28T00:00:01Z"}}
    mark = {"metadata": {"resourceVersion": "8", "annotations": {"k8s.io/initial-events-end": "true"}}}
    later = {**pod, "status": {"phase": "Running"}}
    told = line("ADDED", pod) + line("BOOKMARK", mark) + b"\n" + line("MODIFIED", later) + line("DELETED", later)
    taken, version, initial, ended = book.lines("Pod", told, 5, initial=True)
    assert (taken, version, initial, ended) == (4, "7", False, None)
    assert book.objects("Pod") == 0
    assert [moment for *_, moment in book.news()] == ["created", "running", "deleted"]
    assert book.news() == []
    rows = pl.DataFrame(book.rows()).filter(pl.col("source") == "watch")
    assert dict(rows.select("moment", "reported").iter_rows()) == {"created": False, "running": True, "deleted": True}


def test_nothing_is_looked_at_after_a_line_that_ends_a_watch() -> None:
    pod = {"metadata": {"name": "p", "uid": "u", "resourceVersion": "7"}, "status": {"phase": "Running"}}
    status = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}
    for end, said in ((line("ERROR", status), (410, "Expired", "too old")), (b"no object\n", "expected ident")):
        book = WatchBook()
        taken, version, _, ended = book.lines("Pod", line("ADDED", pod) + end + line("DELETED", pod), 5)
        assert (taken, version, book.objects("Pod")) == (1, "7", 1)
        assert ended == said if isinstance(said, tuple) else str(ended).startswith(said)
        assert "deleted" not in pl.DataFrame(book.rows())["moment"].to_list()


@settings(max_examples=100)
@given(st.data())
def test_no_line_is_too_broken(data: st.DataObject) -> None:
    """Recorded lines cut off and changed somewhere: taken, or said to be no object; what came before them stands."""
    kind = data.draw(st.sampled_from(list(KINDS)))
    whole = data.draw(st.sampled_from((FOLDER / f"{KINDS[kind]}.jsonl").read_bytes().splitlines()))
    broken = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 4))):
        if broken:
            broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    book, first = WatchBook(), WatchBook()
    first.lines(kind, whole, 1)
    taken, _, _, ended = book.lines(kind, whole + b"\n" + bytes(broken), 1)
    assert taken >= 1
    if ended is not None:
        assert taken == 1 + bytes(broken).count(b"\n") or b"\n" in broken
        assert rows_of(book)[: len(first)] == rows_of(first)
