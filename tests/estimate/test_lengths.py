"""An estimate says for which lengths of answers it holds."""

from __future__ import annotations

from gpusize.result import Result
from tests.report.folders import level_columns, run_folder, streamed


def warnings(place, reported):
    levels = {}
    for concurrency, tokens in reported.items():
        levels[concurrency] = level_columns(concurrency)
        streamed(levels[concurrency], 70, tokens=tokens)
    options = {"users": 10, "slo": ["p95 runtime <= 90ms"]}
    result = Result([run_folder(place, levels, rows=[{"output_tokens": 64}], options=options)])
    return [text for text in result.estimates()[0].warnings if "long as asked" in text]


def test_levels_with_other_lengths_are_named_once(tmp_path):
    (text,) = warnings(tmp_path / "off", {1: 64, 2: 50, 4: 60})
    assert text.startswith("the answers are not as long as asked for at concurrency 2, 4; the estimate holds for")
    assert warnings(tmp_path / "as-asked", {1: 64, 2: 65}) == []
