"""The rules of CPOST, KRR and VPA against published figures, and ours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpusize.containers.recommend import cpost_rule, krr_rule, recommend, vpa_rule
from gpusize.containers.recommend.gpusize_rule import (
    cores_request,
    memory_base,
    memory_for,
    memory_raised,
    request_window_s,
)
from gpusize.containers.recommend.types import MB, MIB, Execution, round_up
from gpusize.observe.usage.readings import Readings
from gpusize.observe.usage.source_facts import Limit
from gpusize.observe.usage.usage import usage_of
from gpusize.observe.usage.usage_types import MemoryUsage
from tests.resources.made import MS, S, execution, readings, workload

SEED = [
    ("dicom-reader", 1097.941, 405.242, 11, 512),
    ("spleen-segmentation", 1134.358, 4455.412, 12, 4608),
    ("dicom-writer", 1017.747, 552.313, 11, 768),
    ("register-volume-images-for-rendering", 14.923, 3.783, 1, 256),
]
"""What CPOST's own documentation prints: highest CPU %, highest MB, and the two resources made of them."""

by_operator = pytest.mark.parametrize(
    "percent, mb, cores, megabytes", [row[1:] for row in SEED], ids=[r[0] for r in SEED]
)


@by_operator
def test_cposts_rule_gives_its_eight_numbers(percent, mb, cores, megabytes):
    assert (cpost_rule.cores_of(percent), cpost_rule.megabytes_of(mb)) == (cores, megabytes)


@by_operator
def test_the_preset_cpost_gives_them_from_finer_readings(percent, mb, cores, megabytes):
    made = recommend([execution(percent, mb)], "cpost")
    assert (made.cpu_cores, made.mem_mb) == (cores, megabytes)
    assert (made.cpu_limit_cores, made.gpu_count) == (None, 0)


@pytest.mark.parametrize(
    "mb, megabytes",
    [
        *((155.999, 256), (156.0, 256), (156.0004, 256), (156.001, 512)),
        *((412.0, 512), (412.001, 768), (924.0, 1024)),
        *((0, 256), (40_000, 40_192), (80_000, 80_128)),
    ],
)
def test_cposts_memory_at_its_borders(mb, megabytes):
    assert cpost_rule.megabytes_of(mb) == megabytes


@pytest.mark.parametrize(
    "percent, cores",
    [
        # CPOST gives 0 cores for 0 %, which no scheduler takes: at least 1 here.
        *((0, 1), (0.001, 1), (99.999, 1), (100.0, 1), (100.0004, 1), (100.001, 2), (1600, 16)),
        *((100.05, 2), (1343.5, 14), (50.55, 1)),
    ],
)
def test_cposts_cores_at_their_borders(percent, cores):
    assert cpost_rule.cores_of(percent) == cores


@pytest.mark.parametrize("x, base, up", [(3, 2, 4), (4, 2, 4), (15.5, 5, 20), (148.05, 256, 256), (256.05, 256, 512)])
def test_rounding_up(x, base, up):
    assert round_up(x, base) == up


@pytest.mark.parametrize("tenths", range(1, 200))
def test_rounding_up_does_not_turn_on_the_last_bit(tenths):
    assert round(round_up(tenths * 0.1, 0.1), 9) == round(tenths / 10, 9)


def test_cposts_interval():
    # Usage 800,000 to 1,000,000 ns while four CPUs had 0.60 s between them: 0.15 s each; memory 6.5 to 8.5 MB.
    columns = {"t_ns": [2 * S, 2 * S + 150 * MS], "cpu_ns": [800_000, 1_000_000], "mem_bytes": [6_500_000, 8_500_000]}
    (row,) = cpost_rule.cpost_rows(readings(columns))
    assert row.cpu_percent == pytest.approx(0.13333, rel=1e-4)
    assert row.memory_mb == 7.5
    assert row.at_ns == 2 * S + 75 * MS


def test_cposts_rows_are_200_ms_apart_and_stand_at_their_middle():
    rows = cpost_rule.cpost_rows(workload(lambda t: t, 1.1, memory=lambda t: round(t * 1e6)))
    assert [row.at_ns - 1000 * S for row in rows] == [100 * MS, 300 * MS, 500 * MS, 700 * MS, 900 * MS, 1050 * MS]
    assert [row.cpu_percent for row in rows] == pytest.approx([10, 30, 50, 70, 90, 105])
    assert [row.memory_mb for row in rows] == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9, 1.05])
    assert len(cpost_rule.cpost_rows(workload(lambda _: 1.0, 0.05, interval_s=0.01))) == 1
    assert cpost_rule.cpost_rows(readings({"t_ns": []})) == []


@pytest.mark.parametrize("mb, mebibytes", [(405.242, 445), (4455.412, 4887), (552.313, 606), (3.783, 100)])
def test_krrs_memory(mb, mebibytes):
    assert krr_rule.memory_of(round(mb * 1e6)) == mebibytes * MIB


def test_krrs_cpu():
    assert krr_rule.cores_of([0.5]) == 0.5
    assert krr_rule.cores_of([0.0001]) == 0.01
    assert krr_rule.cores_of([0.12341]) == 0.124
    assert krr_rule.cores_of([1.0] * 95 + [9.0] * 5) == pytest.approx(1.4, abs=0.001)


def test_the_preset_krr_uses_the_working_set_and_steps_of_75_s():
    made = workload(lambda t: 2.0 if t < 75 else 1.0, 150, interval_s=1.0, memory=lambda _: 1000 * MIB)
    advice = recommend([Execution.of(made)], "krr")
    # A tenth of this memory is inactive file cache; p95 of (2, 1) is 1.95.
    assert advice.mem_bytes == 1035 * MIB
    assert advice.cpu_cores == pytest.approx(1.95)
    assert any("KRR needs 100 steps" in doubt for doubt in advice.doubts)


@pytest.mark.parametrize(
    "cores, bucket, percentile, target",
    [(0.5, 25, 0.51113, 0.58780), (1, 36, 1.01628, 1.16872), (2, 49, 2.09348, 2.40750), (8, 76, 8.36261, 9.61700)],
)
def test_vpas_cpu(cores, bucket, percentile, target):
    assert vpa_rule.CPU.bucket(cores) == bucket
    assert vpa_rule.CPU.percentile(0.9, [cores] * 3, [0.1] * 3) == pytest.approx(percentile, abs=1e-5)
    made = recommend([Execution.of(workload(lambda _: cores, 3.0))], "vpa")
    assert made.cpu_cores == pytest.approx(target, abs=1e-5)


@pytest.mark.parametrize(
    "mb, bucket, target_mb",
    [(405.242, 22, 476.450), (4455.412, 64, 5253.177), (552.313, 27, 671.630), (3.783, 0, 11.5)],
)
def test_vpas_memory_target(mb, bucket, target_mb):
    assert vpa_rule.MEMORY.bucket(mb * 1e6) == bucket
    assert vpa_rule.MEMORY.percentile(0.9, [mb * 1e6], [1.0]) * 1.15 == pytest.approx(target_mb * 1e6, rel=1e-5)


@pytest.mark.parametrize(
    "percent, bucket, cores",
    [(1097.941, 82, 12.966), (1134.358, 83, 13.626), (1017.747, 80, 11.739), (14.923, 11, 0.183)],
)
def test_vpas_cpu_from_a_peak(percent, bucket, cores):
    assert vpa_rule.CPU.bucket(percent / 100) == bucket
    assert vpa_rule.CPU.percentile(0.9, [percent / 100], [0.1]) * 1.15 == pytest.approx(cores, abs=6e-4)


def test_vpas_histograms_have_176_buckets():
    assert (vpa_rule.CPU.last, vpa_rule.MEMORY.last) == (175, 175)
    assert vpa_rule.CPU.bucket(1e9) == 175
    assert vpa_rule.CPU.percentile(0.9, [1e9], [1.0]) == vpa_rule.CPU.start(175)
    assert vpa_rule.CPU.percentile(0.9, [], []) == 0.0


def test_vpas_confidence():
    assert [vpa_rule.upper_factor(days) for days in (0.5, 1, 7)] == pytest.approx([3, 2, 1.1429], abs=1e-4)
    assert vpa_rule.lower_factor(5 / 1440) == pytest.approx(0.6028, abs=1e-4)


def test_vpas_floors_and_bounds():
    made = recommend([Execution.of(workload(lambda _: 0.001, 120, interval_s=1.0))], "vpa")
    assert (made.cpu_cores, made.mem_bytes) == (0.025, 250 * MIB)
    # Two minutes of history: confidence 2 / 1440 days.
    assert made.bounds["cpu_upper_cores"] > made.cpu_cores
    busy = recommend([Execution.of(workload(lambda _: 2.0, 120, interval_s=1.0))], "vpa")
    assert busy.bounds["cpu_upper_cores"] == pytest.approx(2.09348 * 1.15 * (1 + 720), rel=1e-4)
    assert busy.bounds["cpu_lower_cores"] == pytest.approx(2.09348 * 1.15 * (1 + 0.72) ** -2, rel=1e-4)


def test_vpa_weighs_the_peak_of_each_day_by_its_age():
    # Yesterday's peak is four times today's, with half the weight: a third of all, so that p90 is in it.
    made = workload(lambda _: 1.0, 2 * 86400, interval_s=600, memory=lambda t: (4000 if t < 86000 else 1000) * MB)
    assert recommend([Execution.of(made)], "vpa").mem_bytes == pytest.approx(
        vpa_rule.MEMORY.start(vpa_rule.MEMORY.bucket(3.6e9) + 1) * 1.15, rel=1e-9
    )


def test_after_running_out_of_memory():
    assert vpa_rule.after_oom(100 * MIB) == 200 * MIB
    assert vpa_rule.after_oom(1000 * MIB) == 1200 * MIB
    assert memory_raised(1000 * MIB) == 1216 * MIB


@pytest.mark.parametrize(
    "base, request_",
    [(0, 128), (1, 128), (28, 128), (29, 192), (600, 704), (4455, 5184), (80_000, 92_032)],
)
def test_our_margin_is_100_mib_and_then_15_percent(base, request_):
    assert memory_for(base * MIB) == request_ * MIB


def memory(**figures: Any) -> MemoryUsage:
    usual = MemoryUsage(peak_bytes=600, sampled_max_bytes=600, working_set_peak_bytes=300, hard_peak_bytes=200)
    return replace(usual, **figures)


def test_our_base_is_the_larger_of_working_set_and_hard_memory_with_its_error():
    assert memory_base(memory()).size_bytes == 300
    assert memory_base(memory(error_bytes=150)).size_bytes == 350
    assert memory_base(memory(error_bytes=150)).decided_by == "memory without cache"


def test_a_mark_below_the_readings_is_no_ceiling():
    # Of a process tree the kernel knows the largest mark of one process only.
    tree = memory(kernel_peak_bytes=250, working_set_peak_bytes=600)
    assert (memory_base(tree).size_bytes, memory_base(tree).decided_by) == (600, "all memory in use")


def test_what_no_reading_saw_counts_in_full_up_to_the_kernels_peak():
    spiked = memory(peak_bytes=900, kernel_peak_bytes=900)
    assert memory_base(spiked).size_bytes == 300 + 300
    close = memory(peak_bytes=620, peak_from="kernel", kernel_peak_bytes=620, working_set_peak_bytes=610)
    assert (memory_base(close).size_bytes, memory_base(close).decided_by) == (620, "the kernel's own peak")
    # A large cache that the readings saw adds nothing.
    assert memory_base(memory(kernel_peak_bytes=600)).size_bytes == 300
    assert memory_base(memory(unseen_bytes=50)).size_bytes == 350


def test_without_its_parts_all_memory_counts():
    assert memory_base(MemoryUsage(peak_bytes=700, kernel_peak_bytes=700)).size_bytes == 700
    assert memory_base(MemoryUsage()) is None


def test_a_spike_between_two_readings_is_in_the_request():
    made = workload(lambda _: 1.0, 2.0, memory=lambda _: 50 * MIB)
    spiked = made.with_facts(totals={"mem_peak_bytes": 350 * MIB}, totals_from="last")
    assert recommend([Execution.of(spiked)]).mem_bytes == memory_for((45 + 300) * MIB)


def asked(made: Readings, **options) -> float | None:
    return cores_request(Execution.of(made), **options)


def test_our_cpu_is_a_percentile_over_windows_of_a_second():
    def cores(t: float) -> float:
        return 8.0 if t < 0.3 else 1.0

    long = workload(cores, 40.0)
    assert usage_of(long).cpu.window(0.1).peak_cores == pytest.approx(8.0)
    assert asked(long) == 1.2
    assert asked(long, whole_cores=True) == 2
    assert asked(workload(lambda _: 0.001, 2.0)) == 0.1


def test_of_a_short_run_windows_are_short():
    # All of its CPU time in a third of its life: with the mean of 0.4 cores it would be slower.
    brief = workload(lambda t: 1.2 if t < 0.3 else 0.0, 0.9)
    assert usage_of(brief).cpu.mean_cores == pytest.approx(0.4)
    assert asked(brief) == 1.4
    assert [request_window_s(each) for each in (0.05, 1.0, 5.0, 60.0)] == [0.1, 0.1, 0.5, 1.0]
    # Readings a second apart do not tell windows of 0.5 s, and where there are none it is the mean.
    assert asked(workload(lambda _: 1.0, 5.0, interval_s=1.0)) == 1.2
    gone = readings({"t_ns": []}, begun_ns=0, ended_ns=5 * S, totals={"cpu_ns": 5 * S})
    assert asked(gone) == 1.2


def test_nothing_above_the_machines_cpus_is_recommended():
    full = workload(lambda _: 1.98, 20.0, cpus=2)
    made = recommend([Execution.of(full)], cpu_limit=True)
    assert (made.cpu_cores, made.cpu_limit_cores) == (2.0, 2.0)
    assert "it may need more: it used all 2 CPUs" in made.doubts


def test_what_held_several_executions_back_is_said_once_with_the_most():
    """Each of them waited for a CPU, for another share of its time."""
    waits = (0.31, 0.47, 0.38)
    found = []
    for share in waits:
        columns = {"t_ns": [0, S // 2, S], "cpu_ns": [0, S // 10, S // 5], "mem_bytes": [MIB] * 3}
        waited = {"cpu_some_ns": [0, round(share * S / 2), round(share * S)]}
        found.append(Execution.of(readings({**columns, **waited}, begun_ns=0, ended_ns=S)))
    [said] = [doubt for doubt in recommend(found).doubts if "waited for a CPU" in doubt]
    assert said.startswith("it may need more: it waited for a CPU for 47% of the time")
    assert said.endswith("(the most of several executions)")
    [alone] = [doubt for doubt in recommend(found[:1]).doubts if "waited for a CPU" in doubt]
    assert alone.endswith("or it has many threads")


def test_a_limit_on_the_way_is_a_doubt():
    held = workload(lambda _: 1.0, 2.0, limits=(Limit("box", 64 * MIB),), memory=lambda _: 64 * MIB)
    doubts = recommend([Execution.of(held)]).doubts
    assert "it may need more: memory in use, page cache included, reached the limit of box" in doubts


def test_less_memory_than_was_held_is_said_first():
    """CPOST's mean of 200 ms is half of what a step held that wrote its files in 120 ms."""
    brief = execution(10, 144)
    memory = replace(brief.usage.memory, peak_bytes=302 * MB, kernel_peak_bytes=302 * MB, peak_from="kernel")
    held = replace(brief, usage=replace(brief.usage, memory=memory))
    made = recommend([held], "cpost")
    assert made.mem_mb == 256
    # Of the 302 MB a few may be cache that can be taken back.
    size = round(memory_base(memory).size_bytes / MIB)
    assert 256 < size <= 302 * MB / MIB
    assert made.doubts[0] == f"244 MiB are less than the {size} MiB that it held: it may be killed for lack of memory"
    assert not any("that it held" in doubt for doubt in recommend([held], "default").doubts)
    assert not any("that it held" in doubt for doubt in recommend([brief], "cpost").doubts)
