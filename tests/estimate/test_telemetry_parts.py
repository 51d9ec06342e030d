"""What an estimate from telemetry is made of: arrivals, lengths, limits, logs, costs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benches.lib.scrapes import LENGTHS, Served
from gpusize.base.errors import DatasetError
from gpusize.estimate.telemetry.access_log import AccessLog, read_access_log
from gpusize.estimate.telemetry.costs import fit_costs
from gpusize.estimate.telemetry.lengths import Lengths, known_lengths, within_buckets
from gpusize.estimate.telemetry.limits import limit_of
from gpusize.estimate.telemetry.production import Production, read_production
from tests.estimate.production_day import WALL_NS, day, scrapes, served
from tests.estimate.virtual import CLUSTER

S = 10**9


def requests(seed: int, n: int = 4000) -> Served:
    """Requests whose long prompts have long answers, on some replicas."""
    rng = np.random.default_rng(seed)
    due = np.sort(rng.uniform(0, 2400, n))
    both = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], n)
    prompt = np.maximum(1, np.exp(5.5 + 0.5 * both[:, 0])).astype(np.int64)
    output = np.maximum(1, np.exp(4.5 + 0.6 * both[:, 1])).astype(np.int64)
    start = due + rng.exponential(0.05, n)
    first = start + 0.05 + 1e-4 * prompt
    return Served(rng.integers(0, 3, n), due, start, first, first + 0.02 * (output - 1), prompt, output)


@pytest.mark.parametrize("seed", range(8))
def test_arrivals_and_lengths_are_those_of_the_requests(seed: int):
    mine = requests(seed)
    found = read_production(scrapes(mine, seed=seed))
    # Each replica is seen from its first scrape to its last one.
    steps = found.steps
    came = 0
    for k in range(3):
        [number] = [at for at, text in enumerate(steps.replicas) if f'"vllm-{k}"' in text]
        own = steps.replica == number
        low, high = (steps.begin_ns[own].min() - WALL_NS) / S, (steps.end_ns[own].max() - WALL_NS) / S
        came += int(((mine.of(k).due_s > low) & (mine.of(k).due_s <= high)).sum())
    assert found.requests == pytest.approx(came, abs=2)
    assert found.replicas == 3
    lengths = known_lengths(found)
    assert lengths is not None
    assert lengths.told_by == "histograms"
    assert lengths.output.mean() == pytest.approx(mine.output.mean(), rel=0.02)
    assert lengths.prompt.mean() == pytest.approx(mine.prompt.mean(), rel=0.02)
    assert lengths.output.std() == pytest.approx(mine.output.std(), rel=0.15)
    assert lengths.prompt.std() == pytest.approx(mine.prompt.std(), rel=0.15)
    true = np.corrcoef(mine.prompt, mine.output)[0, 1]
    assert np.corrcoef(lengths.prompt, lengths.output)[0, 1] == pytest.approx(true, abs=0.15)


def test_replicas_that_come_and_go_do_not_change_the_load_on_one():
    mine = requests(1, 9000)
    # The third replica's pages are seen in the middle of the time only.
    frame = scrapes(mine)
    third = pl.col("labels").str.contains("vllm-2")
    inside = pl.col("t_ns").is_between(WALL_NS + 800 * S, WALL_NS + 1600 * S)
    found = read_production(frame.filter(~third | inside))
    assert found.alive.max() == pytest.approx(3, abs=0.01)
    assert np.median(found.alive) == pytest.approx(2, abs=0.01)
    assert found.per_s.mean() == pytest.approx(9000 / 2400 / 3, rel=0.06)


@pytest.mark.parametrize("seed", range(20))
def test_lengths_in_buckets_keep_shares_mean_and_variance(seed: int):
    rng = np.random.default_rng(seed)
    drawn = np.clip(np.exp(rng.normal(rng.uniform(2, 6), rng.uniform(0.2, 0.9), 20_000)), 1, 90_000).astype(int)
    bounds = np.array([*LENGTHS, np.inf])
    counts = np.diff([(drawn <= bound).sum() for bound in bounds], prepend=0).astype(float)
    found = within_buckets(bounds, counts, float(drawn.mean()), float(drawn.var()))
    again = np.diff([(found <= bound).mean() for bound in bounds], prepend=0)
    assert again == pytest.approx(counts / counts.sum(), abs=2e-3)
    assert found.mean() == pytest.approx(drawn.mean(), rel=0.01)
    assert found.std() == pytest.approx(drawn.std(), rel=0.05)
    assert np.quantile(found, 0.95) == pytest.approx(np.quantile(drawn, 0.95), rel=0.1)


def test_fixed_lengths_are_found_in_a_wide_bucket():
    bounds = np.array([*LENGTHS, np.inf])
    found = within_buckets(bounds, np.where(bounds == 200, 1000.0, 0.0), 137.0, 0.0)
    assert found.mean() == pytest.approx(137, rel=0.02)
    assert found.std() < 12


def _lengths(production: Production) -> Lengths:
    found = known_lengths(production)
    assert found is not None
    return found


def test_a_limit_is_seen_where_others_wait():
    full = read_production(day(7.0, minutes=30, max_batch=20))
    limit = limit_of(full, _lengths(full))
    assert (limit.batch, limit.reached, limit.most_seen) == (20, True, 20)
    free = read_production(day(2.0, minutes=30))
    limit = limit_of(free, _lengths(free))
    assert (limit.batch, limit.reached) == (None, False)
    assert limit_of(free, _lengths(free), 48).batch == 48


def test_costs_are_those_of_the_replica():
    found = read_production(day(4.0))
    lengths = _lengths(found)
    costs, _ = fit_costs(found, lengths, "least_loaded", limit_of(found, lengths))
    one = costs.service
    # What an iteration of some and of many takes, and what a prompt does: the sum is told better than its parts.
    for k in (4, 12, 20):
        true = CLUSTER["iteration_base_s"] + k * CLUSTER["iteration_per_sequence_s"]
        assert one.base_s + k * one.per_sequence_s == pytest.approx(true, rel=0.05)
    assert one.per_prompt_token_s == pytest.approx(CLUSTER["prefill_per_token_s"], rel=0.35)
    assert costs.off < 0.05


ROWS = {
    "time": ["2026-11-20T21:00:01Z", "2026-11-20T21:00:00Z", "2026-11-20T21:00:02.5Z"],
    "duration_s": [1.5, 2.0, 0.1],
    "prompt_tokens": [10, 20, 30],
    "completion_tokens": [5, 6, 0],
    "status": [200, 200, 503],
}


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_log_is_read_by_its_suffix(tmp_path: Path, suffix: str):
    frame, file = pl.DataFrame(ROWS), tmp_path / f"access.{suffix}"
    {"csv": frame.write_csv, "jsonl": frame.write_ndjson, "parquet": frame.write_parquet}[suffix](file)
    log = read_access_log(file)
    assert log.due_ns.tolist() == [1_795_208_400 * S, 1_795_208_401 * S]
    assert (log.took_s.tolist(), log.prompt.tolist(), log.output.tolist()) == ([2.0, 1.5], [20, 10], [6, 5])
    assert log.failed == 1


@pytest.mark.parametrize("scale", [1, 10**3, 10**6, 10**9])
def test_times_may_be_seconds_or_parts_of_them(tmp_path: Path, scale: int):
    file = tmp_path / "log.jsonl"
    file.write_text("".join(json.dumps({"ts": 1_795_208_400 * scale + k}) + "\n" for k in range(2)))
    assert read_access_log(file).due_ns[0] == 1_795_208_400 * S


@pytest.mark.parametrize(
    "name, content, complaint",
    [
        ("a.log", "x", "a log is read by its suffix"),
        ("a.csv", "when,what\n1,2\n", "it has no column of times; there are when, what"),
        ("a.csv", "time,status\nnoon,200\n", "its times cannot be read"),
        ("a.csv", "time,status\n", "it has no rows"),
        ("a.jsonl", "{", "it cannot be read"),
        ("a.parquet", "PAR1", "it cannot be read"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, name: str, content: str, complaint: str):
    (tmp_path / name).write_text(content)
    with pytest.raises(DatasetError, match=complaint):
        read_access_log(tmp_path / name)


def test_a_log_goes_before_histograms(tmp_path: Path):
    mine = served(2.0, minutes=20, replicas=1)
    pl.DataFrame(
        {"time": WALL_NS / S + mine.due_s, "prompt_tokens": mine.prompt, "output_tokens": mine.output}
    ).write_parquet(tmp_path / "log.parquet")
    found = read_production(scrapes(mine, minutes=20), read_access_log(tmp_path / "log.parquet"))
    lengths = known_lengths(found)
    assert lengths.told_by == "log"
    assert sorted(lengths.output.tolist()) == sorted(mine.output.tolist())


def log_of(file: Path, due_s: np.ndarray, prompt: np.ndarray, output: np.ndarray) -> AccessLog:
    pl.DataFrame({"time": WALL_NS / S + due_s, "prompt_tokens": prompt, "output_tokens": output}).write_csv(file)
    return read_access_log(file)


@pytest.mark.parametrize(
    "what, why",
    [
        ("another day", r"of its [\d,]+ requests 0 came in the time of the series"),
        ("shorter answers", r"its answers have [\d.]+ tokens on average, those that the servers counted"),
        ("longer prompts", r"its prompts have [\d.]+ tokens on average"),
        ("equal answers", r"% of its answers have [\d,]+ tokens or fewer, of those that the servers counted"),
        ("few", r"tokens of fewer than 100 requests"),
    ],
)
def test_a_log_of_other_requests_is_not_used(tmp_path: Path, what: str, why: str):
    mine = served(2.0, minutes=20, replicas=1)
    due_s, prompt, output = mine.due_s, mine.prompt, mine.output
    if what == "another day":
        due_s = due_s - 86_400
    elif what == "shorter answers":
        output = np.maximum(1, output // 5)
    elif what == "longer prompts":
        prompt = prompt * 3
    elif what == "equal answers":
        output = np.full(output.size, round(output.mean()))
    else:
        output = np.where(np.arange(output.size) < 50, output, 0)
    found = read_production(scrapes(mine, minutes=20), log_of(tmp_path / "log.csv", due_s, prompt, output))
    assert found.log is None
    [said] = found.log_said
    assert re.search(why, said), said
    assert known_lengths(found).told_by == "histograms"


def test_a_part_of_a_log_is_used_and_says_so(tmp_path: Path):
    """Every fifth request, the times of a day before and after among them, and some rows without tokens."""
    mine = served(2.0, minutes=20, replicas=1)
    part = slice(None, None, 5)
    due_s, prompt, output = (each[part] for each in (mine.due_s, mine.prompt, mine.output))
    days = np.concatenate([due_s - 86_400, due_s, due_s + 86_400])
    output = np.where(np.arange(output.size) % 50 == 0, 0, output)
    log = log_of(tmp_path / "log.csv", days, np.tile(prompt, 3), np.concatenate([output // 9, output, output // 9]))
    found = read_production(scrapes(mine, minutes=20), log)
    assert known_lengths(found).told_by == "log"
    assert sorted(known_lengths(found).output.tolist()) == sorted(output[output > 0].tolist())
    missing, fewer = found.log_said
    assert missing.startswith(f"{(output == 0).sum()} of {output.size} rows")
    assert "lengths are taken to be alike in all" in fewer
    # A whole one needs no remark.
    whole = read_production(
        scrapes(mine, minutes=20), log_of(tmp_path / "all.csv", mine.due_s, mine.prompt, mine.output)
    )
    assert whole.log_said == ()
