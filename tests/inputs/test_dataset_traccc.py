"""Events of cells as tensors: both layouts, both files, and events that are broken."""

import json
from pathlib import Path

import numpy as np
import pytest

from gpusize.base.errors import DatasetError, StoreError, UsageError
from gpusize.cli import invoke
from gpusize.workload.dataset.traccc import convert_events, event_files

HEADER = "geometry_id,measurement_id,channel0,channel1,timestamp,value\n"
FIRST = "1224979236018815183,0,12,7,0,0.25\n1224979236018815183,0,12,8,0,0.1\n576460889742377984,1,3,4,1.5,2\n"
SECOND = "17,5,1,2,0,1e-05\n"


@pytest.fixture
def events(tmp_path: Path) -> Path:
    folder = tmp_path / "ttbar_mu20"
    folder.mkdir()
    (folder / "event000000001-cells.csv").write_text(HEADER + SECOND)
    (folder / "event000000000-cells.csv").write_text(HEADER + FIRST)
    (folder / "event000000000-particles.csv").write_text("not,cells\n")
    return folder


def read(file: Path):
    return json.loads(file.read_text())["data"]


def test_events_are_taken_by_name(events):
    assert [file.name for file in event_files(events)] == ["event000000000-cells.csv", "event000000001-cells.csv"]
    beside = events / "event000000001-cells.csv"
    assert [file.name for file in event_files(beside, 1)] == ["event000000000-cells.csv"]


def test_features(events, tmp_path):
    out = tmp_path / "in.json"
    assert convert_events(events, out) == (2, 4)
    first, second = read(out)
    assert first["GEOMETRY_ID"] == {
        "content": [1224979236018815183, 1224979236018815183, 576460889742377984],
        "shape": [3],
    }
    assert first["FEATURES"]["shape"] == [3, 5]
    assert first["FEATURES"]["content"][:5] == [0.0, 12.0, 7.0, 0.0, 0.25]
    assert second["FEATURES"] == {"content": [5.0, 1.0, 2.0, 0.0, 1e-05], "shape": [1, 5]}
    # perf_analyzer refuses whole numbers for floats.
    assert "0.0" in out.read_text()


def test_features_of_the_tml_detector(events, tmp_path):
    out = tmp_path / "in.json"
    assert convert_events(events, out, count=1, tml=True) == (1, 3)
    [only] = read(out)
    assert list(only) == ["FEATURES"]
    assert only["FEATURES"]["shape"] == [3, 6]
    assert only["FEATURES"]["content"][12] == 576460889742377984.0


def test_cells(events, tmp_path):
    out = tmp_path / "in.json"
    convert_events(events, out, layout="cells")
    first, second = read(out)
    assert first["CELL_POSITIONS"]["shape"] == [3, 4]
    assert first["CELL_POSITIONS"]["content"][:4] == [1224979236018815183, 0, 12, 7]
    assert first["CELL_PROPERTIES"] == {"content": [0.0, 0.25, 0.0, 0.1, 1.5, 2.0], "shape": [3, 2]}
    assert second["CELL_PROPERTIES"]["content"] == [0.0, 1e-05]


def test_columns_are_found_by_their_names(events, tmp_path):
    (events / "event000000001-cells.csv").write_text(
        "geometry_id,value,channel1,channel0,timestamp,measurement_id\n9,0.5,2,1,3,4\n"
    )
    out = tmp_path / "in.json"
    convert_events(events, out, layout="cells")
    assert read(out)[1]["CELL_POSITIONS"]["content"] == [9, 4, 1, 2]
    assert read(out)[1]["CELL_PROPERTIES"]["content"] == [3.0, 0.5]


@pytest.mark.parametrize("layout", ["features", "cells"])
def test_the_compact_file_holds_the_same(events, tmp_path, layout):
    convert_events(events, tmp_path / "in.json", layout=layout)
    convert_events(events, tmp_path / "in.npz", layout=layout)
    kinds = {"GEOMETRY_ID": "uint64", "FEATURES": "float64", "CELL_POSITIONS": "int64", "CELL_PROPERTIES": "float32"}
    with np.load(tmp_path / "in.npz") as arrays:
        for number, entry in enumerate(read(tmp_path / "in.json")):
            for name, tensor in entry.items():
                array = arrays[f"{number:05d}/{name}"]
                assert array.dtype == kinds[name]
                expected = np.array(tensor["content"], dtype=kinds[name]).reshape(tensor["shape"])
                assert np.array_equal(array, expected)


def test_one_event_alone_has_plain_names(events, tmp_path):
    convert_events(events, tmp_path / "in.npz", count=1)
    with np.load(tmp_path / "in.npz") as arrays:
        assert sorted(arrays.files) == ["FEATURES", "GEOMETRY_ID"]


@pytest.mark.parametrize(
    "text,layout,what",
    [
        (HEADER, "features", "the event has no cells"),
        ("", "features", "this is not an event of cells"),
        (HEADER + "1,0,12,7,0,x\n", "features", "this is not an event of cells"),
        (HEADER + FIRST + "1,0,,7,0,1\n", "features", '"channel0" has no value'),
        ("cell,geometry_id\n1,2\n", "features", 'the first column is "cell"'),
        ("geometry_id,channel0\n1,2\n", "cells", 'there is no column "measurement_id"'),
        (HEADER + "18446744073709551615,0,1,2,0,1\n", "cells", "an identifier does not fit into INT64"),
    ],
)
def test_broken_events(events, tmp_path, text, layout, what):
    file = events / "event000000001-cells.csv"
    file.write_text(text)
    with pytest.raises(DatasetError) as caught:
        convert_events(events, tmp_path / "in.json", layout=layout)
    assert caught.value.what.startswith(what)
    assert str(caught.value.where).startswith(str(file))
    assert list(tmp_path.iterdir()) == [events], "nothing half written is left"


def test_the_line_of_a_missing_value(events, tmp_path):
    file = events / "event000000001-cells.csv"
    file.write_text(HEADER + FIRST + "1,0,,7,0,1\n")
    with pytest.raises(DatasetError) as caught:
        convert_events(events, tmp_path / "in.json")
    assert caught.value.where == f"{file}:5"


@pytest.mark.parametrize(
    "options,error,what",
    [
        ({"count": 3}, DatasetError, "there are 2 events, not 3"),
        ({"count": 0}, UsageError, "the number of events must be 1 or more, not 0"),
        ({"layout": "old"}, UsageError, 'there is no layout "old"'),
        ({"layout": "cells", "tml": True}, UsageError, "tml is a form of the features layout"),
    ],
)
def test_what_cannot_be_meant(events, tmp_path, options, error, what):
    with pytest.raises(error) as caught:
        convert_events(events, tmp_path / "in.json", **options)
    assert caught.value.what == what


def test_folders(events, tmp_path):
    with pytest.raises(DatasetError, match="there is no event here"):
        event_files(tmp_path)
    with pytest.raises(DatasetError, match="there is no such folder"):
        event_files(tmp_path / "none")
    with pytest.raises(StoreError, match="there is no such folder"):
        convert_events(events, tmp_path / "none" / "in.json")


def dataset(*argv: object) -> int:
    """Runs ``gpusize dataset``."""
    return invoke(["dataset", *map(str, argv)])


def test_the_commands(events, tmp_path, capsys):
    assert dataset("traccc", events, "-o", tmp_path / "in.json", "-n", 1, "--tml") == 0
    assert capsys.readouterr().out == f"{tmp_path}/in.json: 1 events, 3 cells\n"
    rows = tmp_path / "rows.jsonl"
    assert dataset("synthetic", "input=6 output=4 rows=8", "-o", rows) == 0
    done = capsys.readouterr()
    assert done.out == f"{rows}: 8 rows\n"
    assert "4 characters per token" in done.err
    assert dataset("show", rows, "--head", 2) == 0
    shown = capsys.readouterr().out
    assert "8 rows, format jsonl, sends prompt" in shown
    assert "input_tokens: mean 6.0, least 6, median 6, most 6" in shown
    assert "and 6 more" in shown
    assert dataset("show", tmp_path / "none.jsonl") == 2
    assert dataset("traccc", tmp_path, "-o", tmp_path / "x.json") == 2
