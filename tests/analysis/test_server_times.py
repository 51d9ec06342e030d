"""What servers say of single requests, against what was measured from outside; on records that were made up."""

import numpy as np
import pytest

from gpusize.analysis.level import LevelData
from gpusize.analysis.server_times import RATE, ROUNDED_NS, disagreement, says_times
from gpusize.analysis.summary import summarize
from gpusize.records.schema import from_arrow
from tests.analysis.synthetic import frame

MS = 1_000_000


def level(queue, service, took, outcome=0):
    n = len(took)
    sent = np.arange(n) * 10 * MS
    columns = {
        "due_ns": sent,
        "sent_ns": sent,
        "fired_ns": sent,
        "end_ns": sent + np.array(took),
        "outcome": np.broadcast_to(outcome, n),
        "server_queue_ns": queue,
        "server_service_ns": service,
    }
    setting = {"kind": "closed", "concurrency": 1}
    meta = {
        "setting": setting,
        "state": "done",
        "start_ns": 0,
        "close_ns": int(sent[-1]) + 1,
        "end_ns": int(sent[-1]) + MS,
        "outcomes": {"ok": n},
    }
    return LevelData(0, setting, "done", [], 1, "r", meta, records=from_arrow(frame(columns)))


def test_nothing_said_is_no_column_and_no_finding():
    silent = level([None] * 50, [None] * 50, [5 * MS] * 50)
    assert not says_times(silent)
    assert disagreement(silent) is None
    assert "server_queue_p50_s" not in summarize([silent]).columns


@pytest.mark.parametrize("queue", [0, 1 * MS, None])
def test_quantiles_are_those_of_the_rows(queue):
    draw = np.random.default_rng(5)
    service = draw.integers(1, 4 * MS, 200)
    took = service + (queue or 0) + draw.integers(0, MS, 200)
    found = level([queue] * 200, service, took)
    [row] = summarize([found, level([None] * 9, [None] * 9, [MS] * 9)])[:1].to_dicts()
    outside = took - service - (queue or 0)
    for name, values in (("server_service", service), ("outside_server", outside)):
        for quantile, prob in (("p50", 0.5), ("p95", 0.95), ("max", 1.0)):
            assert row[f"{name}_{quantile}_s"] == pytest.approx(np.quantile(values, prob) / 1e9, rel=1e-9)
    assert row["server_queue_p99_s"] == (None if queue is None else pytest.approx(queue / 1e9))
    assert "server-times" not in row["flags"]


def test_a_server_may_round_and_its_clock_may_run_fast():
    took = np.full(100, 3_000 * MS)
    slack = int(took[0] * RATE) + ROUNDED_NS
    assert disagreement(level([0] * 100, took + slack, took)) is None
    text = disagreement(level([0] * 100, took + slack + 1, took))
    assert text is not None
    assert text.startswith("of 100% of the requests")
    few = took + np.where(np.arange(100) < 1, 9 * slack, 0)
    assert disagreement(level([0] * 100, few, took)) is None


def test_requests_that_failed_do_not_count():
    wrong = np.where(np.arange(100) < 50, 90 * MS, 1 * MS)
    failed = np.where(np.arange(100) < 50, 1, 0)
    assert disagreement(level([None] * 100, wrong, [2 * MS] * 100, failed)) is None
    assert disagreement(level([None] * 100, wrong, [2 * MS] * 100)) is not None
