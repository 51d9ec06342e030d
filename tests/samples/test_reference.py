from __future__ import annotations

import re
from pathlib import Path

from gpusize.observe.metrics.known_series import MEANINGS
from gpusize.records.samples import FIELDS

PAGE = (Path(__file__).parents[2] / "docs/reference/samples.md").read_text("utf-8")


def test_the_reference_lists_every_meaning_with_its_names():
    rows = {
        cells[0].strip("`"): cells[1:]
        for line in PAGE.splitlines()
        if line.startswith("| `") and len(cells := [cell.strip() for cell in line.strip("| ").split(" | ")]) >= 5
    }
    for meaning in MEANINGS:
        unit, how, across, names = rows[meaning.name]
        assert (unit, how, across) == (meaning.unit, meaning.how, meaning.across)
        wanted = [name for rule in meaning.rules for name in (rule.series, rule.below) if name is not None]
        assert re.findall(r"`([^`]+)`", names) == wanted


def test_the_reference_lists_the_fields_of_a_row():
    assert ", ".join(f"`{name}`" for name in FIELDS) in PAGE
