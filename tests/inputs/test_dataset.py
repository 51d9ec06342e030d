"""Files of every format, keys, ids, and what is refused."""

import hashlib
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.base.errors import DatasetError
from gpusize.workload.dataset import KEYS, Dataset
from gpusize.workload.dataset.csv_rows import parse_csv


def refusal(call, *args):
    """What ``call`` refuses its arguments with, None when it takes them."""
    try:
        call(*args)
    except DatasetError as problem:
        return problem
    return None


def write(tmp_path: Path, name: str, data: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def refused(path: Path, **kwargs: str) -> DatasetError:
    with pytest.raises(DatasetError) as caught:
        Dataset.read(path, **kwargs)
    assert caught.value.exit_code == 2
    return caught.value


@pytest.mark.parametrize(
    "name,data",
    [
        ("d.json", '[{"id": "a", "prompt": "x, y"}, {"id": "b", "prompt": "ü"}]'),
        ("d.jsonl", '{"id": "a", "prompt": "x, y"}\n{"id": "b", "prompt": "ü"}\n'),
        ("d.ndjson", '\ufeff{"id": "a", "prompt": "x, y"}\n{"id": "b", "prompt": "ü"}'),
        ("d.csv", 'id,prompt\r\na,"x, y"\r\n\r\nb,ü\r\n'),
        ("d.tsv", "id\tprompt\na\tx, y\nb\tü"),
    ],
)
def test_every_text_format_gives_the_same_rows(tmp_path, name, data):
    path = write(tmp_path, name, data)
    dataset = Dataset.read(path)
    assert [row.value for row in dataset] == ["x, y", "ü"]
    assert list(dataset.ids) == ["a", "b"]
    assert dataset.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert not dataset.notes
    assert dataset.public() == {"source": str(path), "rows": 2, "sha256": dataset.sha256}


def test_parquet_with_lists_of_messages(tmp_path):
    path = tmp_path / "d.parquet"
    messages = [[{"role": "user", "content": "hi"}], [{"role": "user", "content": "ho"}]]
    pl.DataFrame({"id": [7, 8], "messages": messages}).write_parquet(path)
    dataset = Dataset.read(path)
    assert (dataset.key, [row.value for row in dataset], list(dataset.ids)) == ("messages", messages, ["7", "8"])
    assert dataset[1].where == f"{path}, row 1"


def test_a_format_can_be_said(tmp_path):
    path = write(tmp_path, "prompts.txt", '{"prompt": "a"}')
    assert "suffix" in refused(path).what
    assert len(Dataset.read(path, fmt="jsonl")) == 1
    assert "not a dataset format" in refused(path, fmt="xls").what


def test_files_that_cannot_be_read(tmp_path):
    assert refused(tmp_path / "none.json").what == "there is no such file"
    assert refused(tmp_path).what == "this is a folder, not a file"
    assert refused(tmp_path, fmt="json").what == "this is a folder, not a file"
    assert "Parquet" in refused(write(tmp_path, "d.parquet", "no")).what
    assert "UTF-16" in refused(write(tmp_path, "w.json", "[]".encode("utf-16"))).what
    problem = refused(write(tmp_path, "l.jsonl", b'{"prompt": "a"}\n{"prompt": "\xe4"}'))
    assert problem.where == f"{tmp_path}/l.jsonl:2:13"
    assert "0xe4 is not UTF-8" in problem.what
    assert "cannot be read" in refused(Path("\0.json")).what


@pytest.mark.parametrize(
    "name,data", [("e.json", "[]"), ("e.jsonl", "\n"), ("e.csv", ""), ("e.csv", "prompt\n"), ("e.json", "")]
)
def test_empty_datasets(tmp_path, name, data):
    assert refused(write(tmp_path, name, data)).what == "the dataset is empty"


def test_an_empty_parquet(tmp_path):
    pl.DataFrame({"prompt": []}).write_parquet(tmp_path / "e.parquet")
    assert refused(tmp_path / "e.parquet").what == "the dataset is empty"


def test_keys_are_tried_in_order():
    rows = [{name: name for name in reversed(KEYS)}]
    assert Dataset.from_rows(rows).key == "prompt"
    assert Dataset.from_rows([{"question": "q", "text": "t"}, {"text": "t"}]).key == "text"
    assert Dataset.from_rows([{"id": 1, "a": 2}], key=".")[0].value == {"a": 2}


def test_missing_keys(tmp_path):
    path = write(tmp_path, "d.json", '[{"a": 1},\n{"b": 2, "c": 3}]')
    problem = refused(path)
    assert (problem.what, problem.where) == (
        'row 0 has none of prompt/question/input/text/messages/body; it has "a"',
        f"{path}:1",
    )
    problem = refused(path, key="a")
    assert (problem.what, problem.where) == ('row 1 has no key "a"; it has "b", "c"', f"{path}:2")
    path = write(tmp_path, "e.csv", "prompt,x\na,b")
    assert refused(path, key="question").what == 'row 0 has no key "question"; it has "prompt", "x"'


@pytest.mark.parametrize(
    "text,where,what",
    [
        ('a,b\n1,"x\n\ny', "f:2:3", "this quote is not closed"),
        ('a,b\n1,"x"y\n', "f:2:6", "text follows a closing quote"),
        ("a,b\n1,2\n1\n", "f:3:1", "row 1 has 1 fields, the header has 2"),
        ("a,b\n1,2,3\n", "f:2:5", "row 0 has 3 fields, the header has 2"),
        ("a,a\n1,2\n", "f:1:3", 'two columns are named "a"'),
        ("a,,c\n1,2,3\n", "f:1:3", "column 2 has no name"),
    ],
)
def test_broken_csv(text, where, what):
    with pytest.raises(DatasetError) as caught:
        parse_csv(text, "f")
    assert (caught.value.where, caught.value.what) == (where, what)


CELL = st.text(alphabet='ab ",\n\r;ü', max_size=6)


@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=5))
def test_quoted_csv_comes_back(cells):
    def quote(cell: str) -> str:
        return '"' + cell.replace('"', '""') + '"'

    text = "\r\n".join(["a,b", *(",".join(map(quote, pair)) for pair in cells)])
    assert [(row["a"], row["b"]) for row in parse_csv(text, "f").rows] == cells


@given(st.text(alphabet='a,"\n\r', max_size=20))
def test_any_csv_is_read_or_refused_with_its_place(text):
    problem = refusal(parse_csv, text, "f")
    assert problem.where.startswith("f") if problem else all(parse_csv(text, "f").rows)


def test_an_empty_last_cell_counts():
    assert parse_csv("a,b\n1,", "f").rows == [{"a": "1", "b": ""}]
    assert parse_csv("a,b\n1,\n2,3", "f").rows == [{"a": "1", "b": ""}, {"a": "2", "b": "3"}]


def test_rows_and_prompts_in_memory():
    dataset = Dataset.from_prompt("hello")
    assert [row.value for row in dataset] == ["hello"]
    assert dataset.options() == {"prompt": "hello"}
    assert Dataset.from_rows(["a", {"prompt": "b"}]).ids == ("0", "1")
    assert (
        Dataset.from_rows(["a"]).sha256
        == Dataset.from_rows([{"prompt": "a"}]).sha256
        != Dataset.from_rows(["b"]).sha256
    )
    with pytest.raises(DatasetError, match="the prompt is empty"):
        Dataset.from_prompt("")
    with pytest.raises(DatasetError, match="the dataset is empty"):
        Dataset.from_rows([])
    with pytest.raises(DatasetError, match="cannot be written as JSON"):
        Dataset.from_rows([{"prompt": float("nan")}])


def test_a_dataset_is_nice_to_look_at(tmp_path):
    dataset = Dataset.read(write(tmp_path, "d.json", '[{"prompt": "<script>\\u001b[2J",},]'))
    assert repr(dataset) == f'Dataset("{tmp_path}/d.json", 1 rows, key "prompt")'
    page = dataset._repr_html_()
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page
    assert "trailing comma" in page


def test_ids_repeat_as_the_calculator_names_them():
    dataset = Dataset.from_rows([{"id": i, "prompt": "p"} for i in (1, 2, 3)])
    assert dataset.ids_for(2) == ["1", "2"]
    assert dataset.ids_for(4) == ["1", "2", "3", "1_rep1"]
    assert dataset.ids_for(8) == ["1", "2", "3", "1_rep1", "2_rep1", "3_rep1", "1_rep2", "2_rep2"]
    assert dataset.ids_of([2, 0, 2, 2]) == ["3", "1", "3_rep1", "3_rep2"]


def test_a_made_up_id_is_not_one_that_a_row_has():
    dataset = Dataset.from_rows([{"id": name, "prompt": "p"} for name in ("a", "a", "a_row1")])
    assert list(dataset.ids) == ["a", "a_row1x", "a_row1"]


def test_an_old_suffix_is_stripped_when_rows_repeat():
    dataset = Dataset.from_rows([{"id": "a_rep3", "prompt": "p"}])
    assert dataset.ids_for(1) == ["a_rep3"]
    assert dataset.ids_for(3) == ["a", "a_rep1", "a_rep2"]


def test_equal_ids_are_kept_apart_and_said():
    dataset = Dataset.from_rows([{"id": "a", "prompt": str(i)} for i in range(3)])
    assert list(dataset.ids) == ["a", "a_row1", "a_row2"]
    assert dataset.notes == ('rows: 2 rows share an id with an earlier row; row 1 ("a") is named "a_row1"',)


@given(
    st.lists(st.text(alphabet="ab_rep12ow", max_size=9) | st.integers(0, 5), min_size=1, max_size=8), st.integers(0, 40)
)
def test_ids_are_unique_whatever_the_rows_bring(own, count):
    dataset = Dataset.from_rows([{"id": name, "prompt": "p"} for name in own])
    assert len(set(dataset.ids)) == len(own)
    ids = dataset.ids_for(count)
    assert len(set(ids)) == count
