"""Runs of workflows, as ``gpusize.run`` does them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpusize.analysis.slo import as_slos
from gpusize.base.interrupt import StopSwitch
from gpusize.measure import execute
from gpusize.measure.spec import RunSpec
from gpusize.result import Result
from gpusize.targets.workflow.engine import WorkflowEngine
from gpusize.targets.workflow.target import WorkflowTarget
from gpusize.workload.dataset import Dataset
from gpusize.workload.load import Load
from tests.virtual_time import VirtualClock, VirtualLoop
from tests.workflow import flows

Measure = Callable[..., Result]


class VirtualTarget(WorkflowTarget):
    """A workflow whose levels run in virtual time. Calls on threads and commands do not belong there."""

    def open(self, dataset: Dataset, **_: Any) -> WorkflowEngine:
        clock = VirtualClock()
        return super().open(dataset, clock=clock, loop=VirtualLoop(clock))


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    flows.seen.clear()


@pytest.fixture
def measure(tmp_path: Path) -> Measure:
    """A run of a target over rows: ``measure(target, rows, load, slos=…, stop=…, progress=…, key=…)``."""

    def run(
        target: WorkflowTarget,
        rows: list[Any],
        load: Load,
        *,
        slos: Any = None,
        stop: StopSwitch | None = None,
        progress: Any = None,
        key: str | None = None,
    ) -> Result:
        request = RunSpec(
            target=target,
            dataset=Dataset.from_rows(rows, key=key),
            load=load,
            slos=as_slos(slos),
            out=tmp_path / "runs",
            observers=() if target.proxy is None else (target.proxy,),
        )
        return execute.execute(request, stop=stop, progress=progress)

    return run
