"""Body templates: every row makes valid JSON, and mistakes have a place."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.base.errors import DatasetError, UsageError
from gpusize.targets.apis import BodyTemplate
from gpusize.workload.dataset import Dataset


def filled(text, row, **kwargs):
    template = BodyTemplate.parse(text, "t.json", **kwargs)
    dataset = Dataset.from_rows([row], key=".")
    fields = template.fields(dataset[0])
    return b"".join(s["static"].encode() if "static" in s else fields[s["field"]] for s in template.segments()).decode()


def refusal(call, *args):
    """What ``call`` refuses its arguments with, None when it takes them."""
    try:
        call(*args)
    except UsageError as problem:
        return problem
    return None


VALUE = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text(), max_size=3)


@given(st.text(), VALUE, st.text())
def test_every_row_makes_the_json_that_the_template_says(text, value, name):
    template = '{"plain": "say: ${text}!", "value": ${value}, "list": [${text}, "${ text }"]}'
    made = json.loads(filled(template, {"text": text, "value": value, "other": name}))
    assert made == {"plain": f"say: {text}!", "value": value, "list": [text, text]}


@given(st.text(alphabet='${}ab:"\\ \n{', max_size=20))
def test_any_text_is_a_template_or_refused_with_its_place(text):
    problem = refusal(BodyTemplate.parse, text, "t")
    if problem is None:
        problem = refusal(BodyTemplate.parse(text, "t").fields, Dataset.from_rows([{"a": "x"}], key=".")[0])
    assert problem is None or problem.where.startswith("t")


def test_numbers_and_objects_inside_quotes():
    row = {"n": 3, "on": True, "o": {"a": '"'}}
    assert json.loads(filled('{"s": "${n} ${on} ${o}"}', row)) == {"s": '3 true {"a":"\\""}'}


def test_text_that_holds_json():
    assert json.loads(filled('{"m": ${m:json}}', {"m": '[{"role": "user"}]'})) == {"m": [{"role": "user"}]}
    assert json.loads(filled('{"m": ${m:json}}', {"m": [1]})) == {"m": [1]}
    with pytest.raises(DatasetError, match=r'cannot fill "m": "\[1," is not JSON'):
        filled('{"m": ${m:json}}', {"m": "[1,"})


def test_an_escaped_placeholder_stays():
    assert json.loads(filled('{"m": "cost $5 $${m} ${m}"}', {"m": "x"})) == {"m": "cost $5 ${m} x"}


def test_a_plain_text_template():
    assert filled("q=${a}&n=${n}\\", {"a": 'x"y', "n": 2}, quoting="plain") == 'q=x"y&n=2\\'


@pytest.mark.parametrize(
    "text,where,what",
    [
        ('{"a": "${b"}', "t.json:1:8", "not closed"),
        ('{"a": "${}"}', "t.json:1:8", "is not a placeholder"),
        ('{"a": ${b:yaml}}', "t.json:1:7", "is not a placeholder"),
        ('{"a": "${b:json}"}', "t.json:1:8", "stands inside quotes"),
        ('{\n"a": ${b} "c"}', "t.json:2:11", "not JSON: Expecting ',' delimiter"),
        ("hello ${b}", "t.json:1:1", "not JSON"),
        ('{"a": "x}', "t.json:1:7", "Unterminated string"),
        ("[" * 100_000, "t.json", "not JSON"),
    ],
)
def test_broken_templates(text, where, what):
    with pytest.raises(UsageError, match=what) as caught:
        BodyTemplate.parse(text, "t.json")
    assert caught.value.where == where


def test_an_unknown_field_has_its_column():
    with pytest.raises(DatasetError) as caught:
        filled('{"a": "${question}"}', {"prompt": "x", "id": 1})
    assert caught.value.where == "t.json:1:8"
    assert caught.value.what == 'row 0 has no field "question"; it has "prompt", "id"'


def test_null_is_no_text():
    with pytest.raises(DatasetError, match="it is null"):
        filled('{"a": "${b}"}', {"b": None})


def test_text_or_file(tmp_path):
    (tmp_path / "t.json").write_text('{"a": ${b}}')
    assert BodyTemplate.read(' {"a": ${b}}').segments() == [{"static": ' {"a": '}, {"field": 0}, {"static": "}"}]
    assert len(BodyTemplate.read(str(tmp_path / "t.json")).segments()) == 3
    with pytest.raises(UsageError, match="there is no such file"):
        BodyTemplate.read(str(tmp_path / "none.json"))
