"""docs/reference/faults.md says what the matrix says."""

from __future__ import annotations

from tests.faults.page import PAGE, START, STOP, tables


def test_the_page_has_the_matrix_of_today() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.partition(START)[2].partition(STOP)[0] == tables(), "python -m tests.faults.page writes it anew"
