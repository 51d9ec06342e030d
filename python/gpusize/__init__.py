"""Measures how many GPUs a model, an agent or a pipeline needs, and says how sure it is.

    import gpusize

    target = gpusize.Target("http://host:8000/v1", model="m", gpus=8)
    dataset = gpusize.Dataset.read("prompts.jsonl")
    load = gpusize.Load(concurrencies=(1, 2, 4, 8, 16, 32), passes=2)
    result = gpusize.run(target, dataset, load, users=100, slos="p95 runtime <= 10s")
    print(result.estimate().gpus)

Names are imported when they are first used, so that a program that needs one of them does not wait for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpusize.adaptive import Adaptive
    from gpusize.dataset import Dataset
    from gpusize.engine import build_profile, monotonic_ns
    from gpusize.errors import (
        ConfigError,
        DatasetError,
        EnvironmentLacks,
        GpusizeError,
        MeasuredNo,
        SloError,
        StoreError,
        TargetError,
        UsageError,
    )
    from gpusize.interrupt import StopSwitch
    from gpusize.load import Load, Stream
    from gpusize.measure import arun, run
    from gpusize.recorder import Recorder
    from gpusize.result import Result, open_run
    from gpusize.simulate import SimulatedCluster
    from gpusize.slo import Slo
    from gpusize.sweep import ProgressEvent
    from gpusize.target import Target
    from gpusize.workflow import call, llm_base_url
    from gpusize.workflow.target import WorkflowTarget

__version__ = "0.1.0"

__all__ = [
    "Adaptive",
    "ConfigError",
    "Dataset",
    "DatasetError",
    "EnvironmentLacks",
    "GpusizeError",
    "Load",
    "MeasuredNo",
    "ProgressEvent",
    "Recorder",
    "Result",
    "SimulatedCluster",
    "Slo",
    "SloError",
    "StopSwitch",
    "StoreError",
    "Stream",
    "Target",
    "TargetError",
    "UsageError",
    "WorkflowTarget",
    "arun",
    "build_profile",
    "call",
    "llm_base_url",
    "monotonic_ns",
    "open_run",
    "run",
]

_HOMES = {
    "Adaptive": "adaptive",
    "Dataset": "dataset",
    "Load": "load",
    "ProgressEvent": "sweep",
    "Recorder": "recorder",
    "Result": "result",
    "SimulatedCluster": "simulate",
    "Slo": "slo",
    "StopSwitch": "interrupt",
    "Stream": "load",
    "Target": "target",
    "WorkflowTarget": "workflow.target",
    "arun": "measure",
    "build_profile": "engine",
    "call": "workflow",
    "llm_base_url": "workflow",
    "monotonic_ns": "engine",
    "open_run": "result",
    "run": "measure",
}
"""Where each public name is defined; errors.py for those that are not here."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
