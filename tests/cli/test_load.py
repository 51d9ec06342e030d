"""``gpusize load``: what a load will be, and its plan as a file."""

import csv
import json
from pathlib import Path

import pytest

from gpusize.cli import invoke

STAIRS = "0.5/s@10m, 1/s@10m, 1.5/s@10m, 2/s@30m"


def test_the_chart_of_the_stairs(capsys):
    assert invoke(["load", "show", "--stages", STAIRS, "--process", "constant", "--width", "80"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "requests/s"
    assert lines[1].startswith("       2 ┤")
    assert lines[11].count("┬") == 3
    assert all(len(line) <= 80 for line in lines)
    assert lines[-1] == "5,400 requests in 1h, at most 2 within one second"
    assert [line.split() for line in lines[14:19]] == [
        ["level", "start", "duration", "load", "process", "requests"],
        ["0", "0s", "10m", "0.5/s", "constant", "300"],
        ["1", "10m", "10m", "1/s", "constant", "600"],
        ["2", "20m", "10m", "1.5/s", "constant", "900"],
        ["3", "30m", "30m", "2/s", "constant", "3,600"],
    ]
    heights = [sum(line[10 + column : 11 + column].strip() != "" for line in lines[1:11]) for column in (1, 15, 30, 60)]
    assert heights == [3, 5, 8, 10]


def test_streams_stand_upon_each_other(capsys, tmp_path):
    (tmp_path / "load.yaml").write_text(
        "duration: 20s\nprocess: constant\nstreams:\n"
        "  - {name: low, rate: 5/s}\n  - {name: top, start: 10s, rate: 5/s}\n",
        "utf-8",
    )
    assert invoke(["load", "show", "--load", str(tmp_path / "load.yaml"), "--width", "60"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["requests/s", "█", "low", "▓", "top"]
    assert lines[1][-1] == "▓"
    assert "▓" not in lines[10]
    assert lines[-1] == "150 requests in 20s, at most 10 within one second"


def test_json_and_a_picture(capsys, tmp_path):
    png = tmp_path / "load.png"
    assert invoke(["load", "show", "--stages", "1/s..9/s@1m", "--json", "--png", str(png)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["levels"][0]["load"] == "1/s..9/s"
    assert document["requests"] == document["levels"][0]["requests"] > 200
    assert png.read_bytes()[:4] == b"\x89PNG"


def test_what_can_be_said_of_users(capsys):
    assert invoke(["load", "show", "--stages", "8@1m, 8..64@5m", "--think", "exp(2s)", "--sessions"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(" in flight")
    assert "8..64 users  think exp(2s)  as fast as answers come" in out
    assert out.endswith("requests: as many as the target answers in 6m\n")
    assert invoke(["load", "show", "--rates", "2", "--duration", "10s", "--sessions"]) == 0
    assert "conversations, each with all its turns in 10s" in capsys.readouterr().out


def test_passes_ask_for_a_dataset(capsys):
    assert invoke(["load", "show", "--concurrencies", "2,4"]) == 0
    captured = capsys.readouterr()
    assert "no dataset is named" in captured.err
    assert captured.out.endswith("6 requests\n")


def test_a_plan_goes_out_and_comes_back(capsys, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "a"}\n{"prompt": "b"}\n{"prompt": "c"}\n', "utf-8")
    plan, again = tmp_path / "plan.parquet", tmp_path / "again.parquet"
    options = ["--stages", "20/s@2s, 40/s@1s", "--seed", "4", "--dataset", str(rows), "--shuffle"]
    assert invoke(["load", "export", *options, "--out", str(plan)]) == 0
    assert capsys.readouterr().out.startswith(f"{plan}: ")
    assert invoke(["load", "export", "--plan", str(plan), "--out", str(again)]) == 0
    import polars as pl

    assert pl.read_parquet(plan).equals(pl.read_parquet(again), null_equal=True)
    assert pl.read_parquet(plan)["row"].unique().sort().to_list() == [0, 1, 2]


def test_a_plan_without_rows_says_so(capsys, tmp_path):
    assert invoke(["load", "export", "--rates", "5", "--count", "3", "--out", str(tmp_path / "p.csv")]) == 0
    assert "sends row 0 only" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, code, what",
    [
        (["show", "--stages", "1/s"], 2, "the duration is missing"),
        (["show", "--speed", "4"], 2, "belongs to recorded arrivals"),
        (["show", "--rates", "5"], 2, "would never end"),
        (["show", "--concurrencies", "3", "--png", "x.png"], 2, "depends on the answers"),
        (["export", "--stages", "3@1m", "--out", "p.csv"], 2, "has no plan before it runs"),
        (["export", "--rates", "5", "--count", "1", "--out", "p.txt"], 2, "cannot be written as"),
        (["show", "--stages", "1/s@9s", "--png", "x.gif"], 2, '--png, x.gif: the ending ".gif" is of no picture'),
        (["show", "--stages", "1/s@9s", "--png", "x"], 2, "--png, x: its kind cannot be told. Name it .png, .svg or"),
        (["show", "--arrivals", "a.xyz"], 2, "Say --arrivals-format json"),
        (["show", "--arrivals", ""], 2, "--arrivals: no file is named"),
        (["show", "--rates", "5", "--duration", "0s"], 2, "--duration: must be positive, not 0 s"),
    ],
)
def test_what_cannot_be_meant(words, code, what, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.xyz").write_text("")
    assert invoke(["load", *words]) == code
    assert what in capsys.readouterr().err


@pytest.mark.parametrize("ending", [".svg", ".PDF"])
def test_pictures_of_other_kinds(ending, tmp_path):
    picture = tmp_path / f"load{ending}"
    assert invoke(["load", "show", "--stages", "1/s@3s", "--png", str(picture)]) == 0
    assert picture.stat().st_size > 1000


def figure(monkeypatch, words, tmp_path):
    """The axes of the picture of a load."""
    from matplotlib.figure import Figure

    saved = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path: saved.append(self))
    assert invoke(["load", "show", *words, "--png", str(tmp_path / "load.png")]) == 0
    return saved[0].axes[0]


def labels(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_few_requests_are_marked_one_by_one(monkeypatch, tmp_path):
    axes = figure(monkeypatch, ["--stages", "1/s..3/s@10s", "--process", "constant"], tmp_path)
    assert labels(axes) == ["planned", "a request"]
    [marks] = [each for each in axes.collections if len(each.get_paths()) == 20]
    assert marks.get_segments()[1][0][0] == pytest.approx(0.916, abs=0.001), "where the integral of the rate reaches 1"
    assert axes.get_ylim()[1] < 3.5, "the scale is that of the rate"


def test_many_requests_are_counted_in_intervals_that_hold_some(monkeypatch, tmp_path):
    axes = figure(monkeypatch, ["--stages", "5/s@200s"], tmp_path)
    assert labels(axes) == ["planned", "arrivals"]
    [stairs] = [each for each in axes.patches if hasattr(each, "get_data")]
    assert 35 <= len(stairs.get_data().values) <= 45
    assert 5 < axes.get_ylim()[1] < 12


def test_of_a_short_trace_its_mean_rate_is_drawn_and_each_request(monkeypatch, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s\n0\n1\n2\n", "utf-8")
    axes = figure(monkeypatch, ["--arrivals", str(trace)], tmp_path)
    assert labels(axes) == ["planned", "a request"]
    assert axes.get_ylim()[1] == pytest.approx(1.5, rel=0.1)


def test_the_picture_of_users(monkeypatch, tmp_path):
    axes = figure(monkeypatch, ["--stages", "8@1m, 8..64@5m"], tmp_path)
    assert (axes.get_ylabel(), labels(axes)) == ("requests in flight", ["planned"])
    assert axes.figure.texts[1].get_text() == "requests that are kept in flight"


def test_options_of_the_load_are_the_same_for_run_and_show():
    from typing import Any

    import typer

    from gpusize.cli.app import application

    group: Any = typer.main.get_command(application())
    show = {each.name: each for each in group.commands["load"].commands["show"].params}
    run = {each.name: each for each in group.commands["run"].params}
    both = (show.keys() & run.keys()) - {"_debug", "json", "config"}
    assert len(both) > 20
    for name in both:
        assert (show[name].help, show[name].default) == (run[name].help, run[name].default), name


@pytest.mark.parametrize(
    "asked, about",
    [
        (("--rates", "100000", "--duration", "24h"), 8_640_000_000),
        (("--stages", "20000/s@1h, 0/s..20000/s@1h", "--process", "gamma", "--burstiness", "0.5"), 108_000_000),
    ],
)
def test_what_is_too_long_to_be_counted_is_said_by_its_rate(capsys, asked, about):
    assert invoke(["load", "show", *asked]) == 0
    done = capsys.readouterr()
    assert done.out.splitlines()[-1].startswith(f"about {about:,} requests in ")
    assert done.out.endswith(", by the rate: too many to count\n")
    assert "0,000, by the rate: too many to count" in done.out
    assert invoke(["load", "show", *asked, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["requests"], document["requests_about"], document["peak_per_s"]) == (None, about, None)


def test_streams_are_counted_up_to_the_same_bound(capsys, tmp_path):
    (tmp_path / "load.yaml").write_text("duration: 1h\nstreams:\n  - {rate: 9000/s}\n  - {rate: 9000/s}\n", "utf-8")
    assert invoke(["load", "show", "--load", str(tmp_path / "load.yaml")]) == 0
    assert "about 64,800,000 requests in 1h" in capsys.readouterr().out
    assert invoke(["load", "show", "--load", str(tmp_path / "load.yaml"), "--process", "constant"]) == 0
    assert "64,800,000 requests in 1h" in capsys.readouterr().out.splitlines()[-1]


def test_equal_gaps_are_counted_however_many_they_are(capsys):
    assert invoke(["load", "show", "--rates", "100000", "--duration", "24h", "--process", "constant"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "8,640,000,000 requests in 24h"


@pytest.mark.parametrize("process", ["constant", "poisson"])
def test_a_process_of_recorded_arrivals_is_refused(capsys, tmp_path, process):
    (tmp_path / "t.csv").write_text("arrival_s\n0\n1\n", "utf-8")
    assert invoke(["load", "show", "--arrivals", str(tmp_path / "t.csv"), "--process", process]) == 2
    assert "a process belongs to rates, and the arrivals are recorded" in capsys.readouterr().err
    plan = tmp_path / "p.csv"
    plan.write_text("due_s\n0\n1\n", "utf-8")
    assert invoke(["load", "show", "--plan", str(plan), "--process", process]) == 2
    assert "process" in capsys.readouterr().err
    streams = tmp_path / "s.yaml"
    streams.write_text(f"streams:\n  - {{name: a, arrivals: t.csv, process: {process}}}\n", "utf-8")
    assert invoke(["load", "show", "--load", str(streams)]) == 2
    assert "the arrivals are recorded" in capsys.readouterr().err


def test_a_process_of_rates_before_is_none_of_the_trace(capsys, tmp_path):
    (tmp_path / "t.csv").write_text("arrival_s\n0\n1\n", "utf-8")
    (tmp_path / "c.toml").write_text('rates = [5]\nduration = "9s"\nprocess = "gamma"\nburstiness = 2\n', "utf-8")
    asked = [
        "load",
        "show",
        "--config",
        str(tmp_path / "c.toml"),
        "--arrivals",
        str(tmp_path / "t.csv"),
        "--count",
        "2",
    ]
    assert invoke(asked) == 0
    assert "2 requests in 1s" in capsys.readouterr().out


def test_recorded_pauses_need_conversations_here_too(capsys):
    assert invoke(["load", "show", "--concurrencies", "2", "--duration", "9s", "--think", "recorded"]) == 2
    assert "recorded pauses lie between the turns of a conversation" in capsys.readouterr().err


def test_a_plan_for_several_models_names_the_rows_that_are_dealt_to_them(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n', "utf-8")
    config = tmp_path / "run.yaml"
    config.write_text(f"dataset: {tmp_path / 'rows.jsonl'}\nmodel: m=2,n=1\nrates: [10]\ncount: 12\n", "utf-8")
    plan = tmp_path / "plan.csv"
    assert invoke(["load", "export", "--config", str(config), "--out", str(plan)]) == 0
    rows = [int(line["row"]) for line in csv.DictReader(plan.read_text("utf-8").splitlines())]
    # Two rows for three requests to each model in turn are a cycle of six.
    assert sorted(rows) == sorted([*range(6)] * 2)


@pytest.mark.parametrize("config", ["prompt = 'x'", "synthetic = 'input=5 rows=2'\ntokenizer = 'estimate'"])
def test_show_takes_the_configurations_that_run_takes(capsys, tmp_path, config):
    (tmp_path / "three.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n{"prompt": "c"}\n')
    (tmp_path / "c.toml").write_text(f"{config}\nurl = 'http://h/v1'\nconcurrencies = [2]\n")
    # A dataset on the command line takes the place of what the file would send, as in a run.
    given = ["--config", str(tmp_path / "c.toml"), "--dataset", str(tmp_path / "three.jsonl"), "--passes", "2"]
    assert invoke(["load", "show", *given, "--json"]) == 0, capsys.readouterr().err
    [level] = json.loads(capsys.readouterr().out)["levels"]
    assert level["requests"] == 4


def test_show_of_a_workflow_counts_the_rows_of_its_streams(capsys, tmp_path):
    (tmp_path / "two.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    (tmp_path / "c.yaml").write_text(
        "workflow: nowhere:answer\nload:\n  duration: 2s\n  process: constant\n"
        f"  streams: [{{name: one, rate: 5, dataset: {tmp_path / 'two.jsonl'}}}]\n"
    )
    assert invoke(["load", "show", "--config", str(tmp_path / "c.yaml"), "--json"]) == 0, capsys.readouterr().err
    assert json.loads(capsys.readouterr().out)["requests"] == 10


def test_show_does_not_draw_levels_where_run_would_search_for_them(capsys, tmp_path):
    (tmp_path / "c.toml").write_text("prompt = 'x'\nurl = 'http://h/v1'\nslo = 'p95 runtime <= 1s'\n")
    assert invoke(["load", "show", "--config", str(tmp_path / "c.toml")]) == 2
    assert "a search has no load before it runs" in capsys.readouterr().err
