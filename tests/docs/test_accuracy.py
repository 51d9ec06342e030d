"""The scoreboard says what was recorded: every number of a table stands in the entry that the table names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "accuracy.md").read_text("utf-8")
ENTRIES = (ROOT / "benches" / "RESULTS.md").read_text("utf-8").split("\n## ")[1:]
TABLES = re.findall(r"From `([^`]+)`:\n\n((?:(?:\|.*\n)+\n?)+)", PAGE)
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*\w)")


def cells(table: str) -> list[str]:
    """Cells of one table, or of several that follow each other; those with words in them are names."""
    found = [cell.strip() for row in table.strip().split("\n") for cell in row.strip("|").split("|")]
    return [cell for cell in found if not re.search("[a-z]{3}", cell)]


@pytest.mark.parametrize("entry, table", TABLES, ids=[entry for entry, _ in TABLES])
def test_the_numbers_are_those_that_were_recorded(entry: str, table: str) -> None:
    [recorded] = [text for text in ENTRIES if text.startswith(entry)]
    known = set(NUMBER.findall(recorded))
    said = [number for cell in cells(table) for number in NUMBER.findall(cell)]
    assert said
    assert not [number for number in said if number not in known]


def test_every_table_names_its_entry() -> None:
    tables = re.findall(r"^\|[-|]+\|$", PAGE, re.MULTILINE)
    assert len(tables) == sum(len(re.findall(r"^\|[-|]+\|$", table, re.MULTILINE)) for _, table in TABLES) >= 8
