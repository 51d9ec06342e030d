"""``gpusize autoscale pull`` and ``dashboard`` on a double of a Prometheus server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from gpusize.records.series import scan_series
from tests.cli.conftest import Gpusize
from tests.series.double import Double, refusal
from tests.series.test_pull import BEGIN_S, END_S, gauge
from tests.series.test_time_range import run_folder

RANGE = ("--from", str(BEGIN_S), "--to", str(END_S))
PRESETS = ("--preset", "vllm", "--preset", "deployment")


@pytest.fixture
def double() -> Iterator[Double]:
    series = [
        gauge("vllm:num_requests_running", 1, instance="a"),
        gauge("kube_deployment_status_replicas_ready", 4, instance="k"),
    ]
    with Double(series, now_ms=round(time.time() * 1000)) as double:
        yield double


def test_a_pull_is_told_in_a_table(gpusize: Gpusize, double: Double):
    done = gpusize("autoscale", "pull", "--prometheus", double.url, *PRESETS, *RANGE, "--out", "series")
    assert done.code == 0, done.err
    assert "running" in done.out
    assert "no series of waiting" in done.out
    assert "ms ahead of ours" in done.out or "ms behind ours" in done.out
    assert done.out.rstrip().endswith("series")
    frame = scan_series(Path("series")).collect()
    assert set(frame["name"]) == {"running", "replicas_ready"}


def test_one_document_of_json(gpusize: Gpusize, double: Double):
    done = gpusize("autoscale", "pull", "--prometheus", double.url, *PRESETS, *RANGE, "--out", "series", "--json")
    facts = json.loads(done.out)
    assert facts == json.loads(Path("series/series.json").read_text())
    assert facts["names"]["running"]["series"] == 1
    assert facts["server"] == double.url


def test_a_server_that_ends_in_the_middle_ends_with_3(gpusize: Gpusize, double: Double):
    double.fault = lambda asked: refusal(401, "expired") if len(double.asked) > 2 else None
    command = ("autoscale", "pull", "--prometheus", double.url, *PRESETS, *RANGE, "--out", "series")
    done = gpusize(*command)
    assert done.code == 3
    assert "status 401: expired" in done.err
    assert "the same command goes on" in done.err
    assert "Traceback" not in done.err
    assert scan_series(Path("series")).select(pl.len()).collect().item() > 0
    double.fault = None
    again = gpusize(*command)
    assert again.code == 0, again.err


@pytest.mark.parametrize(
    "words, complaint",
    [
        (RANGE, "nothing to pull"),
        (PRESETS, "it takes one range of time. Give --run, --result, or --from and --to"),
        ((*PRESETS, *RANGE, "--run", "runs"), "it takes one range of time"),
        ((*PRESETS, "--from", "1"), "a range has two ends"),
        ((*PRESETS, "--from", "2026-11-20T21:00:00", "--to", "2"), "has no time zone"),
        (("--preset", "vlm", *RANGE), 'there is no preset "vlm". Did you mean "vllm"?'),
        (("--series", "sum(up)", *RANGE), "is not a series"),
        ((*PRESETS, *RANGE, "--prometheus-match", "namespace"), "are not label matchers"),
        ((*PRESETS, *RANGE, "--prometheus-header", "Authorization: Bearer abc"), "is written out"),
        ((*PRESETS, *RANGE, "--margin", "a lot"), "is not a duration"),
    ],
)
def test_mistakes_are_one_line(gpusize: Gpusize, double: Double, words: tuple[str, ...], complaint: str):
    done = gpusize("autoscale", "pull", "--prometheus", double.url, *words, "--out", "series")
    assert done.code == 2
    assert complaint in done.complaint
    assert not Path("series").exists()
    assert not double.asked


def test_a_token_is_sent_and_kept_nowhere(gpusize: Gpusize, double: Double, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOKEN", "t0ken-t0ken")
    own = ("--prometheus-token-env", "TOKEN")
    done = gpusize("autoscale", "pull", "--prometheus", double.url, *own, *PRESETS, *RANGE, "--out", "series")
    assert done.code == 0, done.err
    assert set(double.tokens) == {"Bearer t0ken-t0ken"}
    assert "t0ken" not in done.out + done.err
    files = [file for file in Path("series").rglob("*") if file.is_file()]
    assert not [file for file in files if b"t0ken" in file.read_bytes()]


def test_nobody_there_is_one_line(gpusize: Gpusize, double: Double):
    double.fault = lambda _: refusal(503)
    done = gpusize(
        "autoscale", "pull", "--prometheus", double.url, "--retry", "0s", *PRESETS, *RANGE, "--out", "series"
    )
    assert done.code == 3
    assert done.complaint.startswith(f"{double.url}: status 503")


def test_a_dashboard_is_written(gpusize: Gpusize):
    done = gpusize("autoscale", "dashboard", "--preset", "vllm", "--preset", "hpa", "--out", "d.json")
    assert (done.code, done.out) == (0, "d.json\n")
    document = json.loads(Path("d.json").read_text())
    assert [panel["title"] for panel in document["panels"] if panel["type"] == "row"] == ["vllm", "hpa"]
    printed = gpusize("autoscale", "dashboard", "--preset", "vllm", "--preset", "hpa")
    assert json.loads(printed.out) == document
    assert gpusize("autoscale", "dashboard").complaint.startswith("--preset: there is nothing to show")
    assert gpusize("autoscale", "dashboard", "--preset", "nope").code == 2


def test_series_of_a_run_go_into_its_folder(gpusize: Gpusize, double: Double, tmp_path: Path):
    pairs = [(0, BEGIN_S * 10**9, 5)]
    run = run_folder(tmp_path / "run", pairs, {"start_ns": 0, "end_ns": 600 * 10**9})
    command = ("autoscale", "pull", "--prometheus", double.url, *PRESETS)
    done = gpusize(*command, "--run", run)
    assert done.code == 0, done.err
    facts = json.loads((run / "series" / "series.json").read_text())
    assert facts["range"]["told_by"] == "run r1"
    assert facts["range"]["end_ns"] - facts["range"]["start_ns"] == 600 * 10**9
    assert facts["range"]["to_ns"] - facts["range"]["end_ns"] == 60 * 10**9
    assert gpusize(*command, *RANGE).complaint.startswith("--out: it says where the series go")
