from __future__ import annotations

import html
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from polars.testing import assert_frame_equal

import gpusize
from gpusize.analysis.slo_grammar import Parsed, parse
from gpusize.base.errors import StoreError
from gpusize.estimate.truth import Truth
from gpusize.report.export import (
    dumps,
    estimate_document,
    result_document,
    strict,
    write_outputs,
    write_summary,
)
from tests.report.results import HOSTILE, SLO, Source, crossing, frame, interrupted, meta, row, slope, sweep


def refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def read(text: str) -> Any:
    return json.loads(text, parse_constant=refuse)


def test_strict_json_has_no_nan_and_plain_types_only() -> None:
    given = {
        1: math.nan, "inf": [math.inf, -math.inf, 1.5], "numpy": (np.float64(2.5), np.int64(3), np.float32("nan")),
        "path": Path("a/b"), "none": None, "flag": True,
    }  # fmt: skip
    assert strict(given) == {
        "1": None, "inf": [None, None, 1.5], "numpy": [2.5, 3, None], "path": "a/b", "none": None, "flag": True,
    }  # fmt: skip
    assert type(strict(np.int64(3))) is int


def test_the_document_holds_everything_a_program_needs() -> None:
    source = sweep(interrupted())
    source.path = Path("/runs/r")
    text = dumps(result_document(source, [slope(), crossing()], Truth(82, 9.75)))
    assert text.isascii()
    assert "\x1b" not in text
    document = read(text)
    assert document["schema"] == 1
    assert document["run"] == "20261120T210312Z-7f3a9c"
    assert document["path"] == "/runs/r"
    assert document["answer"] == f"76 GPUs for 100 users at {SLO}"
    assert document["slos"] == [SLO]
    assert [each["concurrency"] for each in document["summary"]] == [1, 2, 4, 8, 16, 32, 64]
    assert document["summary"][3]["runtime_p95_s"] == 7.90895
    assert [(each["method"], each["gpus"]) for each in document["estimates"]] == [("slope", 76), ("crossing", 94)]
    assert document["estimates"][0]["details"]["fit"]["slope"] == pytest.approx(0.6568376759061832)
    assert document["truth"] == {"gpus": 82, "capacity_concurrency": 9.75, "note": ""}
    assert document["warnings"] == ["only 8 requests at level 1"]
    assert document["alerts"] == [{"run": "20261120T210312Z-7f3a9c", "visit": 64, "alerts": [HOSTILE]}]


def test_numbers_that_are_none_become_null() -> None:
    source = Source(frame([row(1, math.nan, achieved_rate=math.inf)]), meta())
    document = read(dumps(result_document(source, [slope(gpus_raw=math.nan)])))
    assert document["summary"][0]["runtime_p95_s"] is None
    assert document["summary"][0]["achieved_rate"] is None
    assert document["estimates"][0]["gpus_raw"] is None
    assert document["truth"] is None


def test_without_estimates_there_is_no_answer() -> None:
    document = result_document(sweep())
    assert document["answer"] is None
    assert document["estimates"] == []


def test_estimate_json_carries_the_calculators_fields_beside_ours() -> None:
    calc = {"gpu_estimates": {"gpu_estimate_by_wf_runtime": 75.35}, "fit_results": {}, "calc_data": {"1": {}}}
    document = estimate_document([slope()], calc_output=calc)
    assert list(document) == ["schema", "answer", "estimates", "truth", "gpu_estimates", "fit_results", "calc_data"]
    assert document["gpu_estimates"] == {"gpu_estimate_by_wf_runtime": 75.35}


def test_summary_files_read_back_as_they_were(tmp_path: Path) -> None:
    more = interrupted(alert="first") | {"alerts": ["first", 'second, with "quotes"\nand a line']}
    summary = sweep(more).summary
    parquet, csv, text = write_summary(summary, tmp_path)
    assert [file.name for file in (parquet, csv, text)] == ["summary.parquet", "summary.csv", "summary.json"]
    assert_frame_equal(pl.read_parquet(parquet), summary)
    back = pl.read_csv(csv, infer_schema_length=None)
    scalars = [name for name, kind in summary.schema.items() if kind not in (pl.List(pl.String), pl.Null)]
    assert back.columns == summary.columns
    assert_frame_equal(back.select(scalars), summary.select(scalars))
    assert back["alerts"].to_list()[-1] == 'first | second, with "quotes"\nand a line'
    assert back["flags"].to_list()[-1] == "interrupted"
    assert read(text.read_text()) == strict(summary.to_dicts())


def test_all_outputs_are_written_and_can_be_made_again(tmp_path: Path) -> None:
    out = tmp_path / "made" / "here"
    write_outputs(sweep(), [slope(), crossing()], out)
    files = write_outputs(sweep(), [slope(), crossing()], out, truth=Truth(82))
    assert sorted(files) == sorted(path for path in out.rglob("*") if path.is_file())
    names = {file.relative_to(out).as_posix() for file in files}
    assert {"summary.csv", "estimate.json", "report.html", "plots/fit.svg", "plots/runtime.png"} <= names
    assert read((out / "estimate.json").read_text())["truth"]["gpus"] == 82
    assert "<svg" in (out / "report.html").read_text()


def test_without_plots_and_estimates_neither_is_written(tmp_path: Path) -> None:
    files = write_outputs(sweep(), [], tmp_path, plots=False)
    assert {file.name for file in files} == {"summary.parquet", "summary.csv", "summary.json", "report.html"}
    assert "<figure" not in (tmp_path / "report.html").read_text()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        write_outputs(sweep(), [], tmp_path / "file" / "out")


def test_labels_of_a_server_cannot_steer_a_terminal_from_a_csv_file(tmp_path):
    label = 'gpu="\x1b[2J\x1b]0;owned\x07\u202e\x9b31m"'
    frame = pl.DataFrame({"metric": ["a", "b"], "labels": [label, "gpu=é"], "alerts": [["x\x1bc", "y"], []]})
    files = write_summary(frame, tmp_path, "server")
    for file in files[1:]:
        text = file.read_text("utf-8")
        assert not [c for c in text if not c.isprintable() and c != "\n"], file
    rows = pl.read_csv(tmp_path / "server.csv")
    assert rows["labels"].to_list() == ['gpu="\\x1b[2J\\x1b]0;owned\\x07\\u202e\\x9b31m"', "gpu=é"]
    assert pl.read_parquet(tmp_path / "server.parquet")["labels"].to_list() == frame["labels"].to_list()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | st.integers(0, 9), inner, max_size=4)
    ),
    max_leaves=30,
)


@given(JSON)
def test_json_is_what_the_standard_library_writes(document: Any) -> None:
    assert dumps(document) == json.dumps(strict(document), indent=2, allow_nan=False) + "\n"
    assert dumps(document) == dumps(strict(document))


ODD = ['},"a":{', "}", "{", ",", ": ", "\0", "\1", '"', "\\", "ä", "", "a\nb"]


@pytest.mark.parametrize(
    "leaf",
    [
        {"a": 1.5, "b": None},
        {"}": "},", ":{": ": {", "c\0": "},\0", "d\1": ":\1{"},
        {"a": math.nan},
        {"a": np.float64(2.5)},
        {},
        {1: 2},
        {"a": [1, {}]},
        {"a": True, "b": -(10**30)},
    ],
)
def test_many_records_are_written_as_few_are(leaf: dict[Any, Any]) -> None:
    """From a hundred objects on they may be written all at once."""
    many: dict[str, Any] = {f"{text}{number}": leaf for number in range(20) for text in ODD}
    for document in (many, {"x": [many]}, {**many, "other": 1}):
        assert dumps(document) == json.dumps(strict(document), indent=2, allow_nan=False) + "\n"


def test_each_figure_is_drawn_once_for_each_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    savefig = Figure.savefig

    def count(self: Figure, *args: Any, **more: Any) -> None:
        drawn.append(more["format"])
        savefig(self, *args, **more)

    monkeypatch.setattr(Figure, "savefig", count)
    files = write_outputs(sweep(), [slope(), crossing()], tmp_path)
    pictures = [file for file in files if file.suffix == ".svg"]
    assert sorted(drawn) == ["png"] * len(pictures) + ["svg"] * len(pictures)
    assert (tmp_path / "report.html").read_text().count("<svg role=") == len(pictures)


def test_each_slo_text_is_read_once_for_all_that_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noted(text: str) -> Parsed:
        read.append(text)
        return parse(text)

    monkeypatch.setattr("gpusize.analysis.slo.parse", noted)
    texts = ["p95 runtime <= 2s", "p99 itl_mean <= 30ms"]
    folder = Path(__file__).parents[1] / "fixtures" / "before" / "run"
    result = gpusize.open_run(folder).asking(users=3, slos=texts)
    page = result.report(tmp_path).read_text("utf-8")
    assert all(html.escape(text) in page for text in texts)
    assert {"runtime", "attainment", "fit"} <= {each.stem for each in (tmp_path / "plots").iterdir()}
    assert read == texts
