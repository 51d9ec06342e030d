from __future__ import annotations

import pytest

from gpusize.base.errors import TargetError
from gpusize.observe.metrics.buffer import samples_frame
from gpusize.observe.metrics.kserve_statistics import COUNTED_STEP_S, StatisticsSource, model_stats
from gpusize.observe.metrics.reading import SourceFailed
from gpusize.observe.metrics.summarise import summarise
from gpusize.records.samples import value_of
from gpusize.targets.kserve.stats import counters
from tests.samples.sources import S
from tests.virtual_time import VirtualClock


class Reader:
    """Reads what it is told; an exception is raised."""

    def __init__(self, answer, *notes: str) -> None:
        self.answer = answer
        self.notes = list(notes)
        self.closed = False

    def read(self):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def close(self) -> None:
        self.closed = True


def triton(requests: int, executions: int):
    """Counters of a model whose requests wait 10 ms and run in batches of two, 20 ms each."""

    def duration(count: int, seconds: float):
        return {"count": count, "ns": round(count * seconds * S)}

    return counters(
        [
            {
                "name": "m",
                "version": "1",
                "inference_count": requests,
                "execution_count": executions,
                "inference_stats": {
                    "success": duration(requests, 0.032),
                    "queue": duration(requests, 0.01),
                    "compute_infer": duration(requests, 0.02),
                },
                "batch_stats": [
                    {
                        "batch_size": 2,
                        "compute_input": duration(executions, 0.001),
                        "compute_infer": duration(executions, 0.02),
                        "compute_output": duration(executions, 0.001),
                    }
                ],
            }
        ]
    )


def test_counters_are_read_and_busy_time_is_added():
    reader = Reader(triton(10, 5))
    source = StatisticsSource(reader, "h:8000", clock=VirtualClock(9))
    source.open()
    assert source.name == "kserve h:8000"
    reading = source.read()
    labels = 'model="m",version="1"'
    assert reading.values["kserve_inference_count", labels] == 10
    assert reading.values["kserve_batch_compute_infer_count", f'batch_size="2",{labels}'] == 5
    assert reading.values["kserve_busy_ns", labels] == pytest.approx(5 * 0.022 * S)
    assert reading.t_ns == 9
    assert source.notes() == []
    source.close()
    assert reader.closed


def test_they_mean_the_same_as_the_metrics_of_triton():
    values = [StatisticsSource(Reader(triton(n, n // 2))).read().values for n in (100, 300)]
    samples = samples_frame("kserve h", [(0, values[0]), (4 * S, values[1])])
    rows = summarise(samples.lazy(), 0, 4 * S)
    assert value_of(rows, "queue_time") == pytest.approx(0.01)
    assert value_of(rows, "compute_infer_time") == pytest.approx(0.02)
    assert value_of(rows, "request_time") == pytest.approx(0.032)
    assert value_of(rows, "batch_size") == 2
    assert value_of(rows, "requests", "rate") == 50
    # 100 executions of 22 ms in 4 s.
    assert value_of(rows, "busy", "rate") == pytest.approx(0.55)
    (model,) = model_stats(samples, ["kserve h"], 1, 4 * S - 1)
    assert (model["model"], model["requests"], model["executions"]) == ("m", 200, 100)
    assert model["busy_s"] == pytest.approx(2.2)
    assert model["source"] == "kserve h"


def test_a_single_reading_says_nothing_of_a_model():
    samples = samples_frame("kserve h", [(5, StatisticsSource(Reader(triton(4, 2))).read().values)])
    assert model_stats(samples, ["kserve h", "kserve other"], 0, 10) == []


def test_a_server_that_does_not_allow_it_is_left_alone_with_one_note():
    source = StatisticsSource(Reader({}, "h: no statistics from the server, restricted"))
    with pytest.raises(SourceFailed, match="restricted") as caught:
        source.open()
    assert caught.value.final
    assert source.notes() == ["h: no statistics from the server, restricted"]


def test_a_failure_of_the_moment_is_not_the_last_word():
    source = StatisticsSource(Reader(TargetError("no answer", "h", "start it")))
    with pytest.raises(SourceFailed, match="no answer") as caught:
        source.read()
    assert not caught.value.final
    assert source.notes() == []


class CountsLate:
    """A server that has counted a request only when it is asked for the third time."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.asked = 0

    def read(self):
        self.asked += 1
        return triton(10 if self.asked < 3 else 11, 5)


def test_the_request_before_the_sweep_is_counted_before_the_first_reading():
    late, clock = CountsLate(), VirtualClock()
    source = StatisticsSource(late, clock=clock)
    source.note_requests()
    source.open()
    assert late.asked == 3
    assert clock.waits == [COUNTED_STEP_S]
    source.open()
    assert late.asked == 4
    assert clock.waits == [COUNTED_STEP_S]


def test_a_request_that_is_never_counted_is_not_waited_for_long():
    clock = VirtualClock()

    class Idle(Reader):
        def read(self):
            clock.advance(S // 4)
            return super().read()

    source = StatisticsSource(Idle(triton(10, 5)), clock=clock)
    source.note_requests()
    assert clock.passed_s == 0.25
    source.open()
    # Asked at 0.25, 0.52, 0.79 and 1.06 s after that; the answer to the last one comes after a second.
    assert clock.passed_s - 0.25 == pytest.approx(4 * 0.25 + 3 * COUNTED_STEP_S)


def test_statistics_that_are_not_to_be_had_are_not_noted():
    source = StatisticsSource(Reader(TargetError("no answer", "h", "start it")))
    source.note_requests()
    with pytest.raises(SourceFailed, match="no answer"):
        source.open()


def test_levels_that_take_over_from_each_other_share_no_second():
    at = {0: 100, 10: 150, 11: 160, 20: 200, 21: 205}
    samples = samples_frame(
        "kserve h", [(t * S, StatisticsSource(Reader(triton(n, n // 2))).read().values) for t, n in at.items()]
    )
    # The boundary's own reading, a tenth of a second late, is nearer than the regular one a second before it.
    (model,) = model_stats(samples, ["kserve h"], round(10.9 * S), round(20.9 * S))
    assert model["requests"] == 205 - 160
