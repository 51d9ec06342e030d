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
    from gpusize.estimate import estimate_frame
    from gpusize.estimate.types import Estimate, Question
    from gpusize.interrupt import StopSwitch
    from gpusize.load import Load, Stream
    from gpusize.measure import arun, run
    from gpusize.recorder import Recorder
    from gpusize.result import Result, open_run
    from gpusize.simulate import SimulatedCluster
    from gpusize.slo import Slo
    from gpusize.sweep import ProgressEvent
    from gpusize.target import Target
    from gpusize.whatif import what_if
    from gpusize.whatif.over_time_ask import gpus_over_time
    from gpusize.whatif.over_time_rules import ScalingRules
    from gpusize.workflow import call, llm_base_url
    from gpusize.workflow.target import WorkflowTarget

__version__ = "0.1.0"

__all__ = [
    "Adaptive",
    "ConfigError",
    "Dataset",
    "DatasetError",
    "EnvironmentLacks",
    "Estimate",
    "GpusizeError",
    "Load",
    "MeasuredNo",
    "ProgressEvent",
    "Question",
    "Recorder",
    "Result",
    "ScalingRules",
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
    "estimate_frame",
    "gpus_over_time",
    "llm_base_url",
    "monotonic_ns",
    "open_run",
    "run",
    "what_if",
]

_HOMES = {
    "Adaptive": "adaptive",
    "Dataset": "dataset",
    "Estimate": "estimate.types",
    "Load": "load",
    "ProgressEvent": "sweep",
    "Question": "estimate.types",
    "Recorder": "recorder",
    "Result": "result",
    "ScalingRules": "whatif.over_time_rules",
    "SimulatedCluster": "simulate",
    "Slo": "slo",
    "StopSwitch": "interrupt",
    "Stream": "load",
    "Target": "target",
    "WorkflowTarget": "workflow.target",
    "arun": "measure",
    "build_profile": "engine",
    "call": "workflow",
    "estimate_frame": "estimate",
    "gpus_over_time": "whatif.over_time_ask",
    "llm_base_url": "workflow",
    "monotonic_ns": "engine",
    "open_run": "result",
    "run": "measure",
    "what_if": "whatif",
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
