"""``run.json`` and ``level.json`` with one value changed: read as before, or one line that names it; never 70."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpusize.base.errors import StoreError
from gpusize.measure.recovery import finished_steps, recover
from gpusize.records.run_schema import read_checked
from gpusize.records.store import RunStore
from tests.cli.conftest import Gpusize
from tests.faults.folder_of_a_run import Folder

GONE = object()
VALUES: tuple[Any, ...] = (
    GONE,
    None,
    -3,
    0,
    2**70,
    1e308,
    float("nan"),
    "x",
    "",
    "\ud800",
    [],
    {},
    True,
    [1],
    {"a": None},
)
FILES = ("run.json", "levels/0001/level.json")
READ, COMMANDS = 400, 8
"""Mutations, of some 3,000, that are read, and that go through the commands: each of those takes half a second."""


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a document; of long lists the first two."""
    if place:
        yield place
    inside = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, each in inside:
        yield from places(each, (*place, key))


def changed(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    """The document with another value at one place."""
    made = copy.deepcopy(document)
    at = made
    for key in place[:-1]:
        at = at[key]
    if value is GONE:
        del at[place[-1]]
    else:
        at[place[-1]] = value
    return made


def mutations(folder: Folder, count: int) -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    """File, place and value of so many mutations, the file changed meanwhile."""
    whole = {name: folder.json(name) for name in FILES}
    every = [(name, place, value) for name in FILES for place in places(whole[name]) for value in VALUES]
    for name, place, value in random.Random(16).sample(every, count):
        folder.put(name, changed(whole[name], place, value))
        yield name, place, value
        folder.put(name, whole[name])


def refusal(file: Path) -> StoreError | None:
    """Why a file is not read; None where it is."""
    try:
        read_checked(file)
    except StoreError as error:
        return error
    return None


def test_one_changed_value_is_read_or_named(measured: Folder) -> None:
    refused = 0
    for name, place, value in mutations(measured, READ):
        error = refusal(measured.path / name)
        refused += error is not None
        if error is not None:
            named = [str(key) for key in place if not isinstance(key, int)]
            assert error.where == str(measured.path / name)
            assert any(key in error.what for key in (*named, "NaN", "schema version", "concurrency")), (place, value)
    assert refused > READ / 3


def test_no_changed_value_is_a_bug(gpusize: Gpusize, measured: Folder) -> None:
    for name, place, value in mutations(measured, COMMANDS):
        for command in (("estimate", "--json"), ("report", "--no-plots"), ("runs", "verify")):
            done = gpusize(*command, measured.path)
            assert done.code in {0, 1, 3}, (name, place, value, done.err)


def test_no_changed_value_stops_a_resume_with_a_bug(measured: Folder) -> None:
    for _ in mutations(measured, 40):
        with contextlib.suppress(StoreError), RunStore.reopen(measured.path) as store:
            recover(store)
            finished_steps(store.path)


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"schema": true}', '{"schema": 1e99}', "\xff"])
def test_what_is_no_object_of_ours_is_named(measured: Folder, text: str) -> None:
    file: Path = measured.path / "run.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(StoreError) as caught:
        read_checked(file)
    assert caught.value.where == str(file)


def test_a_newer_version_is_told_from_damage(measured: Folder) -> None:
    measured.put("run.json", {**measured.json("run.json"), "schema": 2})
    with pytest.raises(StoreError, match="newer gpusize"):
        read_checked(measured.path / "run.json")


def test_fields_of_a_later_version_may_stand_there(measured: Folder) -> None:
    known = json.loads(json.dumps(measured.json("run.json")))
    measured.put("run.json", {**known, "later": {"deep": [1, 2.5, None]}})
    assert read_checked(measured.path / "run.json")["later"] == {"deep": [1, 2.5, None]}
