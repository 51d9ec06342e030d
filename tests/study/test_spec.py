"""Study files: combinations, placeholders, and what is refused before anything is started."""

import re
from pathlib import Path

import pytest

from gpusize.base.errors import ConfigError
from gpusize.studies.combination import plan_of
from gpusize.studies.placeholders import Scalar, fill, fill_words, unknown_names
from gpusize.studies.spec import read_study

FILE = """\
name: demo
settings:
  instances: [1, 2]
  gpus: [1, 4]
exclude:
  - {instances: 2, gpus: [4, 8]}
setup: "{python} start.py --n {instances} 'two words' --at {work}"
ready: http://127.0.0.1:8000/v2/health/ready
ready-timeout: 5m
warmup: {concurrencies: 2, duration: 1s}
run:
  url: http://127.0.0.1:8000/v1
  model: m-{instances}
  rates: 5/s
  count: 10
  workers: "{instances}"
  label: {site: here}
teardown:
  - stop {instances}
  - tidy {study}
"""


def write(tmp_path: Path, text: str, name: str = "demo.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


def test_combinations_are_the_product_without_what_is_excluded(tmp_path):
    study = read_study(write(tmp_path, FILE))
    assert [each.name for each in study.combinations] == [
        "instances=1,gpus=1",
        "instances=1,gpus=4",
        "instances=2,gpus=1",
    ]
    assert study.out == Path("studies/demo")
    assert read_study(study.source, tmp_path / "else").out == tmp_path / "else"
    assert study.timeouts_s["ready"] == 300
    assert study.timeouts_s["teardown"] == 120


def test_everything_is_filled_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = read_study(write(tmp_path, FILE))
    plan = plan_of(study, study.combinations[2])
    assert plan.setup[0][1:] == ["start.py", "--n", "2", "two words", "--at", str(plan.work)]
    assert plan.work == tmp_path / "studies/demo/work/instances=2,gpus=1"
    assert plan.teardown == (["stop", "2"], ["tidy", str(tmp_path / "studies/demo")])
    assert plan.labels == {"site": "here", "study": "demo", "instances": "2", "gpus": "1"}
    assert (plan.run["model"], plan.run["workers"], plan.run["gpus"]) == ("m-2", 2, 1)
    assert plan.run["label"] == plan.labels
    assert plan.warmup is not None
    assert plan.warmup["concurrencies"] == 2
    assert "rates" not in plan.warmup
    assert "count" not in plan.warmup
    lines = plan.lines()
    assert lines[0] == "instances=2,gpus=1"
    assert any(line.startswith("  teardown  stop 2") for line in lines)


def test_settings_may_be_a_list_and_may_be_left_out(tmp_path):
    text = "run: {url: 'http://h/v1'}\nsettings:\n  - {instances: 1, kind: cpu}\n  - {instances: 2, kind: gpu}\n"
    study = read_study(write(tmp_path, text))
    assert [each.name for each in study.combinations] == ["instances=1,kind=cpu", "instances=2,kind=gpu"]
    alone = read_study(write(tmp_path, "run: {url: 'http://h/v1'}\n"))
    assert [each.name for each in alone.combinations] == ["all"]


def test_toml(tmp_path):
    text = 'out = "x"\nsetup = "a {n}"\n[settings]\nn = [1, 2]\n[run]\nurl = "http://h/v1"\n'
    study = read_study(write(tmp_path, text, "d.toml"))
    assert (len(study.combinations), study.setup) == (2, (("a", "{n}"),))


@pytest.mark.parametrize(
    "text,where,what",
    [
        ("runs: {}\n", ":1:1", 'a study has no "runs"'),
        ("name: x\n", "", "there is nothing to run"),
        ("run: 3\n", ":1:1", '"run" is 3, not a table'),
        ("run: {url: 'http://h'}\nsettings: {n: []}\n", ":2:1", "no combination is left"),
        ("run: {url: 'http://h'}\nsettings: {n: [1, 1]}\n", ":2:1", "the combination n=1 is given twice"),
        ("run: {url: 'http://h'}\nsettings: {n: [[1]]}\n", ":2:1", '"n" is [1]'),
        ("run: {url: 'http://h'}\nsettings: {work: [1]}\n", ":2:1", '"work" cannot be the name of a setting'),
        ("run: {url: 'http://h'}\nsettings: [{a: 1}, {b: 1}]\n", ":2:1", '{"b": 1} has other settings than {"a": 1}'),
        ("run: {url: 'http://h'}\nsettings: 3\n", ":2:1", '"settings" is 3'),
        ("run: {url: 'http://h'}\nexclude: [{m: 1}]\n", ":2:1", '{"m": 1} names no setting'),
        ("run: {url: 'http://h'}\nsetup: go {gpu}\n", ":2:1", '"setup" has {gpu}, which is not a setting'),
        ("run: {url: 'http://h'}\nsetup: [3]\n", ":2:1", '"setup" is [3]'),
        ("run: {url: 'http://h'}\nsetup: \"go 'on\"\n", ":2:1", "the command go 'on cannot be split"),
        ("run: {url: 'http://h'}\nready-timeout: soon\n", ":2:1", '"soon" is not a duration'),
        ("run: {url: '{host}'}\n", ":1:1", '"run" has {host}, which is not a setting'),
    ],
)
def test_what_cannot_be_meant(tmp_path, text, where, what):
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_study(path)
    assert caught.value.what.startswith(what)
    assert caught.value.where == f"{path}{where}"


@pytest.mark.parametrize(
    "run,what",
    [
        ("{url: 'http://h', conncurrencies: 1}", 'gpusize run has no option "conncurrencies"'),
        ("{url: 'http://h', count: many}", '"count" is not a whole number'),
        ("{url: 'http://h', out: x}", 'a study decides on "out" itself'),
    ],
)
def test_options_of_the_run_are_checked_with_their_place(tmp_path, run, what):
    study = read_study(write(tmp_path, f"name: x\nrun: {run}\n"))
    with pytest.raises(ConfigError) as caught:
        plan_of(study, study.combinations[0])
    assert caught.value.what == what
    assert str(caught.value.where).startswith(f"{study.source}:2:")


def test_another_suffix(tmp_path):
    with pytest.raises(ConfigError, match="cannot tell the format"):
        read_study(write(tmp_path, "", "d.txt"))


def test_filling_in():
    names: dict[str, Scalar] = {"n": 2, "on": True, "name": "a b"}
    assert fill("{n}", names) == 2
    assert fill("x{n}{on}", names) == "x2true"
    assert fill({"a": ["{name}", 3]}, names) == {"a": ["a b", 3]}
    assert fill("{{n}} {1} {}", names) == "{n} {1} {}"
    assert fill_words(("{n}", "{name}"), names) == ["2", "a b"]
    assert unknown_names({"a": ["{m}", "{{k}}", "{n}"]}, names) == ["m"]


def test_the_studies_of_the_documentation_are_accepted(tmp_path):
    folder = Path(__file__).parents[2] / "docs" / "how-to"
    pages = [(folder / name).read_text("utf-8") for name in ("study.md", "traccc.md")]
    found = [text for page in pages for text in re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)]
    assert len(found) == 4
    for text in found:
        whole = text if "run:" in text else f"{text}run: {{url: 'http://h/v1'}}\n"
        study = read_study(write(tmp_path, whole))
        assert [plan_of(study, each).setup for each in study.combinations]


def test_a_server_on_its_cpu_tells_the_run_no_gpus(tmp_path):
    study = read_study(write(tmp_path, "settings: {gpus: [0, 1]}\nrun: {url: http://h, prompt: hi}\n"))
    assert [plan_of(study, each).run.get("gpus") for each in study.combinations] == [None, 1]


@pytest.mark.parametrize(
    "options,what,place",
    [
        ("duration: 3 parsecs", "parsecs", ":4:3"),
        ("concurrencies: 4:1:1", "4:1:1", ":4:3"),
        ("slo: p95 nosuch <= 3s", "nosuch", ":4:3"),
    ],
)
@pytest.mark.parametrize("key", ["run", "warmup"])
def test_a_load_that_cannot_be_meant_is_refused_before_anything_starts(tmp_path, key, options, what, place):
    target = "run: {url: http://h}\n" if key == "warmup" else ""
    text = f"settings: {{n: [1]}}\n{target}{key}:\n{'' if target else '  url: http://h' + chr(10)}  {options}\n"
    study = read_study(write(tmp_path, text))
    with pytest.raises(ConfigError, match=what) as caught:
        plan_of(study, study.combinations[0])
    assert str(caught.value.where).endswith(place)
