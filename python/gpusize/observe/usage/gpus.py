"""GPUs that a container or a process uses: NVML's figures joined to it by process id, at a rate of their own.

Whole GPUs are read as beside a load (`observe.metrics.nvml`): utilization by the driver's buffer of samples, power,
energy, clocks, what slows them. Besides, memory by process, on MIG instances too, and where accounting is switched on
the driver's own high-water mark, which outlives the process. What a driver does not tell is a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.old_names import renamed
from gpusize.engine.session import monotonic_ns
from gpusize.observe.metrics.nvml import LocalGpus
from gpusize.observe.metrics.prometheus_text import canonical_labels
from gpusize.observe.metrics.reading import Reading, SourceFailed
from gpusize.observe.metrics.sampler import Sampler
from gpusize.observe.usage.gpu_use import HELD, OTHERS, UNTOLD, GpuUse, gpu_uses
from gpusize.observe.usage.processes import Member, in_cgroup_of, in_tree_of

if TYPE_CHECKING:
    import polars as pl

    from gpusize.observe.metrics.prometheus_text import SeriesKey

__all__ = ["INTERVAL_S", "GpuReader", "SourceGpus", "in_cgroup_of", "in_tree_of"]

__getattr__ = renamed(__name__, {"GpuWatch": "GpuReader"})

INTERVAL_S: Final = 0.2
"""Memory by process is cheap five times a second; the driver's own samples come at 6 Hz or so."""
_MOST_BYTES: Final = 1 << 50
_PATIENCE_S: Final = 1.0
"""For the last reading: a driver that hangs is not waited for."""


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
            yield UNTOLD, float(len(ours) - len(known))
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
    from gpusize.base.text import shown

    return shown(value.decode("utf-8", "replace") if isinstance(value, bytes) else value, 100)


class GpuReader:
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
            self.notes.append(f"GPUs are not watched: {problem}")
            return
        self._running = True
        self._sampler.start()

    def stop(self) -> pl.DataFrame:
        """Read once more and end; the samples as those beside a load, without rows where there is no GPU."""
        if self._running:
            self._running = False
            # What the counters rose by since the last reading would be lost, a fifth of a second of energy.
            self._sampler.wait(self._sampler.ask(), _PATIENCE_S)
            self._sampler.ask_to_stop()
            self._marks = self._source.accounted()
            self._sampler.stop()
            self.notes += self._source.notes()
        return self._sampler.buffer.take(0)

    def uses(self, samples: pl.DataFrame, start_ns: int, end_ns: int) -> list[GpuUse]:
        """What the source used of each GPU in a span, from what `stop` gave."""
        source = self._source
        return gpu_uses(samples, start_ns, end_ns, accounted=self._marks, names=source.names, split=source.split)
