"""``gpusize estimate --from-metrics``: answers, refusals, what is wrong with the words, and a double of Prometheus."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from tests.cli.conftest import Gpusize
from tests.estimate.production_day import WALL_NS, day, folder, served
from tests.series.double import Double
from tests.series.test_pull import BEGIN_S, END_S, gauge

SLO = ("--slo", "p95 runtime <= 8s")


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A day whose peak is near what a replica carries."""
    return str(folder(tmp_path_factory.mktemp("busy"), day(4.2, minutes=30, replicas=1)))


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(folder(tmp_path_factory.mktemp("quiet"), day(0.8, minutes=30, replicas=1)))


def test_an_answer_says_what_it_rests_on(gpusize: Gpusize, series: str):
    done = gpusize("estimate", "--from-metrics", series, "--rate", "20/s", *SLO, "--gpus-per-replica", "2")
    assert done.code == 0, done.err
    assert "GPUs for 20 requests/s at p95 runtime <= 8s" in done.out
    assert "telemetry: replicas fitted to scraped series" in done.out
    assert "steps between scrapes of 1 replica, 15 s each" in " ".join(done.out.replace("│", " ").split())


def test_a_refusal_is_a_measured_no_and_names_the_load(gpusize: Gpusize, quiet: str):
    done = gpusize("estimate", "--from-metrics", quiet, "--users", "400", *SLO, "--json")
    assert done.code == 1
    [found] = json.loads(done.out)["estimates"]
    assert (found["gpus"], found["details"]["refusal"]) == (None, "knee")
    assert found["details"]["load"].startswith("load one replica with about")
    assert "no estimate can be given" in done.err


def test_tokens_per_second_become_requests_by_the_answers_seen(gpusize: Gpusize, quiet: str):
    done = gpusize("estimate", "--from-metrics", quiet, "--token-rate", "2000/s", *SLO, "--json")
    [found] = json.loads(done.out)["estimates"]
    mean = served(0.8, minutes=30, replicas=1).output.mean()
    assert found["rate"] == pytest.approx(2000 / mean, rel=0.02)


def test_the_log_of_another_service_changes_nothing_and_is_named(gpusize: Gpusize, quiet: str, tmp_path: Path):
    mine = served(0.8, minutes=30, replicas=1)
    short = {"time": WALL_NS / 1e9 + mine.due_s, "prompt_tokens": mine.prompt, "output_tokens": mine.output // 9 + 1}
    pl.DataFrame(short).write_csv("other.csv")
    words = ("estimate", "--from-metrics", quiet, "--token-rate", "2000/s", *SLO, "--json")
    [bare] = json.loads(gpusize(*words).out)["estimates"]
    [found] = json.loads(gpusize(*words, "--access-log", "other.csv").out)["estimates"]
    assert (found["gpus"], found["rate"]) == (bare["gpus"], bare["rate"])
    assert any("the access log other.csv is not used: its answers have" in text for text in found["warnings"])


def test_an_access_log_tells_lengths_where_no_series_does(gpusize: Gpusize, series: str, tmp_path: Path):
    samples = pl.read_parquet(Path(series) / "series.parquet" / "*.parquet")
    samples.filter(~pl.col("name").str.contains("_length")).write_parquet("without.parquet")
    mine = served(4.2, minutes=30, replicas=1)
    pl.DataFrame(
        {"time": WALL_NS / 1e9 + mine.due_s, "prompt_tokens": mine.prompt, "output_tokens": mine.output}
    ).write_csv("access.csv")
    words = ("estimate", "--from-metrics", "without.parquet", "--rate", "20/s", *SLO, "--json")
    [bare] = json.loads(gpusize(*words).out)["estimates"]
    assert bare["details"]["refusal"] == "lengths"
    done = gpusize(*words, "--access-log", "access.csv")
    assert done.code == 0, done.err
    [found] = json.loads(done.out)["estimates"]
    assert found["details"]["lengths"] == "log"


def test_tokens_per_second_without_lengths_say_why_the_log_does_not_tell_them(gpusize: Gpusize, series: str) -> None:
    samples = pl.read_parquet(Path(series) / "series.parquet" / "*.parquet")
    samples.filter(~pl.col("name").str.contains("_length|token")).write_parquet("silent.parquet")
    mine = served(4.2, minutes=30, replicas=1)
    pl.DataFrame({"time": mine.due_s, "prompt_tokens": mine.prompt, "output_tokens": mine.output}).write_csv("old.csv")
    words = ("estimate", "--from-metrics", "silent.parquet", "--token-rate", "2000/s", *SLO, "--access-log", "old.csv")
    done = gpusize(*words)
    assert done.code == 2
    assert "no series tells the length of answers" in done.err
    assert "the access log old.csv is not used: of its" in done.err


@pytest.mark.parametrize(
    "words, complaint",
    [
        ((), "there is nothing to estimate from. Name run folders, or give --from-metrics"),
        (("--from", "1"), "--from: it belongs to --from-metrics"),
        (("--batch-limit", "3"), "--batch-limit: it belongs to --from-metrics"),
        (("runs", "--from-metrics", "s"), "runs and series are both given"),
        (("--from-metrics", "nowhere"), "nowhere: there is no such file or folder"),
        (("--from-metrics", "empty"), "empty: not a folder of pulled series"),
        (("--from-metrics", "text.parquet"), "text.parquet: not a Parquet file, or damaged"),
        (("--from-metrics", "other.parquet"), "its columns are not those of pulled series: t_ns, name, labels"),
        (("--from-metrics", "empty", "--host-gpus", "8"), "--host-gpus: it is about runs"),
        (("--from-metrics", "empty", "--method", "slope"), "--method: series have a method of their own"),
        (("--from-metrics", "empty", "--from", "1", "--to", "2"), "it is of a pull, and the series are here already"),
        (("--from-metrics", "http://127.0.0.1:9", "--from", "1"), "a range has two ends"),
        (("--from-metrics", "http://127.0.0.1:9"), "which time is to be looked at is not said"),
        (("--from-metrics", "empty", "--rate", "3/s", "--users", "3"), "it takes one question"),
        (("--from-metrics", "empty", "--access-log", "a.log"), "a log is read by its suffix"),
    ],
)
def test_what_cannot_be_asked_is_said(gpusize: Gpusize, words: tuple[str, ...], complaint: str):
    Path("empty").mkdir()
    Path("text.parquet").write_text("no")
    pl.DataFrame({"a": [1]}).write_parquet("other.parquet")
    rate = () if "--rate" in words else ("--rate", "4/s")
    done = gpusize("estimate", *words, *rate, *SLO)
    assert done.code in (2, 3), done.err
    assert complaint in done.err
    assert "Traceback" not in done.err


@pytest.fixture
def double() -> Iterator[Double]:
    with Double([gauge("vllm:num_requests_running", 1, instance="a")], now_ms=round(time.time() * 1000)) as double:
        yield double


def test_series_are_pulled_from_a_server_and_kept(gpusize: Gpusize, double: Double):
    done = gpusize(
        "estimate", "--from-metrics", double.url, "--from", str(BEGIN_S), "--to", str(END_S), "--rate", "4/s", *SLO,
        "--out", "kept",
    )  # fmt: skip
    assert done.code == 1, done.err
    assert "no estimate can be given" in done.err
    assert "to fit a replica to" in done.err or "there is no itl" in done.err
    kept = pl.read_parquet("kept/series.parquet/*.parquet")
    assert kept["name"].unique().to_list() == ["running"]
    # Nothing from before and after the time that was asked for is evidence of it.
    assert BEGIN_S - 1 <= kept["t_ns"].min() / 1e9 <= kept["t_ns"].max() / 1e9 <= END_S + 1


def test_a_server_that_is_not_there_ends_with_3(gpusize: Gpusize):
    words = ("--from", "1", "--to", "100", "--rate", "4/s", *SLO)
    done = gpusize("estimate", "--from-metrics", "http://127.0.0.1:9", *words)
    assert done.code == 3
    assert "Traceback" not in done.err
