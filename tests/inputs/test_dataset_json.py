"""JSON and JSON Lines: what is read, and where a mistake is said to be."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.base.errors import DatasetError
from gpusize.base.text import without_trailing_commas
from gpusize.workload.dataset import Dataset
from gpusize.workload.dataset.json_rows import parse_json, parse_jsonl

FIXTURES = Path(__file__).parents[1] / "fixtures" / "inputs"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ROWS = st.lists(st.dictionaries(st.text(), VALUES, max_size=4), max_size=5)


def refusal(call, *args):
    """What ``call`` refuses its arguments with, None when it takes them."""
    try:
        call(*args)
    except DatasetError as problem:
        return problem
    return None


def test_the_calculators_own_sample_with_its_trailing_commas():
    path = FIXTURES / "examples/simple_calculator/data/simple_calculator.json"
    dataset = Dataset.read(path)
    assert dataset.key == "question"
    assert [row.value[:29] for row in dataset] == ["What is the product of 3 and ", "What is the product of 4 and "]
    assert list(dataset.ids) == ["1", "2"]
    assert list(dataset.notes) == [f"{path}: accepted a trailing comma, which JSON does not allow, on line 4, 8"]
    assert [row.where for row in dataset] == [f"{path}:2", f"{path}:6"]


@given(ROWS, st.sampled_from([None, 1, "\t"]))
def test_json_comes_back(rows, indent):
    assert parse_json(json.dumps(rows, indent=indent), "f").rows == rows


@given(ROWS)
def test_json_lines_come_back(rows):
    parsed = parse_jsonl("\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\r\n", "f")
    assert parsed.rows == rows
    assert parsed.lines == [2 * number + 1 for number in range(len(rows))]


@given(ROWS)
def test_trailing_commas_change_nothing_else(rows):
    text = json.dumps(rows, indent=1)
    with_commas = text.replace("\n]", ",\n]") if rows else text
    clean, offsets = without_trailing_commas(with_commas)
    assert len(clean) == len(with_commas)
    # Strings hold no line breaks in JSON, so that each replaced place is one of structure.
    assert len(offsets) >= bool(rows)
    assert parse_json(with_commas, "f").rows == rows


@given(st.text(alphabet='[]{}",:\\ \n01atrue', max_size=30))
def test_any_text_is_read_or_refused_with_its_place(text):
    for parse in (parse_json, parse_jsonl):
        problem = refusal(parse, text, "f")
        assert problem is None or problem.where.startswith("f")


@pytest.mark.parametrize(
    "text,where,what",
    [
        ('[{"a": 1}\n {"a": 2}]', "f:2:2", 'expected "," or "]"'),
        ('[{"a": 1},\n {"a" 2}]', "f:2:7", "delimiter"),
        ('[{"a": 1},\n {"a": }]', "f:2:8", 'expected a value, found "}"'),
        ('[{"a": 1},\n {"a": "x]', "f:2:8", "unterminated string"),
        ('[{"a": 1},\n', "f:2:1", "expected a value, found the end"),
        ('[{"a": 1}', "f:1:10", "the array is not closed"),
        ("[,]", "f:1:2", "expected a value"),
        ('[{"a": 1,,}]', "f:1:10", "property name"),
        ('[{"a": NaN}]', "f:1:8", "NaN is not JSON"),
        ('[{"NaN": "NaN"},\n{"b": [-Infinity]}]', "f:2:8", "-Infinity is not JSON"),
        ('[{"a": 1}] x', "f:1:12", "more after the end"),
        ("[1]", "f:1:2", "row 0 is 1, not an object"),
        ('[{"a": 1},\n [2]]', "f:2:2", "row 1 is .2., not an object"),
        ('{"a": 1}', "f:1:1", "the top level is an object"),
        ('{"a": 1}\n{"a": 2}', "f:1:1", "one object a line"),
        ("3", "f:1:1", "the top level is 3"),
        ("hello", "f:1:1", 'expected a value, found "h"'),
        ("", "f", "the dataset is empty"),
        (" \n", "f", "the dataset is empty"),
        ("[" * 100_000, "f:1:2", "nested too deeply"),
        ('[{"a": ' + "9" * 5000 + "}]", "f:1:2", "cannot be read"),
    ],
)
def test_broken_json(text, where, what):
    with pytest.raises(DatasetError, match=what) as caught:
        parse_json(text, "f")
    assert caught.value.where == where


@pytest.mark.parametrize(
    "text,where,what",
    [
        ('{"a": 1}\n{"a": }\n', "f:2:7", 'expected a value, found "}"'),
        ('{"a": 1}\n\n {"a": 1} {', "f:3:11", "more after the object"),
        ('{"a": 1}\n[1]', "f:2:1", "row 1 is .1., not an object"),
        ('[\n{"a": 1}\n]', "f:1:1", "one JSON document over several lines"),
        ('{"a": NaN}', "f:1:7", "NaN is not JSON"),
    ],
)
def test_broken_json_lines(text, where, what):
    with pytest.raises(DatasetError, match=what) as caught:
        parse_jsonl(text, "f")
    assert caught.value.where == where


def test_texts_are_prompts():
    assert parse_json('["one", "two"]', "f").rows == [{"prompt": "one"}, {"prompt": "two"}]


def test_trailing_commas_in_json_lines_are_noted():
    parsed = parse_jsonl('{"a": 1}\n{"a": [1,],}', "f")
    assert parsed.rows == [{"a": 1}, {"a": [1]}]
    assert parsed.notes == ["f: accepted a trailing comma, which JSON does not allow, on line 2, 2"]


def test_commas_inside_strings_stay():
    assert parse_json(r'[{"a": "x,]", "b": "\",}"},]', "f").rows == [{"a": "x,]", "b": '",}'}]
