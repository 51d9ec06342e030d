"""Loads from files and options: the same fields everywhere, and errors that name line and column."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize.base.errors import ConfigError, UsageError
from gpusize.options.inputs import INPUT_OPTIONS
from gpusize.options.kinds import complaint
from gpusize.options.load import load_from_options, over
from gpusize.workload.load import ArrivalTrace, Load, Stage, Stream, Think

SEED = """\
# The four time-shifted generators of the stair-step experiment, as one load.
duration: 1h
process: constant
streams:
  - {name: first, rate: 0.5/s}
  - {name: second, rate: 0.5/s, start: 10m}
  - name: third
    start: 20m
    rate: 30/m
  - name: fourth
    stages: [0.5/s@10m, 0.5/s@20m]
    start: 30m
    priority: 2
    server-priority: 7
"""


def stored(options):
    """Options as they come back from run.json, of the kinds that a file may hold."""
    assert all(complaint(INPUT_OPTIONS[name], value) is None for name, value in options.items())
    return json.loads(json.dumps(options))


def test_streams_from_yaml(tmp_path):
    (tmp_path / "load.yaml").write_text(SEED, "utf-8")
    load = load_from_options({"load": str(tmp_path / "load.yaml"), "seed": 5})
    assert load == Load(
        duration_s=3600,
        process="constant",
        seed=5,
        streams=(
            Stream("first", rate=0.5),
            Stream("second", rate=0.5, start_s=600),
            Stream("third", rate=0.5, start_s=1200),
            Stream("fourth", 1800, stages="0.5/s@10m, 0.5/s@20m", priority=2, server_priority=7),
        ),
    )
    assert load_from_options(stored(load.options())) == load


TOML = """\
duration = "10s"
model = "m"
[[streams]]
rate = "2/s"
[[streams]]
rate = 3
model = "n"
"""


def test_streams_from_toml_and_json_with_defaults(tmp_path):
    (tmp_path / "load.toml").write_text(TOML, "utf-8")
    document = {"duration": "10s", "model": "m", "streams": [{"rate": "2/s"}, {"rate": 3, "model": "n"}]}
    (tmp_path / "load.json").write_text(json.dumps(document), "utf-8")
    wanted = Load(duration_s=10, streams=(Stream(rate=2, model="m"), Stream(rate=3, model="n")))
    assert load_from_options({"load": str(tmp_path / "load.toml")}) == wanted
    assert load_from_options({"load": str(tmp_path / "load.json")}) == wanted
    assert load_from_options({"load": document}) == wanted


def test_paths_are_relative_to_the_file(tmp_path, monkeypatch):
    folder = tmp_path / "loads"
    folder.mkdir()
    (folder / "t.csv").write_text("arrival_s\n0\n1\n", "utf-8")
    (folder / "load.yaml").write_text("arrivals: t.csv\nspeed: 2\narrivals-until: 10s\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    load = load_from_options({"load": "loads/load.yaml"})
    assert load.arrivals == ArrivalTrace("loads/t.csv", speed=2, until_s=10)
    kept = stored(load.options())
    monkeypatch.chdir("/")
    assert load_from_options(kept).levels(1)[0].explicit.due_ns.tolist() == [0, 500_000_000]


def test_options_win_over_the_file(tmp_path):
    (tmp_path / "load.yaml").write_text("stages:\n  - 1/s@1m\n  - 2/s@1m\nqueue: 5\nthink: 0s\n", "utf-8")
    load = load_from_options({"load": str(tmp_path / "load.yaml"), "queue": 9, "process": "constant"})
    assert (load.queue, load.process, len(load.stages)) == (9, "constant", 2)


@pytest.mark.parametrize(
    "name, text, where, what",
    [
        ("a.yaml", "duration: 1h\nstreams:\n  - name: a\n    rate: 0.5/q\n", "a.yaml:4:5", "is not a rate"),
        ("a.yaml", "stage: 1/s@1m\n", "a.yaml:1:1", 'no option "stage"'),
        ("a.yaml", "duration: 1h\nstreams:\n  - rate: 1/s\n    stats: 3\n", "a.yaml:4:5", 'no option "stats"'),
        ("a.yaml", "stages:\n  - 1/s@1m\n  - 1/x@1m\n", "a.yaml:3:5, stages, column 3", "not a unit of time"),
        ("a.yaml", "think: sometimes\n", "a.yaml:1:1", "is not a think time"),
        ("a.yaml", "streams:\n  - name: a\n    rate: 1/s\n", "a.yaml:1", "never end"),
        ("a.yaml", "streams:\n  - name: a\n", 'a.yaml:2:5, stream "a"', "nothing says when"),
        ("a.yaml", "streams: 3\n", "a.yaml:1:1", "is not a list of streams"),
        ("a.yaml", "model: m\nrates: 5\ncount: 3\n", "a.yaml:1:1", "belongs to streams"),
        ("a.yaml", "speed: 2\n", "a.yaml:1:1, speed", "belongs to recorded arrivals"),
        ("a.yaml", "sample-records: 1/0\nrates: 1\ncount: 1\n", "a.yaml:1:1", "is not a share"),
        ("a.yaml", "sample-records: 2\nrates: 1\ncount: 1\n", "a.yaml:1:1", "is not a share"),
        (
            "a.yaml",
            "duration: 10s\nprocess: constant\nstreams:\n  - {rate: 1/s, start: 10s}\n",
            "a.yaml:3:1",
            "no stream begins before the end of the run, which lasts 10s",
        ),
        ("a.yaml", "duration: 1h\nduration_: 3\n", "a.yaml:2:1", "no option"),
        ("a.yaml", "max-connections: 3\nmax_connections: 3\n", "a.yaml:2:1", "given twice"),
        ("a.yaml", "rates: 5\nduration: 1s\npasses: 3\n", "a.yaml:1", "passes"),
        ("a.toml", '[[streams]]\nrate = "1/s"\n[[streams]]\nrate = "x"\n', "a.toml:4:1", "is not a rate"),
        ("a.json", '{"duration": "1h",\n "streams": [{"rate": 1},\n  {"rate": "x"}]}', "a.json:3:4", "is not a rate"),
        ("a.txt", "", "a.txt", "cannot tell the format from the suffix"),
        ("a.yaml", "streams: [\n", "a.yaml:2:1", "broken YAML"),
    ],
)
def test_errors_name_the_line(name, text, where, what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=what) as caught:
        load_from_options({"load": name})
    assert caught.value.where == where
    assert caught.value.todo


def test_a_trace_that_is_missing_keeps_its_own_words(tmp_path):
    (tmp_path / "load.yaml").write_text("arrivals: none.csv\n", "utf-8")
    with pytest.raises(UsageError, match="no such file") as caught:
        load_from_options({"load": str(tmp_path / "load.yaml")})
    assert caught.value.where == str(tmp_path / "none.csv")


STAGES = st.builds(Stage, st.floats(0.001, 1e6), st.none() | st.floats(0.001, 1e6), st.floats(0.001, 1e5))


@settings(deadline=None)
@given(st.lists(STAGES, min_size=1, max_size=4), st.sampled_from(["queue", "shed", "grow"]), st.integers(1, 1000))
def test_stages_come_back(stages, overload, sample):
    load = Load(stages=stages, overload=overload, sample_records=sample, process="gamma", burstiness=0.5)
    assert load_from_options(stored(load.options())) == load


@pytest.mark.parametrize(
    "load",
    [
        Load(concurrencies=[3], duration_s=5, think="lognormal(2s,0.5)", sessions=True),
        Load(concurrencies=[3], count=5, think=Think("recorded"), sessions=True),
        Load(concurrencies=[3], count=5, think="250ms"),
        Load(rates=[3], count=5, overload="grow", max_connections=999, priority_header="X-Priority"),
        Load(stages="8@1m, 8..64@5m"),
        Load(stages="1/s burst 9/s for 1s every 3s gamma(0.25)@1m, 0/s@5s"),
    ],
)
def test_other_loads_come_back(load):
    assert load_from_options(stored(load.options())) == load


def test_a_fixed_think_time_is_a_number():
    load = load_from_options({"think": "1m30s"})
    assert (load.think_s, load.think) == (90.0, None)
    assert load_from_options({"think": 2}).think_s == 2.0
    assert load_from_options({"think": "exp(2s)"}).think == Think("exponential", 2)


@pytest.mark.parametrize(
    "options, given, left",
    [
        ({"rates": "5", "duration": "5s"}, {"stages": "1/s@1m"}, {"stages": "1/s@1m"}),
        ({"arrivals": "t.csv", "speed": 4}, {"rates": "5"}, {"rates": "5"}),
        ({"concurrencies": "4", "passes": 2}, {"duration": "5s"}, {"concurrencies": "4", "duration": "5s"}),
        ({"stages": "1/s@1m", "seed": 4}, {"queue": 3}, {"stages": "1/s@1m", "seed": 4, "queue": 3}),
        ({"load": "a.yaml"}, {"plan": "p.parquet", "count": None}, {"plan": "p.parquet"}),
        ({"load": {"streams": []}}, {"plan": "p"}, {"load": {"streams": []}, "plan": "p"}),
        ({"load": {"streams": []}}, {"plan": "p", "rates": "5"}, {"plan": "p", "rates": "5"}),
    ],
)
def test_the_command_line_replaces_what_says_the_same(options, given, left):
    assert over(options, given) == left


def test_samples():
    assert load_from_options({"sample_records": "1/100"}).sample_records == 100
    for share, each in (("1/1", 1), ("1", 1), (1, 1), ("0.01", 100), (0.5, 2), (" 1 / 8 ", 8)):
        assert load_from_options({"sample_records": share}).sample_records == each
    for wrong in ("0", "2/3", True, 1.5, "1/0", "-1", "0.3", "", "1e-2"):
        with pytest.raises(UsageError, match="not a share of records"):
            load_from_options({"sample_records": wrong})
    # A number of records alone may mean one of so many, or so many in all.
    for wrong in ("10", 10):
        with pytest.raises(UsageError, match=r'^sample_records: "10" is not .* Write it as 1/10: one of 10 is kept'):
            load_from_options({"sample_records": wrong})
    with pytest.raises(UsageError, match="as 1/3: one of 3 is kept"):
        load_from_options({"sample_records": "0.333"})


@pytest.mark.parametrize(
    "text, where, what",
    [
        ("rates: 5\nduration: 1s\nqueue: -3\n", "load.yaml:3:1", "queue must be 0 or more, not -3"),
        ("rates: 5\nduration: 1s\npriority_header: X Y\n", "load.yaml:3:1", "is not a header name"),
        ("rates: 5\nduration: 1s\nmax_error_rate: 2\n", "load.yaml:3:1", "is not a share"),
        ("duration: 1s\nprocess: gama\nrates: 5\n", "load.yaml:2:1", "is not an arrival process"),
        ("duration: 1s\nstreams:\n  - rate: 5/s\n    burstiness: 2\n", "load.yaml:1, stream", "belongs to gamma"),
        ("", "load.yaml", "describes no load"),
    ],
)
def test_what_cannot_be_meant_is_said_where_it_stands(text, where, what, tmp_path):
    (tmp_path / "load.yaml").write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=what) as caught:
        load_from_options({"load": str(tmp_path / "load.yaml")})
    assert str(caught.value.where) == str(tmp_path / where)
