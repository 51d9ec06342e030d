"""Statistics: counters of a real server, and what happened between two readings."""

import copy
import json

import pytest

from gpusize.targets.kserve.client import HttpClient
from gpusize.targets.kserve.stats import KserveStats, between, counters, key
from tests.kserve.exchanges import SPEC, STATS, server

[MLP] = json.loads(STATS)["model_stats"]


def later(**changes):
    """The real server's statistics after 100 more requests of 4 in 25 executions."""
    stats = copy.deepcopy(MLP)
    stats["inference_count"] += 100
    stats["execution_count"] += 25
    for name, ns in (
        ("success", 50),
        ("queue", 30),
        ("compute_input", 1),
        ("compute_infer", 16),
        ("compute_output", 2),
    ):
        stats["inference_stats"][name]["count"] += 100
        stats["inference_stats"][name]["ns"] += ns * 100 * 1_000_000
    batch = next(one for one in stats["batch_stats"] if one["batch_size"] == 4)
    for name, ns in (("compute_input", 1), ("compute_infer", 16), ("compute_output", 2)):
        batch[name]["count"] += 25
        batch[name]["ns"] += ns * 25 * 1_000_000
    return {**stats, **changes}


def test_the_counters_of_a_real_server():
    stats = KserveStats(HttpClient(SPEC, transport=server()))
    reading = stats.read()
    labels = {"version": "1", "model": "numpy_mlp"}
    assert reading['inference_count{model="numpy_mlp",version="1"}'] == 49367
    assert reading[key("queue_ns", labels)] == 118671302115142
    assert reading[key("batch_compute_infer_ns", {**labels, "batch_size": "8"})] == 44636723074
    assert stats.notes == []
    assert KserveStats(HttpClient(SPEC, transport=server()), ["other"]).read() == {}


def test_since_the_server_was_started():
    [model] = between({}, counters([MLP]))
    assert (model.model, model.version, model.requests, model.failed) == ("numpy_mlp", "1", 49367, 0)
    assert model.mean_batch == pytest.approx(49367 / 9263)
    assert model.queue_s == pytest.approx(118671302115142 / 49367 / 1e9)
    assert [each.batch_size for each in model.batches] == list(range(1, 9))
    assert sum(each.executions for each in model.batches) == model.executions == 9263
    assert sum(each.executions * each.batch_size for each in model.batches) == model.inferences
    assert model.batches[0].compute_infer_s == pytest.approx(0.008328, abs=1e-6)
    # What every request of a batch is charged is more than what the instances were busy.
    spent_ns = sum(batch[part]["ns"] for batch in MLP["batch_stats"] for part in batch if part != "batch_size")
    assert model.busy_s == pytest.approx(spent_ns / 1e9)
    assert model.compute_infer_s is not None
    assert model.compute_infer_s * model.requests == pytest.approx(478.7, abs=0.1)


def test_between_two_readings():
    [model] = between(counters([MLP]), counters([later()]))
    assert (model.requests, model.inferences, model.executions, model.mean_batch) == (100, 100, 25, 4.0)
    assert model.request_s == pytest.approx(0.050)
    assert model.queue_s == pytest.approx(0.030)
    assert (model.compute_input_s, model.compute_infer_s, model.compute_output_s) == pytest.approx(
        (0.001, 0.016, 0.002)
    )
    assert (model.cache_hits, model.cache_hit_s, model.cache_misses, model.cache_miss_s) == (0, None, 0, None)
    [batch] = model.batches
    assert (batch.batch_size, batch.executions) == (4, 25)
    assert batch.service_s == pytest.approx(0.019)
    assert model.busy_s == pytest.approx(25 * 0.019)
    assert model.execution_s == pytest.approx(0.019)
    assert not model.restarted
    facts = json.loads(json.dumps(model.facts()))
    assert facts["batches"] == [
        {
            "batch_size": 4,
            "executions": 25,
            "compute_input_s": pytest.approx(0.001),
            "compute_infer_s": pytest.approx(0.016),
            "compute_output_s": pytest.approx(0.002),
        }
    ]
    assert (facts["requests"], facts["busy_s"]) == (100, pytest.approx(0.475))


def test_a_level_without_requests():
    [model] = between(counters([MLP]), counters([MLP]))
    assert (model.requests, model.queue_s, model.mean_batch, model.busy_s, model.batches) == (0, None, None, None, ())


def test_a_restarted_server_counts_from_zero():
    fresh = later(inference_count=7)
    [model] = between(counters([MLP]), counters([fresh]))
    assert model.restarted
    assert (model.inferences, model.requests) == (7, MLP["inference_stats"]["success"]["count"] + 100)


def test_a_model_that_was_loaded_in_between():
    models = between(counters([MLP]), counters([MLP, {**later(), "name": 'b"\\x'}]))
    assert [(model.model, model.requests > 0) for model in models] == [('b"\\x', True), ("numpy_mlp", False)]


@pytest.mark.parametrize(
    "stats",
    [
        {"name": "m", "inference_count": "12"},
        {"name": "m", "inference_count": "12", "batch_stats": [{"batch_size": "x"}, 3], "inference_stats": 3},
        {
            "name": "m",
            "inference_count": "12",
            "batch_stats": 3,
            "inference_stats": {"queue": None, "fail": {"ns": {}}},
        },
    ],
)
def test_statistics_that_lack_something(stats):
    [model] = between({}, counters([stats]))
    assert (model.inferences, model.requests, model.batches) == (12, 0, ())


def test_restricted_statistics_are_a_note():
    asked = []

    class Restricted(HttpClient):
        def statistics(self):
            asked.append(1)
            return super().statistics()

    answer = (403, b'{"error":"This API is restricted, expecting header \'triton-grpc-protocol-x\'"}')
    stats = KserveStats(Restricted(SPEC, transport=server(stats=answer)))
    assert (stats.read(), stats.read(), len(asked)) == ({}, {}, 1)
    [note] = stats.notes
    assert note.startswith(
        "http://127.0.0.1:8000: no statistics from the server, it answered with status 403: This API"
    )
    assert note.endswith("allow the statistics endpoint")
    stats = KserveStats(HttpClient(SPEC, transport=server(stats=(404, b""))))
    assert stats.read() == {}
    assert stats.notes[0].endswith("are missing")
