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

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from gpusize.analysis.slo import Slo
    from gpusize.api.compare import compare
    from gpusize.api.duet import duet
    from gpusize.api.over_time import gpus_over_time
    from gpusize.api.prove import prove
    from gpusize.api.read import read
    from gpusize.api.run import arun, run
    from gpusize.api.what_if import what_if
    from gpusize.base.errors import (
        ConfigError,
        DatasetError,
        EnvironmentLacks,
        GpusizeError,
        MeasuredNo,
        PathMissing,
        SloError,
        StoreError,
        TargetError,
        UsageError,
    )
    from gpusize.base.interrupt import StopSwitch
    from gpusize.engine.session import build_profile, monotonic_ns
    from gpusize.estimate.methods import estimate_frame
    from gpusize.estimate.plan.over_time.policies import ScalingRules
    from gpusize.estimate.question import Estimate, Question
    from gpusize.estimate.search import Adaptive
    from gpusize.measure.sweep import ProgressEvent
    from gpusize.result import Result, open_run
    from gpusize.targets.server import Target
    from gpusize.targets.simulated.cluster import SimulatedCluster
    from gpusize.targets.workflow import call, llm_base_url
    from gpusize.targets.workflow.recorder import Recorder
    from gpusize.targets.workflow.target import WorkflowTarget
    from gpusize.workload.dataset import Dataset
    from gpusize.workload.load import Load, Stream

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
    "PathMissing",
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
    "compare",
    "duet",
    "estimate_frame",
    "gpus_over_time",
    "llm_base_url",
    "monotonic_ns",
    "open_run",
    "prove",
    "read",
    "run",
    "what_if",
]

_HOMES = {
    "Adaptive": "estimate.search",
    "Dataset": "workload.dataset",
    "Estimate": "estimate.question",
    "Load": "workload.load",
    "ProgressEvent": "measure.sweep",
    "Question": "estimate.question",
    "Recorder": "targets.workflow.recorder",
    "Result": "result",
    "ScalingRules": "estimate.plan.over_time.policies",
    "SimulatedCluster": "targets.simulated.cluster",
    "Slo": "analysis.slo",
    "StopSwitch": "base.interrupt",
    "Stream": "workload.load",
    "Target": "targets.server",
    "WorkflowTarget": "targets.workflow.target",
    "arun": "api.run",
    "build_profile": "engine.session",
    "call": "targets.workflow",
    "compare": "api.compare",
    "duet": "api.duet",
    "estimate_frame": "estimate.methods",
    "gpus_over_time": "api.over_time",
    "llm_base_url": "targets.workflow",
    "monotonic_ns": "engine.session",
    "open_run": "result",
    "prove": "api.prove",
    "read": "api.read",
    "run": "api.run",
    "what_if": "api.what_if",
}
"""Where each public name is defined; base/errors.py for those that are not here."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'base.errors')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _OldNames:
    """Asked for a module when nobody else has found it: by a name of the last release, see base/old_names.py."""

    @staticmethod
    def find_spec(fullname: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        if not fullname.startswith("gpusize."):
            return None
        from gpusize.base.old_names import find

        return find(fullname)


sys.meta_path.append(_OldNames)
