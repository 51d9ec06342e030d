"""Options become target, dataset and load, and come back from them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.base.errors import DatasetError, UsageError
from gpusize.options.inputs import INPUT_OPTIONS, dataset_from_options, target_from_options
from gpusize.options.kinds import complaint
from gpusize.options.load import load_from_options
from gpusize.targets.server import Target
from gpusize.workload.load import Load


def refusal(call, *args):
    """What ``call`` refuses its arguments with, None when it takes them."""
    try:
        call(*args)
    except UsageError as problem:
        return problem
    return None


def test_nothing_is_said():
    assert target_from_options({}) is None
    assert dataset_from_options({}) is None
    assert load_from_options({"url": "x", "passes": None}) == Load()


def test_a_target_from_text():
    target = target_from_options({
        "url": "http://h/v1/completions",
        "timeout": "2m",
        "connect_timeout": 3,
        "resolve_every": "1m",
        "header": ["X-A: b", "X-B: env:HOME"],
        "headers": {"X-C": 5},
        "extra_body": '{"top_k": 20}',
        "response": ["content=/a,/b", "success=200-204", "error=", "end=[END]"],
    })  # fmt: skip
    assert target is not None
    assert (target.timeout_s, target.connect_timeout_s, target.resolve_every_s) == (120.0, 3.0, 60.0)
    assert target.headers == {"X-C": "5", "X-A": "b", "X-B": "env:HOME"}
    assert target.extra_body == {"top_k": 20}
    response = target.to_spec()["response"]
    assert (response["content"], response["success"], response["error"], response["end"]) == (
        *(["/a", "/b"], [200, 204], None, "[END]"),
    )


def test_a_load_from_text():
    load = load_from_options(
        {"concurrencies": "1:3,8", "duration": "1m", "warmup": "5s", "max_error_rate": 0.02, "think": 0}
    )
    assert load == Load(concurrencies=(1, 2, 3, 8), duration_s=60.0, warmup_s=5.0, max_error_share=0.02)
    assert load_from_options({"concurrencies": 4}).concurrencies == (4,)
    assert load_from_options({"rates": ["60/m", 2], "count": 1}).rates == (1.0, 2.0)
    assert load_from_options({"rates": "1,2", "count": 1}).rates == (1.0, 2.0)


@pytest.mark.parametrize("options", [{"body_template": '{"a": ${a}}'}, {"method": "get"}])
def test_no_key_is_needed_when_none_is_used(tmp_path, options):
    (tmp_path / "d.json").write_text('[{"id": 5, "a": 1}]')
    dataset = dataset_from_options({"dataset": str(tmp_path / "d.json"), **options})
    assert dataset is not None
    assert dataset[0].value == {"a": 1}


@pytest.mark.parametrize(
    "options,where,what",
    [
        ({"url": "http://h", "timeout": "soon"}, "timeout", "is not a duration"),
        ({"url": "http://h", "header": ["X: 1", "x: 2"]}, "header", "given twice"),
        ({"url": "http://h", "headers": {"Authorization": "Bearer x"}}, "header", "written out"),
        ({"url": "http://h", "extra_body": "{"}, "extra_body, line 1, column 2", "broken JSON"),
        ({"url": "http://h", "extra_body": "[" * 100_000}, "extra_body", "broken JSON"),
        ({"url": "http://h", "extra_body": "[1]"}, "extra_body", "not an object"),
        ({"url": "http://h", "response": "content"}, "response", "has no ="),
        ({"url": "http://h", "response": "success=ok"}, "response", "not a range of statuses"),
        ({"url": "http://h", "response": 5}, "response", "says nothing"),
        ({"concurrencies": "0"}, "concurrencies, column 1", "holds a 0"),
        ({"concurrencies": []}, "concurrencies", "no concurrencies are given"),
        ({"rates": "", "count": 1}, "rates, column 1", "no rates are given"),
        ({"duration": "0s"}, "duration", "duration_s must be positive, not 0 s"),
        ({"dataset": "a.json", "prompt": "b"}, "prompt", "both given"),
    ],
)
def test_bad_options(options, where, what):
    builders = (target_from_options, dataset_from_options, load_from_options)
    [problem] = [found for build in builders if (found := refusal(build, options))]
    assert problem.where == where
    assert what in problem.what


def test_datasets(tmp_path, monkeypatch):
    (tmp_path / "d.txt").write_text('{"q": "x", "name": "n"}')
    monkeypatch.chdir(tmp_path)
    options = {"dataset": "d.txt", "dataset_key": "q", "dataset_format": "jsonl", "dataset_id_key": "name"}
    dataset = dataset_from_options(options)
    assert dataset is not None
    assert dataset.ids == ("n",)
    kept = dataset.options()
    monkeypatch.chdir("/")
    again = dataset_from_options(kept)
    assert again is not None
    assert (again.rows, again.ids, again.sha256) == (dataset.rows, dataset.ids, dataset.sha256)
    prompt = dataset_from_options({"prompt": "x"})
    assert prompt is not None
    assert dataset_from_options(prompt.options()) == prompt
    with pytest.raises(DatasetError, match="no such file"):
        dataset_from_options({"dataset": "/none.json"})


def stored(options):
    """Options as they come back from run.json, of the kinds that a file may hold."""
    assert all(complaint(INPUT_OPTIONS[name], value) is None for name, value in options.items())
    return json.loads(json.dumps(options))


SECONDS = st.floats(0.001, 1e6)
COUNTS = st.none() | st.integers(1, 10**6)


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=4),
    st.tuples(COUNTS, st.none() | SECONDS, SECONDS, st.floats(0, 1) | st.none()),
    st.sampled_from(["file", "shuffled"]),
    st.integers(0, 2**63 - 1),
)
def test_a_closed_load_comes_back(concurrencies, numbers, order, seed):
    count, duration, other, share = numbers
    load = Load(
        concurrencies=concurrencies, count=count, duration_s=duration, drain_s=other, think_s=other,
        max_error_share=share, order=order, seed=seed,
    )  # fmt: skip
    assert load_from_options(stored(load.options())) == load


@given(
    st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=4), st.sampled_from(["constant", "poisson"]), st.integers(0, 9)
)
def test_an_open_load_comes_back(rates, process, queue):
    load = Load(rates=rates, process=process, queue=queue, duration_s=5)
    assert load_from_options(stored(load.options())) == load


def test_passes_come_back():
    load = Load(concurrencies=[1], passes=3, warmup_s=0.5)
    assert load_from_options(stored(load.options())) == load


def test_a_target_comes_back(tmp_path):
    (tmp_path / "t.json").write_text('{"a": "${prompt}"}')
    target = Target(
        "https://h/x",
        model="m",
        headers={"X-A": "b", "Authorization": "Bearer env:K"},
        gpus=8,
        timeout_s=0.25,
        insecure=True,
        method="put",
        stream=False,
        max_tokens=3,
        temperature=0,
        extra_body={"a": [1]},
        body_template=str(tmp_path / "t.json"),
        content_type="application/vnd.x+json",
        response={"content": ["/a"], "success": [200, 201], "error": None},
    )
    assert target_from_options(stored(target.options())) == target
    plain = Target("http://h")
    assert target_from_options(stored(plain.options())) == plain
