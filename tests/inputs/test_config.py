"""Configuration files: TOML, YAML, run.json, and the sizing calculator's own YAML."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpusize.base.errors import ConfigError
from gpusize.options.inputs import INPUT_OPTIONS, dataset_from_options
from gpusize.options.kinds import complaint
from gpusize.options.read_file import load_config

FIXTURES = Path(__file__).parents[1] / "fixtures" / "inputs"

TOML = """\
# a comment
url = "http://h:8000/v1/chat/completions"
concurrencies = [1, 2, 4]
"max-tokens" = 64
duration = "1m30s"
insecure = false

[headers]
X-Trace = "on"

[extra_body]
top_k = 3
nested.deep = [1, 2]
"""
YAML = """\
# a comment
url: http://h:8000/v1/chat/completions
concurrencies: [1, 2, 4]
max-tokens: 64
duration: 1m30s
insecure: false
api:
headers:
  X-Trace: "on"
extra_body: {top_k: 3, nested: {deep: [1, 2]}}
"""
OPTIONS = {
    "url": "http://h:8000/v1/chat/completions",
    "concurrencies": [1, 2, 4],
    "max_tokens": 64,
    "duration": "1m30s",
    "insecure": False,
    "headers": {"X-Trace": "on"},
    "extra_body": {"top_k": 3, "nested": {"deep": [1, 2]}},
}


def refusal(call, *args):
    """What ``call`` refuses its arguments with, None when it takes them."""
    try:
        call(*args)
    except ConfigError as problem:
        return problem
    return None


def load(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_config(path, INPUT_OPTIONS)


def refused(tmp_path, name, text):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, name, text)
    assert caught.value.exit_code == 2
    where = (caught.value.where or "").removeprefix(f"{tmp_path}/")
    return where, caught.value.what, caught.value.todo


@pytest.mark.parametrize(
    "name,text",
    [("c.toml", TOML), ("c.yaml", YAML), ("c.yml", "\ufeff" + YAML), ("c.json", json.dumps(OPTIONS)), ("C.TOML", TOML)],
)
def test_every_format_gives_the_same_options(tmp_path, name, text):
    config = load(tmp_path, name, text)
    assert config.options == OPTIONS
    assert config.notes == []
    plain = json.loads(json.dumps(config.options))
    assert [type(value) for value in plain.values()] == [type(value) for value in config.options.values()]


def test_options_have_places(tmp_path):
    toml = load(tmp_path, "c.toml", TOML)
    assert [toml.where(name).rpartition("/")[2] for name in ("url", "max_tokens", "extra_body", "seed")] == [
        *("c.toml:2:1", "c.toml:4:1", "c.toml:11:2", "c.toml"),
    ]
    yaml = load(tmp_path, "c.yaml", YAML)
    assert [yaml.where(name).rpartition("/")[2] for name in ("url", "max_tokens", "extra_body")] == [
        *("c.yaml:2:1", "c.yaml:4:1", "c.yaml:10:1"),
    ]


def test_keys_that_a_merge_brings(tmp_path):
    text = "seed: 3\nextra_body: &base\n  top_k: 3\nresponse:\n  <<: *base\n"
    assert load(tmp_path, "c.yaml", text).options == {"seed": 3, "extra_body": {"top_k": 3}, "response": {"top_k": 3}}


@pytest.mark.parametrize("name,text", [("c.yaml", ""), ("c.toml", ""), ("c.json", "{}"), ("c.yaml", "# nothing\n")])
def test_an_empty_file_says_nothing(tmp_path, name, text):
    assert load(tmp_path, name, text).options == {}


@pytest.mark.parametrize(
    "name,text,where,what,todo",
    [
        (
            "c.toml",
            'url = "x"\nconcurrencys = 3\n',
            "c.toml:2:1",
            'there is no option "concurrencys"',
            'mean "concurrencies"',
        ),
        ("c.toml", 'a = """\nurl = 3\n"""\n', "c.toml:1:1", 'there is no option "a"', "known are"),
        ("c.toml", '[target]\nurl = "x"\n', "c.toml:1:2", 'there is no option "target"', "top level"),
        ("c.toml", "passes = 2\n\n  seed = 'x'\n", "c.toml:3:3", '"seed" is not a whole number', "it is x here"),
        ("c.toml", "seed = true\n", "c.toml:1:1", '"seed" is not a whole number', "true"),
        ("c.toml", "passes = \n", "c.toml:1:10", "broken TOML", "there"),
        ("c.toml", "passes = [1,\n", "c.toml:2:1", "broken TOML", "there"),
        ("c.toml", "seed = 1\nseed = 2\n", "c.toml:2:9", "broken TOML", "there"),
        ("c.toml", "duration = 1979-05-27\n", "c.toml:1:1", '"duration" is not a duration', "1979"),
        ("c.yaml", "url: x\npases: 2\n", "c.yaml:2:1", 'there is no option "pases"', 'mean "passes"'),
        ("c.yaml", "url: x\n\nduration: soon\n", "c.yaml:3:1", '"duration" is not a duration: "soon"', "soon"),
        ("c.yaml", "stream: yes\n", "c.yaml:1:1", '"stream" is not true or false', "yes"),
        ("c.yaml", "url: [x\n", "c.yaml:2:1", "broken YAML", "there"),
        ("c.yaml", "seed: 1\nseed: 2\n", "c.yaml:2:1", "broken YAML: found duplicate key", "there"),
        ("c.yaml", "a: b: c\n", "c.yaml:1:5", "broken YAML", "there"),
        ("c.yaml", "- url\n", "c.yaml", "this is not a table of options", "option: value"),
        ("c.yaml", "a: !!python/object:os.system x\n", "c.yaml:1:4", "the tag tag:yaml.org", "write"),
        ("c.yaml", "max-tokens: 1\nmax_tokens: 2\n", "c.yaml:2:1", "given twice", "once"),
        ("c.yaml", "concurrencies: [1, x]\n", "c.yaml:1:1", "not a list of whole numbers", "x"),
        ("c.yaml", "concurrencies: 1,0\n", "c.yaml:1:1", 'not a list of whole numbers: "0" holds a 0', "1,0"),
        ("c.yaml", "rates: [fast]\n", "c.yaml:1:1", "not a list of rates", "fast"),
        ("c.yaml", "extra_body: 3\n", "c.yaml:1:1", "not a table", "3"),
        ("c.yaml", "header: 3\n", "c.yaml:1:1", "not a text or a list of texts", "3"),
        ("c.yaml", "headers: {a: {b: c}}\n", "c.yaml:1:1", "not a table of plain values", "b"),
        ("c.json", '{"url": "x",\n "sed": 1}', "c.json:2:2", 'there is no option "sed"', 'mean "seed"'),
        ("c.json", '{"url": "x",\n', "c.json:2:1", "broken JSON", "there"),
        ("c.toml", "a = " + "[" * 100_000, "c.toml", "broken TOML: nested too deeply", ""),
        ("c.json", "[" * 100_000, "c.json", "broken JSON", ""),
        ("c.yaml", "url: \x01\n", "c.yaml", "broken YAML", "there"),
        ("c.json", "[1]", "c.json", "not an object of options", "option"),
        ("c.ini", "url=x", "c.ini", "suffix", ".toml"),
        ("c.yaml", b"url: \xff\n", "c.yaml:1:6", "0xff is not UTF-8", "UTF-8"),
    ],
)
def test_bad_files(tmp_path, name, text, where, what, todo):
    found = refused(tmp_path, name, text)
    assert found[0] == where
    assert what in found[1]
    assert todo in (found[2] or "")


def test_files_that_are_not_there(tmp_path):
    for path, what in ((tmp_path / "none.toml", "no such file"), (tmp_path, "folder")):
        with pytest.raises(ConfigError, match=what):
            load_config(path, INPUT_OPTIONS)


@given(st.text(alphabet="abc:=[]{}\"'\n #-12,.&*!|>", max_size=40), st.sampled_from(["toml", "yaml", "json"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_options_or_refused_with_its_file(tmp_path, text, suffix):
    problem = refusal(load, tmp_path, f"any.{suffix}", text)
    assert f"any.{suffix}" in problem.where if problem else load(tmp_path, f"any.{suffix}", text).options == {}


@given(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
)
def test_every_kind_judges_every_value(value):
    judged = {kind: complaint(kind, value) for kind in set(INPUT_OPTIONS.values())}
    assert judged["any"] is None
    assert all(found is None or found.startswith("is not ") for found in judged.values())


def run_json(**options):
    return json.dumps({"schema": 1, "gpusize": "0.1.0", "run": "r1", "options": options}, indent=1)


def test_a_run_repeats(tmp_path):
    config = load(tmp_path, "run.json", run_json(url="http://h", seed=3, api=None, retired=1))
    assert config.options == {"url": "http://h", "seed": 3}
    assert config.notes == [
        f"{tmp_path}/run.json: repeats run r1",
        f"{tmp_path}/run.json: ignored, as this version has no such option: retired",
    ]
    assert load_config(tmp_path, INPUT_OPTIONS).options == config.options
    where, what, _ = refused(tmp_path, "run.json", run_json(url="http://h", seed="x"))
    assert where == "run.json:7:3"
    assert '"seed" is not a whole number' in what


def test_the_calculators_own_sample(monkeypatch):
    """As in its documentation: the path counts from the working directory, as that tool takes it, or from the YAML."""
    for directory in (FIXTURES, Path("/")):
        monkeypatch.chdir(directory)
        config = load_config(FIXTURES / "config-sizing-calc.yml", INPUT_OPTIONS)
        dataset = dataset_from_options(config.options)
        assert dataset is not None
        assert (len(dataset), dataset.key, dataset.fmt) == (2, "question", "json")
        assert config.notes == [
            f"{FIXTURES}/config-sizing-calc.yml: a sizing calculator's configuration; its dataset is read",
            f"{FIXTURES}/config-sizing-calc.yml: ignored: eval.general.output_dir",
        ]


CALCULATOR = """\
llms: {nim: {_type: nim}}
workflow: {_type: react}
eval:
  general:
    max_concurrency: 8
    dataset:
      _type: jsonl
      file_path: ${DATA_DIR:-data}/d.jsonl
      id_key: name
      structure:
        question_key: ask
        answer_key: told
  evaluators: {}
"""


def test_a_whole_calculator_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/d.jsonl").write_text('{"name": "n1", "ask": "why?", "told": "so"}\n')
    config = load(tmp_path, "c.yml", CALCULATOR)
    dataset = dataset_from_options(config.options)
    assert dataset is not None
    assert (list(dataset.ids), [row.value for row in dataset]) == (["n1"], ["why?"])
    assert config.notes[1].endswith(
        "ignored: llms, workflow, eval.general.max_concurrency, "
        "eval.general.dataset.structure.answer_key, eval.evaluators"
    )
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "moved"))
    shutil.move(tmp_path / "data", tmp_path / "moved")
    assert load(tmp_path, "c.yml", CALCULATOR).options["dataset"] == f"{tmp_path}/moved/d.jsonl"


@pytest.mark.parametrize(
    "change,where,what",
    [
        (("_type: jsonl", "_type: xls"), "c.yml:7:7", 'a dataset of type "xls" cannot be read'),
        (("file_path:", "path:"), "c.yml:6:5", "names no file"),
        (("${DATA_DIR:-data}", "none"), "c.yml:8:7", "there is no such dataset; looked for none/d.jsonl and "),
        (("${DATA_DIR:-data}", "${NO_SUCH_DIR}"), "c.yml:8:7", "NO_SUCH_DIR is not set"),
        (("    dataset:", "    other:"), "c.yml:4:3", "names no file"),
    ],
)
def test_bad_calculator_files(tmp_path, monkeypatch, change, where, what):
    monkeypatch.delenv("DATA_DIR", raising=False)
    monkeypatch.delenv("NO_SUCH_DIR", raising=False)
    found = refused(tmp_path, "c.yml", CALCULATOR.replace(*change))
    assert found[0] == where
    assert what in found[1]
