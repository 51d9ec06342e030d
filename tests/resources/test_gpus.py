"""GPUs of a source, by a stand-in with the calls and shapes of the installed pynvml."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpusize.observe.metrics.buffer import samples_frame
from gpusize.observe.usage.gpu_use import GpuUse, gpu_uses
from gpusize.observe.usage.gpus import GpuReader, SourceGpus
from gpusize.observe.usage.processes import in_cgroup_of, in_group_at, in_tree_of
from gpusize.observe.usage.usage import usage_of
from gpusize.report.containers.usage_text import usage_lines
from gpusize.report.figures.usage import usage_figure
from tests.resources.made import MIB, S, workload
from tests.samples.fake_nvml import Gpu, fake_nvml
from tests.samples.sources import Clock

OURS = {10, 11}
GIB = 1 << 30


class Read:
    """A source of GPUs that is read by hand, at times that a test sets."""

    def __init__(self, *gpus: Gpu, **fake) -> None:
        self.clock = Clock(0)
        self.source = SourceGpus(OURS.__contains__, nvml=fake_nvml(*gpus, **fake), clock=self.clock)
        self.source.open()
        self.readings: list = []

    def at(self, seconds: float) -> Read:
        self.clock.now_ns = round(seconds * S)
        self.readings.append(self.source.read())
        return self

    def uses(self, end_s: float = 2.0) -> list[GpuUse]:
        frame = samples_frame("nvml", [(each.t_ns, each.values) for each in self.readings])
        return gpu_uses(
            frame,
            0,
            round(end_s * S),
            accounted=self.source.accounted(),
            names=self.source.names,
            split=self.source.split,
        )


def test_memory_of_the_sources_processes_and_of_no_others():
    gpu = Gpu(processes=[(10, 2 * GIB), (11, GIB), (99, 30 * GIB)], drawing=[(10, 2 * GIB)])
    read = Read(gpu, Gpu("GPU-1", processes=[(99, GIB)])).at(0).at(1)
    gpu.processes = [(10, 4 * GIB), (99, 30 * GIB)]
    (use,) = read.at(2).uses()
    assert (use.gpu, use.name, use.mem_peak_bytes, use.mem_from) == ("GPU-0", "NVIDIA H200", 4 * GIB, "sampled")
    assert (use.mem_total_bytes, use.others, use.readings) == (80 * GIB, True, 3)
    assert (use.busy_mean, use.power_mean_w, use.sm_clock_mean_mhz, use.slowed) == (0.4, 250, 1410, 0)


def test_a_short_peak_of_use_is_not_hidden_in_the_mean_of_its_reading():
    gpu = Gpu(processes=[(10, GIB)], samples=[(1, 99)], util=10)
    read = Read(gpu).at(0)
    gpu.samples = [(1, 99), *((at, 10) for at in range(2, 7)), (7, 90)]
    (use,) = read.at(1).at(2).uses()
    # Before the first reading it was not the source's; the third has nothing new and is the driver's newest.
    assert use.busy_max == pytest.approx(0.9)
    assert use.busy_mean is not None
    assert use.busy_mean < 0.25


def test_energy_is_what_the_counter_rose_by():
    gpu = Gpu(processes=[(10, GIB)])
    read = Read(gpu).at(0)
    gpu.energy_mj = 1_500_000
    (use,) = read.at(2).uses()
    assert use.energy_j == pytest.approx(500)


def test_the_drivers_own_mark_outlives_the_process():
    gpu = Gpu(processes=[(10, GIB)], accounted={10: 6 * GIB, 99: 40 * GIB})
    read = Read(gpu).at(0)
    gpu.processes = []
    (use,) = read.at(2).uses()
    assert (use.mem_peak_bytes, use.mem_from) == (6 * GIB, "accounting")
    # Readings may have seen more than the mark of the largest process: two together.
    two = Gpu(processes=[(10, GIB), (11, GIB)], accounted={10: GIB, 11: GIB})
    (use,) = Read(two).at(0).at(2).uses()
    assert (use.mem_peak_bytes, use.mem_from) == (2 * GIB, "sampled")


def test_memory_by_process_that_is_not_told_is_that_of_the_whole_gpu_or_none():
    hidden = Read(Gpu(processes=None, drawing=None)).at(0).at(2)
    (use,) = hidden.uses()
    assert (use.mem_peak_bytes, use.mem_from) == (5 * GIB, "whole GPU")
    assert "local GPUs: 1 of 1 do not report their processes" in hidden.source.notes()
    unknown = Read(Gpu(processes=[(10, None)])).at(0)
    assert "nvml_process_memory_bytes" not in {metric for metric, _ in unknown.readings[0].values}
    assert "local GPUs: 1 of 1 do not report their memory by process" in unknown.source.notes()
    # It was there all the same, also where it came later: the GPU is not counted as unused.
    late = Gpu(processes=[(99, None)])
    read = Read(late).at(0)
    assert read.uses() == []
    late.processes = [(10, None), (99, None)]
    (use,) = read.at(2).uses()
    assert (use.mem_peak_bytes, use.mem_from, use.others) == (5 * GIB, "whole GPU", True)


@pytest.mark.parametrize("used", [-1, 1 << 63])
def test_memory_that_cannot_be_is_left_out(used):
    read = Read(Gpu(processes=[(10, used)])).at(0)
    assert "nvml_process_memory_bytes" not in {metric for metric, _ in read.readings[0].values}


def test_instances_of_a_split_gpu_are_gpus_of_their_own():
    small = Gpu("MIG-a", total=20 * GIB, used=3 * GIB, processes=[(10, 2 * GIB)], name="H200 MIG 1g.18gb")
    idle = Gpu("MIG-b", total=20 * GIB, used=0, processes=[])
    (use,) = Read(Gpu(mig=1, util=None, instances=[small, idle])).at(0).at(2).uses()
    assert (use.gpu, use.name) == ("MIG-a", "H200 MIG 1g.18gb")
    assert (use.mem_peak_bytes, use.mem_total_bytes) == (2 * GIB, 20 * GIB)
    assert (use.busy_mean, use.power_mean_w) == (None, None)


def test_a_missing_driver_is_a_note():
    reader = GpuReader(OURS.__contains__, nvml=fake_nvml(refuses=True))
    reader.start()
    samples = reader.stop()
    assert samples.is_empty()
    assert reader.uses(samples, 0, S) == []
    assert reader.notes[0].startswith("GPUs are not watched: the NVIDIA driver does not answer")


def test_the_watch_reads_on_its_own_thread_at_the_start_and_at_the_end():
    gpu = Gpu(processes=[(10, GIB)], accounted={10: 3 * GIB})
    nvml = fake_nvml(gpu)
    reader = GpuReader(OURS.__contains__, 3600.0, nvml=nvml)
    reader.start()
    gpu.processes, gpu.energy_mj = [(10, 2 * GIB)], 1_700_000
    samples = reader.stop()
    (use,) = reader.uses(samples, int(samples["t_ns"][0]), int(samples["t_ns"][-1]))
    assert use.energy_j == pytest.approx(700)
    assert (use.readings, use.mem_from, use.mem_peak_bytes) == (2, "accounting", 3 * GIB)
    assert reader.stop().height == samples.height
    assert nvml.calls == {"init": 1, "shutdown": 1}


def test_descendants_are_of_a_tree_also_when_their_parents_have_ended(tmp_path: Path):
    def stat(pid: int, parent: int) -> None:
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) b) S {parent} 1 1 0\n")

    for pid, parent in [(5, 1), (10, 5), (11, 10), (12, 11), (20, 5)]:
        stat(pid, parent)
    member = in_tree_of(10, tmp_path)
    assert [pid for pid in (5, 10, 12, 20, 77) if member(pid)] == [10, 12]
    stat(12, 1)
    assert member(12)
    assert in_tree_of(os.getppid())(os.getpid())


MOUNTS = """\
32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 31 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Path]:
    """Say which groups a process is in, which are made; gives the file that says so."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(MOUNTS)

    def groups(pid: int, *lines: str) -> Path:
        for line in lines:
            _, name, path = line.split(":")
            (tmp_path / f"sys/fs/cgroup/{name or 'unified'}{path}").mkdir(parents=True, exist_ok=True)
        file = tmp_path / f"proc/{pid}/cgroup"
        file.parent.mkdir(exist_ok=True)
        file.write_text("\n".join(lines) + "\n")
        return file

    return groups


def test_membership_in_a_cgroup(machine, tmp_path: Path):
    machine(10, "4:memory:/docker/abc", "1:name=systemd:/docker/abc", "0::/")
    inner = machine(11, "4:memory:/docker/abc/inner", "0::/")
    machine(12, "4:memory:/docker/abcdef", "0::/")
    machine(13, "4:memory:/", "0::/")
    # Of the same name in another hierarchy: what systemd notes there is not what the kernel counts.
    machine(14, "4:memory:/docker/other", "1:name=systemd:/docker/abc", "0::/docker/abc")
    member = in_cgroup_of(10, tmp_path)
    assert [pid for pid in (10, 11, 12, 13, 14, 99) if member(pid)] == [10, 11]
    # A process that has ended was of it.
    inner.unlink()
    assert member(11)


def test_a_process_below_its_container_stands_for_the_container(machine, tmp_path: Path):
    box = f"/docker/{'0123456789abcdef' * 4}"
    machine(10, f"4:memory:{box}/init.scope")
    machine(11, f"4:memory:{box}/system.slice")
    assert in_cgroup_of(10, tmp_path)(11)


def test_of_what_is_gone_only_the_process_itself_is_known(machine, tmp_path: Path):
    machine(11, "4:memory:/docker/abc")
    assert [pid for pid in (10, 11) if in_cgroup_of(10, tmp_path)(pid)] == [10]
    assert not in_group_at("/docker/nowhere", tmp_path)(11)


def test_a_group_is_named_by_its_path_or_its_directory(machine, tmp_path: Path):
    machine(10, "4:memory:/docker/abc/inner", "0::/")
    machine(12, "4:memory:/docker/ab")
    for named in ("/docker/abc", "docker/abc", "/sys/fs/cgroup/memory/docker/abc"):
        assert in_group_at(named, tmp_path)(10)
    assert not in_group_at("/docker/ab", tmp_path)(10)
    assert not in_group_at("/docker/abc", tmp_path)(99)


@pytest.fixture
def samples():
    gpu = Gpu(processes=[(10, GIB)])
    read = Read(gpu)
    for step in range(20):
        gpu.processes, gpu.util = [(10, (1 + step) * GIB)], 5 * step
        read.at(1000 + step / 10)
    return samples_frame("nvml", [(each.t_ns, each.values) for each in read.readings])


def test_gpus_have_a_panel_and_a_line(samples):
    made = workload(lambda _: 1.0, 2.0)
    use = usage_of(made)
    figure = usage_figure(made, use, gpus=samples)
    assert [axes.get_ylabel() for axes in figure.axes[:3]] == ["cores", "memory (MiB)", "GPU memory (GiB)"]
    assert usage_figure(made, use).axes[-1].get_ylabel() == "memory (MiB)"
    lines = dict(usage_lines(use, [GpuUse(gpu="GPU-0", mem_peak_bytes=512 * MIB, mem_from="sampled", busy_mean=0.5)]))
    assert lines["GPU GPU-0"] == "537 MB (512 MiB) held at most (sampled), 50.0% busy"
