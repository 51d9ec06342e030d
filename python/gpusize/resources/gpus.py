"""GPUs that a container or a process uses: NVML's figures joined to it by process id, at a rate of their own.

Whole GPUs are read as beside a load (`gpusize.samples.nvml`): utilization by the driver's buffer of samples, power,
energy, clocks, what slows them. Besides, memory by process, on MIG instances too, and where accounting is switched on
the driver's own high-water mark, which outlives the process. What a driver does not tell is a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from gpusize.engine import monotonic_ns
from gpusize.resources.gpu_use import GpuUse
from gpusize.samples.exposition import canonical_labels, parse_labels
from gpusize.samples.nvml import LocalGpus
from gpusize.samples.reading import Reading, SourceFailed
from gpusize.samples.sampler import Sampler
from gpusize.samples.series import counter_increase, gauge_summary

if TYPE_CHECKING:
    import polars as pl

    from gpusize.samples.exposition import SeriesKey

__all__ = ["INTERVAL_S", "GpuWatch", "SourceGpus", "gpu_uses", "in_cgroup_of", "in_group_at", "in_tree_of"]

INTERVAL_S: Final = 0.2
"""Memory by process is cheap five times a second; the driver's own samples come at 6 Hz or so."""
HELD: Final = "nvml_process_memory_bytes"
OTHERS: Final = "nvml_other_processes"
MOUNT: Final = "/sys/fs/cgroup/"
_MOST_BYTES: Final = 1 << 50

Member = Callable[[int], bool]
"""Whether a process is of the source."""


def in_tree_of(root_pid: int, proc: Path = Path("/proc")) -> Member:
    """Membership in a process tree. What was of it once stays so: its parents may have ended since."""
    known: dict[int, bool] = {root_pid: True}

    def member(pid: int) -> bool:
        seen = []
        at: int | None = pid
        while at is not None and at not in known and at > 1 and at not in seen:
            seen.append(at)
            at = _parent(proc, at)
        found = at is not None and known.get(at, False)
        if found:
            known.update(dict.fromkeys(seen, True))
        return found

    return member


def _parent(proc: Path, pid: int) -> int | None:
    try:
        # The command stands in brackets and may hold blanks and brackets itself.
        return int((proc / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def in_cgroup_of(pid: int, proc: Path = Path("/proc")) -> Member:
    """Membership in the cgroup of a process, or in one below it, in any hierarchy that has it in a group of its own."""
    groups = _groups(proc, pid)
    known: dict[int, bool] = {pid: True}

    def member(other: int) -> bool:
        if other not in known:
            told = _groups(proc, other)
            inside = any(theirs == ours or theirs.startswith(f"{ours}/") for ours in groups for theirs in told)
            if told:
                known[other] = inside
            return inside
        return known[other]

    return member


def in_group_at(path: str, proc: Path = Path("/proc")) -> Member:
    """Membership in a cgroup that is named by its path in the hierarchies, or by its directory."""
    # A directory of v2 stands right below the mount, one of v1 below its controller.
    parts = path.removeprefix(MOUNT).split("/")
    named = {"/" + "/".join(parts[cut:]).rstrip("/") for cut in (0, 1)} if path.startswith(MOUNT) else {path}

    def member(pid: int) -> bool:
        told = _groups(proc, pid)
        return any(theirs == group or theirs.startswith(f"{group}/") for group in named for theirs in told)

    return member


def _groups(proc: Path, pid: int) -> set[str]:
    try:
        lines = (proc / str(pid) / "cgroup").read_text("utf-8", "replace").splitlines()
    except OSError:
        return set()
    paths = {line.split(":", 2)[2] for line in lines if line.count(":") >= 2}
    return paths - {"/", ""}


class SourceGpus(LocalGpus):
    """All GPUs of this machine and their MIG instances, with the memory that a source's processes hold of each.

    Args:
        member: whether a process is of the source.
        nvml: as `LocalGpus` takes it.
        clock: the engine's clock.
    """

    def __init__(
        self, member: Member, *, nvml: ModuleType | None = None, clock: Callable[[], int] = monotonic_ns
    ) -> None:
        super().__init__(nvml=nvml, clock=clock)
        self._member = member
        self._instances: list[tuple[str, Any]] = []
        self._pids: dict[str, set[int]] = {}
        self.names: dict[str, str] = {}

    def open(self) -> None:
        """Load the library and look for GPUs and their instances.

        Raises:
            SourceFailed: there is no driver, or no GPU.
        """
        super().open()
        nvml = self._nvml
        self._instances = [each for uuid, gpu in self._gpus if uuid in self._mig for each in self._instances_of(gpu)]
        for uuid, handle in (*self._gpus, *self._instances):
            try:
                self.names[uuid] = _text(nvml.nvmlDeviceGetName(handle))
            except nvml.NVMLError:
                self.names[uuid] = ""

    def _instances_of(self, gpu: Any) -> Iterator[tuple[str, Any]]:
        nvml = self._nvml
        try:
            count = int(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu))
        except nvml.NVMLError:
            return
        for index in range(count):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
                yield _text(nvml.nvmlDeviceGetUUID(handle)), handle
            except nvml.NVMLError:
                # Places of instances that were not made.
                continue

    def read(self) -> Reading:
        """Read every GPU and every instance.

        Raises:
            SourceFailed: none of them told anything.
        """
        reading = super().read()
        values: dict[SeriesKey, float] = dict(reading.values)
        for uuid, handle in self._instances:
            labels = canonical_labels({"gpu": uuid})
            values.update({(metric, labels): value for metric, value in self._of_instance(uuid, handle)})
        return Reading(reading.t_ns, reading.width_ns, values)

    def _of_gpu(self, uuid: str, handle: Any) -> Iterator[tuple[str, float]]:
        yield from super()._of_gpu(uuid, handle)
        if uuid not in self._mig:
            yield from self._held(uuid, handle)

    def _of_instance(self, uuid: str, handle: Any) -> Iterator[tuple[str, float]]:
        try:
            told = self._memory(handle)
        except self._nvml.NVMLError:
            self._lacks.setdefault("memory", set()).add(uuid)
        else:
            yield from ((metric, value) for metric, (value, most) in told.items() if 0 <= value <= most)
        yield from self._held(uuid, handle)

    def _held(self, uuid: str, handle: Any) -> Iterator[tuple[str, float]]:
        """Memory of the source's processes, and how many others there are."""
        nvml = self._nvml
        processes: dict[int, int | None] = {}
        told = False
        for call in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
            try:
                found = call(handle)
            except nvml.NVMLError:
                continue
            told = True
            for each in found:
                pid, held = int(each.pid), each.usedGpuMemory
                before = processes.get(pid)
                good = held is not None and 0 <= held <= _MOST_BYTES
                # One that computes and draws is in both lists, with the same memory.
                processes[pid] = max(int(held), before or 0) if good else before
        if not told:
            self._lacks.setdefault("processes", set()).add(uuid)
            return
        ours = {pid: held for pid, held in processes.items() if self._member(pid)}
        self._pids.setdefault(uuid, set()).update(ours)
        yield OTHERS, float(len(processes) - len(ours))
        known = [held for held in ours.values() if held is not None]
        if len(known) == len(ours):
            yield HELD, float(sum(known))
        else:
            self._lacks.setdefault("memory by process", set()).add(uuid)

    @property
    def split(self) -> frozenset[str]:
        """GPUs that are split into instances which are read instead."""
        return frozenset(self._mig) if self._instances else frozenset()

    def accounted(self) -> dict[str, int]:
        """The driver's own high-water marks of the source's processes, by GPU, in bytes; only of GPUs that keep them.

        Of several processes on a GPU it is the largest: nobody knows whether theirs came together.
        """
        nvml, found = self._nvml, {}
        for uuid, handle in self._gpus if self._opened else ():
            marks = []
            for pid in self._pids.get(uuid, ()):
                try:
                    if nvml.nvmlDeviceGetAccountingMode(handle):
                        marks.append(nvml.nvmlDeviceGetAccountingStats(handle, pid).maxMemoryUsage)
                except nvml.NVMLError:
                    continue
            good = [int(mark) for mark in marks if mark is not None and 0 < mark <= _MOST_BYTES]
            if good:
                found[uuid] = max(good)
        return found


def _text(value: str | bytes) -> str:
    from gpusize.textio import shown

    return shown(value.decode("utf-8", "replace") if isinstance(value, bytes) else value, 100)


class GpuWatch:
    """Reads the GPUs on a thread of its own while a source runs. A missing driver is a note.

    Args:
        member: whether a process is of the source.
        interval_s: time between two readings.
        nvml: stands in for pynvml, in tests.
        clock: the engine's clock.
    """

    def __init__(
        self,
        member: Member,
        interval_s: float = INTERVAL_S,
        *,
        nvml: ModuleType | None = None,
        clock: Callable[[], int] = monotonic_ns,
    ) -> None:
        self.notes: list[str] = []
        self._source = SourceGpus(member, nvml=nvml, clock=clock)
        self._sampler = Sampler(self._source, interval_s, clock)
        self._marks: dict[str, int] = {}
        self._running = False

    def start(self) -> None:
        """Take a first reading and begin; without a driver or a GPU there is a note instead."""
        try:
            self._source.open()
        except SourceFailed as problem:
            self.notes.append(f"no GPU is watched: {problem}")
            return
        self._running = True
        self._sampler.start()

    def ask(self) -> None:
        """Read now; asked for at the end, while the processes are still there if they are."""
        if self._running:
            self._sampler.wait(self._sampler.ask(), 1.0)

    def stop(self) -> pl.DataFrame:
        """End; the samples, in the columns of samples beside a load. Without rows where there is no GPU."""
        if self._running:
            self._running = False
            self._sampler.ask_to_stop()
            self._marks = self._source.accounted()
            self._sampler.stop()
            self.notes += self._source.notes()
        return self._sampler.buffer.take(0)

    def uses(self, samples: pl.DataFrame, start_ns: int, end_ns: int) -> list[GpuUse]:
        """What the source used of each GPU in a span, from what `stop` gave."""
        source = self._source
        return gpu_uses(samples, start_ns, end_ns, accounted=self._marks, names=source.names, split=source.split)


def gpu_uses(
    samples: pl.DataFrame,
    start_ns: int,
    end_ns: int,
    *,
    accounted: dict[str, int] | None = None,
    names: dict[str, str] | None = None,
    split: frozenset[str] = frozenset(),
) -> list[GpuUse]:
    """What a source used of each GPU, from samples.

    Args:
        samples: columns t_ns, source, metric, labels, value.
        start_ns: start of the span on the engine's clock.
        end_ns: its end.
        accounted: the driver's own high-water marks by GPU, in bytes.
        names: models of the GPUs, by UUID.
        split: GPUs of which the instances are told instead.

    Returns:
        GPUs that its processes were seen on; all where the driver does not tell processes.
    """
    import polars as pl

    made = []
    for key, part in samples.filter(pl.col("labels") != "").group_by("labels", maintain_order=True):
        gpu = (parse_labels(str(key[0])) or {}).get("gpu")
        if gpu is not None and gpu not in split:
            use = _use(part, gpu, (start_ns, end_ns), (accounted or {}).get(gpu), (names or {}).get(gpu, ""))
            if use is not None:
                made.append(use)
    return made


def _use(part: pl.DataFrame, gpu: str, span: tuple[int, int], mark: int | None, name: str) -> GpuUse | None:
    import polars as pl

    def series(metric: str) -> tuple[Any, Any]:
        found = part.filter(pl.col("metric") == metric).sort("t_ns")
        return found["t_ns"].to_numpy(), found["value"].to_numpy()

    def gauge(metric: str) -> Any:
        t, v = series(metric)
        return gauge_summary(t, v, *span) if t.size else None

    held, whole, total = gauge(HELD), gauge("nvml_memory_used_bytes"), gauge("nvml_memory_total_bytes")
    others = gauge(OTHERS)
    peak, whence = _peak(held, whole if others is None else None, mark)
    if others is not None and not peak:
        # The driver tells processes, and none of ours was there.
        return None
    busy, slowed = gauge("nvml_gpu_utilization"), gauge("nvml_throttled")
    power, clock = gauge("nvml_power_watts"), gauge("nvml_sm_clock_mhz")
    energy = counter_increase(*series("nvml_energy_joules_total"), *span)
    return GpuUse(
        gpu=gpu,
        name=name,
        mem_peak_bytes=peak,
        mem_from=whence,
        mem_total_bytes=None if total is None else round(total.high),
        busy_mean=None if busy is None else busy.mean,
        busy_max=None if busy is None else busy.high,
        power_mean_w=None if power is None else power.mean,
        energy_j=None if energy is None else energy.increase,
        sm_clock_mean_mhz=None if clock is None else clock.mean,
        slowed=None if slowed is None else slowed.mean,
        readings=max((each.readings for each in (held, whole) if each is not None), default=0),
        others=others is not None and others.high > 0,
    )


def _peak(held: Any, whole: Any, mark: int | None) -> tuple[int | None, str | None]:
    """The most memory and where that is from: of a mark and of readings the larger one."""
    sampled = None if held is None else round(held.high)
    if mark is not None and mark >= (sampled or 0):
        return mark, "accounting"
    if sampled is not None:
        return sampled, "sampled"
    return (None, None) if whole is None else (round(whole.high), "whole GPU")
