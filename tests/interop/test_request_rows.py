"""Levels with another tool's requests: figures from the run folder against numpy over the same raw rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import gpusize
from gpusize.analysis.read_levels import verify_run
from gpusize.analysis.slo import Slo
from gpusize.base.errors import ConfigError, StoreError
from gpusize.records.schema import OUTCOMES
from gpusize.studies.imports.request_rows import ALL, RequestLevel, Told
from gpusize.studies.imports.run_folder import RunDraft, imported_before, run_of, write_run

WALL = 1_795_172_678_070_459_821
PROBS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
CLOSED = {"kind": "closed", "concurrency": 4}


def requests(rnd: np.random.Generator, users: int = 4, each: int = 100, begun: int = WALL) -> pl.DataFrame:
    """A closed loop without pauses: every user sends when its answer has come. Columns as in a run's records."""
    rows = []
    for user in range(users):
        at = begun + user * 1000
        while at < begun + each * 9_500_000:
            took = int(rnd.lognormal(16, 0.4))
            first = at + int(took * rnd.uniform(0.1, 0.3))
            times = np.sort(rnd.integers(first, at + took, size=int(rnd.integers(1, 12))))
            outcome = str(rnd.choice(["ok", "ok", "ok", "ok", "http_error", "timeout"]))
            rows.append(
                {
                    "sent_ns": at,
                    "end_ns": at + took,
                    "events_ns": [int(t) for t in times] if outcome == "ok" else None,
                    "outcome": outcome,
                    "error": None if outcome == "ok" else f"{outcome} of kind {rnd.integers(3)}",
                    "status": {"ok": 200, "http_error": 503}.get(outcome),
                    "tokens_out": int(rnd.integers(2, 500)) if outcome == "ok" else None,
                    "tokens_in": int(rnd.integers(1, 900)),
                }
            )
            at += took
    return pl.DataFrame(rows, schema_overrides={"status": pl.UInt16}).sample(fraction=1, shuffle=True, seed=1)


def batches(frame: pl.DataFrame, size: int = 37) -> list[pl.DataFrame]:
    return [frame.slice(at, size) for at in range(0, frame.height, size)]


def level(frame: pl.DataFrame, setting=CLOSED, told=ALL) -> RequestLevel:
    return RequestLevel(setting, batches(frame), "rows.json", told)


def write(out: Path, *levels: RequestLevel, run: str = "other-1") -> Path:
    about = run_of(run, levels, {"tool": "other", "warnings": ["odd"]}, api="other", gpus=2)
    return write_run(out, about, levels)


@pytest.mark.parametrize("seed", range(4))
def test_figures_are_those_of_the_raw_rows(tmp_path: Path, seed: int):
    frame = requests(np.random.default_rng(seed))
    result = gpusize.open_run(write(tmp_path, level(frame)))
    [row] = result.summary.iter_rows(named=True)
    ok = frame.filter(pl.col("outcome") == "ok")
    service = (ok["end_ns"] - ok["sent_ns"]).to_numpy() / 1e9
    ttft = (ok["events_ns"].list.first() - ok["sent_ns"]).to_numpy() / 1e9
    gaps = np.concatenate([np.diff(each) for each in ok["events_ns"].to_list()]) / 1e9
    for name, values in (("runtime", service), ("service", service), ("ttft", ttft), ("itl", gaps)):
        for quantile, prob in PROBS.items():
            assert row[f"{name}_{quantile}_s"] == pytest.approx(float(np.quantile(values, prob)), rel=1e-9)
    assert row["runtime_mean_s"] == pytest.approx(service.mean())
    assert row["n"] == frame.height
    assert row["errors"] == frame.height - ok.height
    assert row["itl_source"] == "events"
    # Nobody said when requests were due, nor fired: that is unknown, and not 0.
    assert [row[name] for name in ("lateness_p99_s", "pacer_late_p99_s", "asked_again", "generator_cpu")] == [None] * 4
    bound = float(np.quantile(service, 0.8))
    [only] = result.levels
    share, n = only.attainment(Slo.parse(f"p95 runtime <= {bound!r}s"))
    assert n == frame.height
    assert share == pytest.approx(np.mean(service <= bound) * ok.height / frame.height)


def test_throughput_is_answers_over_the_time_in_which_all_were_busy(tmp_path: Path):
    frame = requests(np.random.default_rng(7))
    [row] = gpusize.open_run(write(tmp_path, level(frame))).summary.iter_rows(named=True)
    begun, closed = frame["sent_ns"].sort()[3], frame["sent_ns"].max() + 1
    inside = frame.filter((pl.col("outcome") == "ok") & (pl.col("end_ns") > begun) & (pl.col("end_ns") <= closed))
    seconds = (closed - begun) / 1e9
    assert row["achieved_rate"] == pytest.approx(inside.height / seconds)
    assert row["tokens_out_per_s"] == pytest.approx(inside["tokens_out"].sum() / seconds)
    assert row["little_ratio"] == pytest.approx(1, abs=0.02)


def test_the_window_is_the_one_that_the_tool_counted(tmp_path: Path):
    frame = requests(np.random.default_rng(3), each=200)
    low, high = (int(np.quantile(frame["sent_ns"], share, method="lower")) for share in (0.2, 0.9))
    told = Told((low, high), "window_boundaries")
    result = gpusize.open_run(write(tmp_path, level(frame, told=lambda: told)))
    inside = frame.filter((pl.col("sent_ns") >= low) & (pl.col("sent_ns") < high))
    ok = inside.filter(pl.col("outcome") == "ok")
    [row] = result.summary.iter_rows(named=True)
    assert row["n"] == inside.height
    assert row["service_p95_s"] == pytest.approx(np.quantile((ok["end_ns"] - ok["sent_ns"]).to_numpy(), 0.95) / 1e9)
    assert [each["name"] for each in result.levels[0].intervals] == ["warmup", "steady", "drain"]
    # Nothing is lost: what lies outside is kept.
    assert result.records.height == frame.height


def test_a_window_without_a_request_is_not_believed(tmp_path: Path):
    frame = requests(np.random.default_rng(3))
    result = gpusize.open_run(write(tmp_path, level(frame, told=Told((WALL - 10, WALL - 5)))))
    [row] = result.summary.iter_rows(named=True)
    assert row["n"] == frame.height
    assert "all count" in " ".join(row["alerts"])


def test_levels_share_one_clock_that_is_tied_to_the_walls(tmp_path: Path):
    rnd = np.random.default_rng(5)
    first, second = requests(rnd), requests(rnd, begun=WALL + 3_600_000_000_000)
    run = write(tmp_path, level(first), level(second, {"kind": "closed", "concurrency": 8}))
    records = gpusize.open_run(run).records
    clocks = pl.read_parquet(run / "clocks.parquet")
    [origin] = (clocks["wall_ns"] - clocks["mono_ns"]).unique()
    raw = pl.concat([first, second])
    for name in ("sent_ns", "end_ns", "due_ns"):
        want = raw["sent_ns" if name == "due_ns" else name].sort()
        assert (records[name].sort() + origin).equals(want, check_names=False)
    assert sorted(records.filter(pl.col("visit") == 1)["seq"]) == list(range(second.height))
    assert 0 < records["sent_ns"].min() < 3_000_000_000


def test_failures_keep_their_words(tmp_path: Path):
    frame = requests(np.random.default_rng(11))
    run = write(tmp_path, level(frame))
    meta = json.loads((run / "levels" / "0000" / "level.json").read_text())
    told = {(e["outcome"], e["message"]): e["count"] for e in meta["errors"]}
    failed = frame.filter(pl.col("outcome") != "ok").group_by("outcome", "error").len()
    assert told == {(outcome, text): n for outcome, text, n in failed.iter_rows()}
    assert meta["outcomes"] == dict(frame.group_by("outcome").len().sort("outcome").iter_rows())
    assert set(meta["outcomes"]) <= set(OUTCOMES)
    rows = gpusize.open_run(run).records.filter(pl.col("outcome") != "ok")
    assert {meta["errors"][k]["outcome"] for k in rows["error_id"]} == {"http_error", "timeout"}


def test_files_are_guarded_and_written_once(tmp_path: Path):
    frame = requests(np.random.default_rng(2))
    run = write(tmp_path, level(frame))
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert write(tmp_path, level(requests(np.random.default_rng(9)))) == run
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before
    assert [(each.problem, each.checksums) for each in verify_run(run)] == [(None, True)]
    assert imported_before(tmp_path, "other-1") == (run, ["odd"])
    assert imported_before(tmp_path, "other-2") is None
    [part] = (run / "levels" / "0000" / "records").iterdir()
    part.write_bytes(part.read_bytes() + b"x")
    with pytest.raises(StoreError, match="checksum"):
        _ = gpusize.open_run(run).levels


def test_many_rows_make_several_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpusize.studies.imports.request_rows.PART_ROWS", 100)
    frame = requests(np.random.default_rng(2))
    run = write(tmp_path, level(frame))
    assert len(list((run / "levels" / "0000" / "records").iterdir())) == 4
    assert gpusize.open_run(run).records.height == frame.height


@pytest.mark.parametrize(
    "change, what",
    [
        ({"end_ns": WALL - 10**12}, "request 51: it ended before"),
        ({"sent_ns": None}, "request 51: when it was due or sent is missing"),
        ({"events_ns": [WALL + 10**15]}, "request 51: it ended before its last token"),
        ({"tokens_in": -1}, "out of range"),
        ({"tokens_in": 1 << 40}, "out of range"),
    ],
)
def test_rows_that_contradict_themselves_are_refused(tmp_path: Path, change, what: str):
    rows = requests(np.random.default_rng(4)).with_columns(outcome=pl.lit("ok")).to_dicts()
    rows[50] |= change
    frame = pl.DataFrame(rows, infer_schema_length=None)
    with pytest.raises(ConfigError, match=what) as error:
        write(tmp_path / "runs", level(frame))
    assert "rows.json" in str(error.value)
    assert list((tmp_path / "runs").iterdir()) == []


def open_loop(rnd: np.random.Generator, rate: float, n: int = 2000) -> pl.DataFrame:
    sent = WALL + np.cumsum(rnd.exponential(1e9 / rate, n)).astype(int)
    return pl.DataFrame({"sent_ns": sent, "end_ns": sent + rnd.integers(10**6, 10**7, n)})


@pytest.mark.parametrize("asked, delivered", [(200.0, True), (400.0, False)])
def test_without_due_times_a_rate_tells_the_service_time_only(tmp_path: Path, asked: float, delivered: bool):
    frame = open_loop(np.random.default_rng(1), 200)
    run = write(tmp_path, level(frame, {"kind": "open", "rate": asked}))
    result = gpusize.open_run(run)
    [row] = result.summary.iter_rows(named=True)
    service = (frame["end_ns"] - frame["sent_ns"]).to_numpy() / 1e9
    assert row["service_p95_s"] == pytest.approx(np.quantile(service, 0.95))
    assert [row[name] for name in ("runtime_p95_s", "runtime_mean_s", "ttft_p95_s", "lateness_p99_s")] == [None] * 4
    assert row["delivered"] is delivered
    assert row["offered_rate"] == pytest.approx(200, rel=0.1)
    assert result.levels[0].met(Slo.parse("p95 runtime <= 1s")) is None
    assert result.levels[0].met(Slo.parse("p95 service <= 1s")) is True


def test_with_due_times_the_wait_before_the_write_counts(tmp_path: Path):
    frame = open_loop(np.random.default_rng(1), 200).with_columns(due_ns=pl.col("sent_ns") - 3_000_000)
    [row] = gpusize.open_run(write(tmp_path, level(frame, {"kind": "open", "rate": 200.0}))).summary.iter_rows(
        named=True
    )
    service = (frame["end_ns"] - frame["sent_ns"]).to_numpy() / 1e9
    assert row["runtime_p95_s"] == pytest.approx(np.quantile(service, 0.95) + 0.003)
    assert row["lateness_p99_s"] == pytest.approx(0.003)


def one_at_a_time(rnd: np.random.Generator, users: int, n: int = 1500) -> pl.DataFrame:
    """A closed loop before a server that answers one request after the other, in order."""
    took = rnd.gamma(25, 400_000, n).astype(int)
    free, waiting, rows = WALL, [WALL] * users, []
    for each in took:
        sent = waiting.pop(0)
        free = max(free, sent) + int(each)
        waiting.append(free)
        rows.append((sent, free))
    return pl.DataFrame(rows, ["sent_ns", "end_ns"], orient="row")


def test_estimates_reports_and_comparisons_take_them(tmp_path: Path):
    rnd = np.random.default_rng(8)
    levels = [level(one_at_a_time(rnd, n), {"kind": "closed", "concurrency": n}) for n in (1, 4, 16)]
    run = write(tmp_path / "runs", *levels)
    result = gpusize.open_run(run)
    # 2 GPUs answer some 9 users within 0.1 s, so that 80 take 18 or so.
    found = result.estimate(users=80, slos=["p95 runtime <= 100ms"], method="twin")
    assert found.gpus is not None, found.reason
    assert 16 <= found.gpus <= 24
    again = [level(one_at_a_time(rnd, n), {"kind": "closed", "concurrency": n}) for n in (1, 4, 16)]
    assert gpusize.compare({"a": run, "b": write(tmp_path / "others", *again)}).differences
    result.report()
    assert (run / "report.html").stat().st_size > 10_000


def test_a_draft_that_is_not_published_leaves_nothing(tmp_path: Path):
    with RunDraft(tmp_path / "runs", "other-1") as draft:
        draft.add(level(requests(np.random.default_rng(1))))
    assert list((tmp_path / "runs").iterdir()) == []
