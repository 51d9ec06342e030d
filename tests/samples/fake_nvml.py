"""A stand-in for NVML with the calls, constants and shapes of the installed pynvml."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml

NAMES = (
    "NVMLError",
    "NVML_CLOCK_SM",
    "NVML_CLOCK_MEM",
    "NVML_GPU_UTILIZATION_SAMPLES",
    "NVML_VALUE_TYPE_DOUBLE",
    "NVML_VALUE_TYPE_UNSIGNED_INT",
)


class Gpu:
    """What one GPU answers; an attribute set to None raises "not supported"."""

    def __init__(self, uuid: str = "GPU-0", **changed: Any) -> None:
        self.uuid = uuid
        self.power_mw: int | None = 250_000
        self.energy_mj: int | None = 1_000_000
        self.limit_mw: int | None = 400_000
        self.used: int | None = 5 << 30
        self.total = 80 << 30
        self.util: int | None = 40
        self.sm_mhz: int | None = 1410
        self.mem_mhz: int | None = 1593
        self.reasons: int | None = 0
        self.old_driver = False
        self.mig: int | None = 0
        self.samples: list[tuple[int, int]] | None = None
        self.name = "NVIDIA H200"
        self.processes: list[tuple[int, int | None]] | None = []
        self.drawing: list[tuple[int, int | None]] | None = []
        self.accounted: dict[int, int] | None = None
        self.instances: list[Gpu] = []
        vars(self).update(changed)


def _or_not(value: Any) -> Any:
    if value is None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return value


def _add_processes(nvml: Any) -> None:
    def processes(found: list[tuple[int, int | None]] | None):
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in _or_not(found)]

    def accounted(gpu: Gpu, pid: int):
        if pid not in (gpu.accounted or {}):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return SimpleNamespace(maxMemoryUsage=(gpu.accounted or {})[pid])

    def instance(gpu: Gpu, index: int):
        if index >= len(gpu.instances):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return gpu.instances[index]

    nvml.nvmlDeviceGetName = lambda gpu: gpu.name
    nvml.nvmlDeviceGetComputeRunningProcesses = lambda gpu: processes(gpu.processes)
    nvml.nvmlDeviceGetGraphicsRunningProcesses = lambda gpu: processes(gpu.drawing)
    nvml.nvmlDeviceGetAccountingMode = lambda gpu: int(gpu.accounted is not None)
    nvml.nvmlDeviceGetAccountingStats = accounted
    nvml.nvmlDeviceGetMaxMigDeviceCount = lambda gpu: 7
    nvml.nvmlDeviceGetMigDeviceHandleByIndex = instance


def fake_nvml(*gpus: Gpu, refuses: bool = False) -> Any:
    """The module; ``calls`` counts how often it was let in and out."""
    nvml: Any = ModuleType("fake_nvml")
    for name in NAMES:
        setattr(nvml, name, getattr(pynvml, name))
    nvml.calls = {"init": 0, "shutdown": 0}

    def init() -> None:
        if refuses:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        nvml.calls["init"] += 1

    def shutdown() -> None:
        nvml.calls["shutdown"] += 1

    def samples(gpu: Gpu, kind: int, since_us: int):
        assert kind == pynvml.NVML_GPU_UTILIZATION_SAMPLES
        found = [(at, share) for at, share in _or_not(gpu.samples) if at > since_us]
        made = [SimpleNamespace(timeStamp=at, sampleValue=SimpleNamespace(uiVal=share)) for at, share in found]
        return pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, made

    def event_reasons(gpu: Gpu):
        if gpu.old_driver:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return _or_not(gpu.reasons)

    def clock(gpu: Gpu, kind: int):
        return _or_not(gpu.sm_mhz if kind == pynvml.NVML_CLOCK_SM else gpu.mem_mhz)

    _add_processes(nvml)
    nvml.nvmlInit = init
    nvml.nvmlShutdown = shutdown
    nvml.nvmlDeviceGetCount = lambda: len(gpus)
    nvml.nvmlDeviceGetHandleByIndex = lambda index: gpus[index]
    nvml.nvmlDeviceGetUUID = lambda gpu: gpu.uuid
    nvml.nvmlDeviceGetMigMode = lambda gpu: [_or_not(gpu.mig), gpu.mig]
    nvml.nvmlDeviceGetUtilizationRates = lambda gpu: SimpleNamespace(gpu=_or_not(gpu.util), memory=0)
    nvml.nvmlDeviceGetSamples = samples
    nvml.nvmlDeviceGetPowerUsage = lambda gpu: _or_not(gpu.power_mw)
    nvml.nvmlDeviceGetTotalEnergyConsumption = lambda gpu: _or_not(gpu.energy_mj)
    nvml.nvmlDeviceGetEnforcedPowerLimit = lambda gpu: _or_not(gpu.limit_mw)
    nvml.nvmlDeviceGetMemoryInfo = lambda gpu: SimpleNamespace(used=_or_not(gpu.used), total=gpu.total, free=0)
    nvml.nvmlDeviceGetClockInfo = clock
    nvml.nvmlDeviceGetCurrentClocksEventReasons = event_reasons
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda gpu: _or_not(gpu.reasons)
    for name in vars(nvml):
        assert not name.startswith("nvml") or hasattr(pynvml, name), f"pynvml has no {name}"
    return nvml
