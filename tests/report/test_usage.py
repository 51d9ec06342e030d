from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.base.errors import StoreError
from gpusize.containers.pipeline import Execution as Ran
from gpusize.containers.pipeline import Operator, OperatorResult, Pipeline, PipelineResult
from gpusize.containers.recommend import Execution, recommend
from gpusize.containers.recommend.types import Recommendation
from gpusize.observe.usage.source_facts import Limit
from gpusize.observe.usage.usage import usage_of
from gpusize.report.containers.usage_text import print_recommendation, print_usage, recommendation_sentence, usage_lines
from gpusize.report.figures.pipeline import timeline_figure
from gpusize.report.figures.thinning import BUCKETS, envelope
from gpusize.report.figures.usage import draw_usage, usage_figure
from gpusize.report.summary.terminal import make_console
from tests.resources.made import MIB, MS, S, readings, workload


def spiky(**facts):
    limits = (Limit("docker/abc", 512 * MIB, 4.0),)
    return workload(
        lambda t: 2.0 if 2 <= t < 5 else 0.5,
        8.0,
        memory=lambda t: (400 if 3 <= t < 3.15 else 80) * MIB,
        **{"limits": limits, "mem_error_bytes": MIB // 2, **facts},
    )


def printed(use, made=None) -> str:
    out = io.StringIO()
    console = make_console(out, width=160)
    print_usage(use, console)
    if made is not None:
        print_recommendation(made, console)
    return out.getvalue()


def test_every_figure_names_its_unit_and_its_error():
    lines = dict(usage_lines(usage_of(spiky())))
    assert lines["CPU"] == "1.06 cores on average, 8.5 s of CPU time"
    assert lines["over 100 ms"].startswith("peak 2 ± 0.080 cores at 2 s; p50 0.5, ")
    assert lines["memory"] == "419 MB (400 MiB) with page cache, the kernel's own peak"
    assert lines["working set"] == "377 MB (360 MiB) at most, ± 0.524 MB (0.5 MiB)"
    assert lines["limit"] == "537 MB (512 MiB), of docker/abc"


def test_what_is_not_told_is_said_and_not_made_up():
    assert usage_lines(usage_of(readings({"t_ns": [1, 2]}))) == [("CPU", "not told"), ("memory", "not told")]


def test_throttling_pressure_io_and_lower_bounds():
    columns = {
        "t_ns": [0, S, 2 * S],
        "cpu_ns": [0, S, 2 * S],
        "cpu_periods": [0, 10, 20],
        "cpu_throttled_periods": [0, 5, 10],
        "cpu_throttled_ns": [0, S // 2, S],
        "mem_bytes": [MIB, MIB, MIB],
        "mem_max_events": [0, 0, 2],
        "cpu_some_ns": [0, S // 2, S],
        "io_read_bytes": [0, 0, 1_000_000],
        "io_write_bytes": [0, 0, 0],
        "pids": [1, 4, 2],
    }
    text = printed(usage_of(readings(columns, missed=3)))
    assert "made: 2 s, 3 readings, 3 missed" in text
    assert "in 50.0% of 20 periods, 1 s in all" in text
    assert "for a CPU 50.0% of the time" in text
    assert "read 1 MB (0.954 MiB), wrote 0 MB (0 MiB)" in text
    assert "4 at most" in text
    assert "at least: a CPU limit throttled it in 50.0% of the periods" in text
    assert "at least: memory in use, page cache included, reached its limit 2 times" in text
    assert "! 3 readings were missed" in text


def test_a_recommendation_in_one_line_with_its_reasons():
    made = spiky()
    text = printed(usage_of(made), recommend([Execution.of(made)]))
    request = "Request 2.3 cores (an estimate), 537 MB (512 MiB) of memory; policy default, confidence low"
    assert request in text
    assert "! one execution does not show how executions differ" in text
    gpus = Recommendation(policy="cpost", cpu_cores=1.0, mem_bytes=MIB, gpu_count=2, cpu_measured=True)
    assert recommendation_sentence(gpus).startswith("Request 1 core, 2 MB (1 MiB) of memory, 2 GPUs;")
    refused = Recommendation(policy="cpost", refused="it failed: exit code 126")
    assert recommendation_sentence(refused) == "No recommendation: it failed: exit code 126"


def test_further_figures_of_a_policy_have_units():
    made = spiky()
    text = printed(usage_of(made), recommend([Execution.of(made)], "vpa"))
    assert "bounds: cpu lower 0.0" in text
    assert " cores, mem lower 262 MB (250 MiB), cpu upper " in text


def test_a_hostile_name_stays_harmless():
    made = spiky()
    assert "\x1b" not in printed(usage_of(type(made)("\x1b[31mred\x07", made.frame, made.facts)))


def heights(axes) -> list[float]:
    return [float(np.max(np.asarray(line.get_ydata()))) for line in axes.lines]


def test_the_picture_shows_peaks_limit_and_request():
    made = spiky()
    figure = usage_figure(made, usage_of(made), recommend([Execution.of(made)]))
    cpu, memory = figure.axes
    told = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert {"over 100 ms", "over 1 s", "in use", "working set", "hard", "limit", "request", "kernel peak"} <= told
    assert max(heights(memory)) == pytest.approx(512)
    assert pytest.approx(400) in heights(memory)
    assert heights(cpu)[:2] == pytest.approx([2.0, 2.0])


def test_what_one_reading_of_a_million_saw_is_in_the_picture():
    count, at = 1_000_000, 654_321
    t_ns = 1000 * S + np.arange(count) * (20 * MS)
    held, used_ns = np.full(count, 80 * MIB), np.full(count, 10 * MS)
    held[at], held[at + 200_000], used_ns[at] = 900 * MIB, 3 * MIB, 40 * MS
    columns = {"t_ns": t_ns, "cpu_ns": np.cumsum(used_ns), "mem_bytes": held}
    long = readings(columns, begun_ns=1000 * S - 20 * MS, ended_ns=int(t_ns[-1]), clock=(0, 0))
    usage = usage_of(long)
    run = Ran("completed", started_ns=1000 * S, ended_ns=int(t_ns[-1]), readings=long)
    ran = OperatorResult(Operator("a", "i"), (run,))
    timeline = timeline_figure(PipelineResult("r", Pipeline("p", (ran.operator,), "own"), (ran,)))
    single, (_, *both) = usage_figure(long, usage), timeline.axes
    for cpu, memory in (single.axes, both):
        in_use = np.asarray(memory.lines[0].get_ydata())
        assert in_use.size <= 2 * BUCKETS + 2
        assert (in_use.min(), in_use.max()) == pytest.approx((3, 900))
        place = np.asarray(memory.lines[0].get_xdata())[np.argmax(in_use)]
        assert place == pytest.approx(at * 0.02, abs=0.05)
        cores = np.asarray(cpu.lines[0].get_ydata())
        assert cores.size <= 2 * BUCKETS + 2
        # 40 ms in one interval of 20 ms, 10 ms in the other four of a tenth of a second.
        assert cores.max() == pytest.approx(0.8)
    assert usage.cpu.window(0.1).peak_cores == pytest.approx(0.8)


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=400), st.integers(1, 50))
def test_an_envelope_keeps_ends_and_extremes_in_order(values, buckets):
    x, y = np.arange(len(values), dtype=float), np.array(values, float)
    thin_x, thin_y = envelope(x, y, buckets)
    assert thin_x.size == thin_y.size <= max(2 * buckets + 2, 1)
    assert (np.diff(thin_x) > 0).all()
    assert (thin_y == y[thin_x.astype(int)]).all()
    assert (thin_x[0], thin_x[-1]) == (x[0], x[-1])
    assert (thin_y.min(), thin_y.max()) == (y.min(), y.max())


def test_what_cannot_be_given_back_follows_a_spike_between_readings_of_the_parts():
    columns = {
        "t_ns": [0, S, 2 * S, 3 * S, 4 * S],
        "mem_bytes": [100 * MIB, 100 * MIB, 400 * MIB, 100 * MIB, 100 * MIB],
        "mem_inactive_file_bytes": [50 * MIB, None, None, None, 30 * MIB],
        "mem_active_file_bytes": [10 * MIB, None, None, None, 10 * MIB],
    }
    made = readings(columns)
    in_use, working, hard = (
        np.asarray(line.get_ydata()) for line in usage_figure(made, usage_of(made)).axes[1].lines[:3]
    )
    assert working == pytest.approx([50, 55, 360, 65, 70])
    assert (hard <= working).all()
    assert (working <= in_use).all()


def test_a_limit_far_above_does_not_flatten_the_picture():
    far = spiky(limits=(Limit("a", 100 * 1024 * MIB, 64.0),))
    figure = usage_figure(far, usage_of(far))
    assert "limit" not in {text.get_text() for axes in figure.axes for text in axes.texts}
    assert figure.axes[1].get_ylim()[1] < 600


@pytest.mark.parametrize("columns", [{"t_ns": []}, {"t_ns": [1]}, {"t_ns": [1, S], "cpu_ns": [0, S]}])
def test_there_is_a_picture_of_next_to_nothing(columns, tmp_path: Path):
    made = readings(columns)
    assert draw_usage(made, usage_of(made), tmp_path / "u.png").stat().st_size > 1000
    with pytest.raises(StoreError):
        draw_usage(made, usage_of(made), tmp_path / "none" / "u.png")
