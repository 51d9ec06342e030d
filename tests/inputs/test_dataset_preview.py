"""What `gpusize dataset show` says of rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpusize.workload.dataset import Dataset
from gpusize.workload.dataset.preview import describe


def told(tmp_path: Path, *rows: dict[str, Any]) -> list[str]:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return describe(Dataset.read(str(file)))


def test_lengths_that_are_none_are_named_and_in_no_figure(tmp_path: Path) -> None:
    lines = told(
        tmp_path,
        {"prompt": "a", "output_tokens": 4, "input_tokens": 0},
        {"prompt": "b", "output_tokens": -5, "input_tokens": 7},
        {"prompt": "c", "output_tokens": "ten"},
        {"prompt": "d", "output_tokens": True},
        {"prompt": "e", "output_tokens": None},
        {"prompt": "f", "output_tokens": 8},
    )
    assert "output_tokens: mean 6.0, least 4, median 4, most 8" in lines
    assert "input_tokens: mean 7.0, least 7, median 7, most 7" in lines
    first, second = (line for line in lines if line.startswith("note: "))
    assert first == 'note: row 0 has "input_tokens": 0, no whole number of 1 or more; no figure counts it'
    assert second.startswith('note: row 1 has "output_tokens": -5, and 2 more like it, no whole number of 1 or more; ')
    assert second.endswith("a run refuses that for language models")


def test_lengths_of_all_rows_have_no_note(tmp_path: Path) -> None:
    assert not [line for line in told(tmp_path, {"prompt": "a", "output_tokens": 1}) if line.startswith("note")]
