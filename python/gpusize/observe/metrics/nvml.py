"""The GPUs of this machine as a source of samples, through the driver's own library (NVML).

What a GPU does not tell (a split one has no utilisation, some have no energy counter) is left out and named once.
Values that cannot be are left out too: some drivers answer with the largest integer for a sensor they cannot read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from gpusize.base.text import shown
from gpusize.base.urls import parse_url
from gpusize.engine.session import monotonic_ns
from gpusize.observe.metrics.prometheus_text import SeriesKey, canonical_labels
from gpusize.observe.metrics.reading import Reading, SourceFailed

__all__ = ["LocalGpus", "driver_is_there", "local_gpus_wanted"]

_DRIVER_FILES: Final = ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia/version")
_MOST_WATTS: Final = 10_000.0
_MOST_MHZ: Final = 20_000.0
_MOST_BYTES: Final = float(1 << 50)
_MOST_JOULES: Final = 1e13

SLOWED_BY: Final = {
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
}
"""Bits of NVML's clock event reasons that slow a GPU down; idling and clocks set by the user are not among them."""


def driver_is_there() -> bool:
    """Whether this machine has an NVIDIA driver, without loading its library."""
    return any(Path(file).exists() for file in _DRIVER_FILES)


def local_gpus_wanted(
    targets: Sequence[Mapping[str, Any]],
    asked: bool | None,  # noqa: FBT001 -- as the option has it
    driver: Callable[[], bool] = driver_is_there,
) -> bool:
    """Whether the GPUs of this machine are to be sampled.

    Args:
        targets: as in ``run.json``: ``url`` and ``simulated``.
        asked: what the user said; None: yes when a target is on this machine, is no simulated cluster, and a driver is
            there.
        driver: whether there is one.
    """
    if asked is not None:
        return asked
    here = (
        target.get("simulated") is None and target.get("url") and _is_loopback(str(target["url"])) for target in targets
    )
    return any(here) and driver()


def _is_loopback(url: str) -> bool:
    return not url.startswith("kube:") and parse_url(url).is_loopback


class LocalGpus:
    """All GPUs of this machine, at each reading.

    Args:
        nvml: the module with NVML's calls; by default pynvml, imported when opened.
        clock: the engine's clock.
    """

    def __init__(self, *, nvml: ModuleType | None = None, clock: Callable[[], int] = monotonic_ns) -> None:
        self.name = "nvml"
        self._nvml: Any = nvml
        self._clock = clock
        self._opened = False
        self._gpus: list[tuple[str, Any]] = []
        self._lacks: dict[str, set[str]] = {}
        self._newest_us: dict[str, int] = {}
        self._mig: list[str] = []

    def open(self) -> None:
        """Load the library and look for GPUs.

        Raises:
            SourceFailed: there is no driver, or no GPU.
        """
        if self._nvml is None:
            import pynvml

            self._nvml = pynvml
        nvml = self._nvml
        try:
            nvml.nvmlInit()
            self._opened = True
            handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
            self._gpus = [(_text(nvml.nvmlDeviceGetUUID(handle)), handle) for handle in handles]
        except nvml.NVMLError as problem:
            self.close()
            raise SourceFailed(f"the NVIDIA driver does not answer: {_said(problem)}", final=True) from None
        if not self._gpus:
            self.close()
            raise SourceFailed("the NVIDIA driver knows of no GPU", final=True)
        self._mig = [uuid for uuid, handle in self._gpus if self._is_split(handle)]

    def _is_split(self, handle: Any) -> bool:
        try:
            return bool(self._nvml.nvmlDeviceGetMigMode(handle)[0])
        except self._nvml.NVMLError:
            return False

    def read(self) -> Reading:
        """Read every GPU.

        Raises:
            SourceFailed: none of them told anything.
        """
        if not self._opened:
            self.open()
        asked_ns = self._clock()
        values: dict[SeriesKey, float] = {}
        for uuid, handle in self._gpus:
            labels = canonical_labels({"gpu": uuid})
            for metric, value in self._of_gpu(uuid, handle):
                values[metric, labels] = value
        answered_ns = self._clock()
        if not values:
            raise SourceFailed("no GPU reported anything")
        return Reading((asked_ns + answered_ns) // 2, answered_ns - asked_ns, values)

    def _of_gpu(self, uuid: str, handle: Any) -> Iterator[tuple[str, float]]:
        nvml = self._nvml
        calls: tuple[tuple[str, Callable[[], Mapping[str, tuple[float, float]]]], ...] = (
            ("utilisation", lambda: self._utilisation(uuid, handle)),
            ("power", lambda: {"nvml_power_watts": (nvml.nvmlDeviceGetPowerUsage(handle) / 1e3, _MOST_WATTS)}),
            (
                "energy",
                lambda: {
                    "nvml_energy_joules_total": (nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3, _MOST_JOULES)
                },
            ),
            (
                "power limit",
                lambda: {"nvml_power_limit_watts": (nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3, _MOST_WATTS)},
            ),
            ("memory", lambda: self._memory(handle)),
            ("clock", lambda: {"nvml_sm_clock_mhz": (self._clock_mhz(handle, nvml.NVML_CLOCK_SM), _MOST_MHZ)}),
            (
                "memory clock",
                lambda: {"nvml_memory_clock_mhz": (self._clock_mhz(handle, nvml.NVML_CLOCK_MEM), _MOST_MHZ)},
            ),
            ("throttle reasons", lambda: self._slowed(handle)),
        )
        for what, call in calls:
            try:
                told = call()
            except nvml.NVMLError:
                self._lacks.setdefault(what, set()).add(uuid)
                continue
            for metric, (value, most) in told.items():
                if 0 <= value <= most:
                    yield metric, value
                else:
                    self._lacks.setdefault(what, set()).add(uuid)

    def _utilisation(self, uuid: str, handle: Any) -> dict[str, tuple[float, float]]:
        """Share of time with a kernel running: mean and largest of the driver's samples since the last reading, if any.

        Without any both are its newest one, which stands for the last sixth of a second up to the last second.
        """
        shares = self._shares(uuid, handle) or [float(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100]
        return {
            "nvml_gpu_utilization": (sum(shares) / len(shares), 1.0),
            "nvml_gpu_utilization_max": (max(shares), 1.0),
        }

    def _shares(self, uuid: str, handle: Any) -> list[float]:
        """What is new in the driver's buffer of samples; empty where it has none."""
        nvml = self._nvml
        try:
            kind, samples = nvml.nvmlDeviceGetSamples(
                handle, nvml.NVML_GPU_UTILIZATION_SAMPLES, self._newest_us.get(uuid, 0)
            )
        except nvml.NVMLError:
            return []
        field = {nvml.NVML_VALUE_TYPE_DOUBLE: "dVal", nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal"}.get(kind, "ullVal")
        first = uuid not in self._newest_us
        fresh = [sample for sample in samples if sample.timeStamp > self._newest_us.get(uuid, 0)]
        shares = [float(getattr(sample.sampleValue, field)) / 100 for sample in fresh]
        if fresh:
            self._newest_us[uuid] = max(int(sample.timeStamp) for sample in fresh)
        # At first the buffer reaches back to before the run.
        return [] if first else [share for share in shares if 0 <= share <= 1]

    def _memory(self, handle: Any) -> dict[str, tuple[float, float]]:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        return {
            "nvml_memory_used_bytes": (float(memory.used), min(_MOST_BYTES, float(memory.total))),
            "nvml_memory_total_bytes": (float(memory.total), _MOST_BYTES),
        }

    def _clock_mhz(self, handle: Any, kind: int) -> float:
        return float(self._nvml.nvmlDeviceGetClockInfo(handle, kind))

    def _slowed(self, handle: Any) -> dict[str, tuple[float, float]]:
        nvml = self._nvml
        try:
            reasons = int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        except nvml.NVMLError:
            # The name before driver 535.
            reasons = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        slowed = any(reasons & bit for bit in SLOWED_BY.values())
        return {
            "nvml_throttled": (float(slowed), 1.0),
            **{f"nvml_slowed_by_{name}": (float(bool(reasons & bit)), 1.0) for name, bit in SLOWED_BY.items()},
        }

    def notes(self) -> list[str]:
        """What some GPU does not tell, and which are split."""
        count = len(self._gpus)
        notes = [
            f"local GPUs: {len(uuids)} of {count} do not report their {what}"
            for what, uuids in sorted(self._lacks.items())
        ]
        if self._mig:
            many = f"{len(self._mig)} of {count} are split (MIG)"
            notes.append(f"local GPUs: {many}; power, energy and memory are those of the whole GPU")
        return notes

    def close(self) -> None:
        """Let the library go."""
        if self._opened:
            self._opened = False
            try:
                self._nvml.nvmlShutdown()
            except self._nvml.NVMLError:
                self._gpus = []


def _text(value: str | bytes) -> str:
    return shown(value.decode("utf-8", "replace") if isinstance(value, bytes) else value, 100)


def _said(problem: Exception) -> str:
    return shown(str(problem), 200)
