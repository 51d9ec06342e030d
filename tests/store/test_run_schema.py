"""Numbers in run.json and level.json: the largest that the engine has is read, one beyond it is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpusize.base.errors import StoreError
from gpusize.records.run_schema import read_checked

RUN: dict[str, Any] = {"schema": 1}
LEVEL: dict[str, Any] = {"schema": 1, "visit": 0, "state": "done", "setting": {"kind": "closed", "concurrency": 4}}


@pytest.mark.parametrize(
    "name, document, field, fine, beyond",
    [
        ("run.json", RUN, "seed", 2**64 - 1, 2**64),
        ("run.json", RUN, "seed", 0, -1),
        ("level.json", LEVEL, "visit", 2**32 - 1, 2**32),
        ("level.json", LEVEL, "start_ns", 2**62, 2**62 + 1),
        ("level.json", LEVEL, "start_ns", -(2**62), -(2**62) - 1),
    ],
)
def test_the_last_number_that_the_engine_has_is_read_and_no_other(
    tmp_path: Path, name: str, document: dict[str, Any], field: str, fine: int, beyond: int
) -> None:
    file = tmp_path / name
    file.write_text(json.dumps({**document, field: fine}), "utf-8")
    assert read_checked(file)[field] == fine
    file.write_text(json.dumps({**document, field: beyond}), "utf-8")
    with pytest.raises(StoreError) as caught:
        read_checked(file)
    assert field in str(caught.value)
