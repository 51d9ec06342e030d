"""``gpusize load``: what a load will be, and its plan as a file."""

import json

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
    ],
)
def test_what_cannot_be_meant(words, code, what, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke(["load", *words]) == code
    assert what in capsys.readouterr().err
