"""What a run of a pipeline leaves in its metrics folder, written operator by operator.

<metrics folder>/
<operator>_final_result.csv     as CPOST has it, of the last run
<run id>/
pipeline.json                 everything but the readings
readings/<operator>.<n>.parquet  readings/<server>.server.<n>.parquet; <...>.gpus.parquet of those with GPUs
requests.yaml kubernetes.yaml compose.yaml
plots/<operator>.png plots/<server>.server.<n>.png plots/timeline.png
"""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.files import storing, write_atomic, write_frame
from gpusize.report.containers.pipeline_text import advice_of
from gpusize.report.containers.request_blocks import clara_requests, compose_deploy, kubernetes_resources
from gpusize.report.export import dumps
from gpusize.report.figures.drawing import drawing

if TYPE_CHECKING:
    from gpusize.containers.pipeline.execution import Execution
    from gpusize.containers.pipeline.outcome import OperatorResult, PipelineResult, ServerResult
    from gpusize.containers.pipeline.sizing import Trial
    from gpusize.containers.recommend import Recommendation

__all__ = ["DOCUMENT", "PipelineFiles", "pipeline_document"]

SCHEMA: Final = 1
"""Version of ``pipeline.json``; fields are added, never repurposed."""

DOCUMENT: Final = "pipeline.json"
_READINGS: Final = "readings"


class PipelineFiles:
    """The files of one run.

    Args:
        metrics_dir: the metrics folder; made where it is missing.

    Raises:
        StoreError: it cannot be made.
    """

    def __init__(self, metrics_dir: Path) -> None:
        from gpusize.records.store import new_run_id

        self._top = metrics_dir
        self.run = new_run_id()
        self.path = metrics_dir / self.run
        with storing(self.path):
            (self.path / _READINGS).mkdir(parents=True)

    def operator(self, result: OperatorResult) -> Path | None:
        """Write what was read of an operator.

        Returns:
            Its CSV in the form of CPOST; None where nothing was read in its first execution.

        Raises:
            StoreError: a file cannot be written.
        """
        from gpusize.containers.cpost_csv import SUFFIX, write_cpost_csv

        for name, execution in _named(result):
            self._write(name, execution)
        first = result.executions[0].readings if result.executions else None
        if first is None:
            return None
        try:
            return write_cpost_csv(first, self._top / f"{result.name}{SUFFIX}")
        except UsageError:  # it was over before the time of day was known
            return None

    def _write(self, name: str, execution: Execution) -> None:
        if execution.readings is not None:
            execution.readings.write_parquet(self.path / name)
        if execution.gpu_samples is not None:
            write_frame(self.path / _gpus_of(name), execution.gpu_samples)

    def forget(self) -> None:
        """Take the folder away again, if nothing has been written to it."""
        with contextlib.suppress(OSError):
            (self.path / _READINGS).rmdir()
            self.path.rmdir()

    def draw(self, result: PipelineResult) -> None:
        """Draw each operator and server, and the pipeline over time.

        Raises:
            StoreError: a file cannot be written.
        """
        from gpusize.observe.usage.usage import usage_of
        from gpusize.report.figures.pipeline import draw_timeline
        from gpusize.report.figures.usage import draw_usage

        plots = self.path / "plots"
        with storing(plots):
            plots.mkdir(exist_ok=True)
        shown = [(each.name, each.executions[0], advice_of(each)) for each in result.operators if each.executions]
        every: list[tuple[str, Execution, Recommendation | None]] = [
            *((name, first, made if made.refused is None else None) for name, first, made in shown),
            *((Path(file).stem, server.execution, None) for file, server in _served(result)),
        ]
        for name, ran, made in every:
            if ran.readings is not None and len(ran.readings):
                with drawing():
                    draw_usage(ran.readings, usage_of(ran.readings), plots / f"{name}.png", made, ran.gpu_samples)
        with drawing():
            draw_timeline(result, plots / "timeline.png")

    def finish(self, result: PipelineResult, about: dict[str, Any]) -> None:
        """Write all that is told of the whole run.

        Args:
            result: the run.
            about: further members of the document: what was asked for, of which host.

        Raises:
            StoreError: a file cannot be written.
        """
        for file, server in _served(result):
            self._write(file, server.execution)
        document = pipeline_document(result, {"run": self.run, **about})
        write_atomic(self.path / DOCUMENT, dumps(document).encode())
        for name, text in _blocks(result).items():
            write_atomic(self.path / name, text.encode())


def _gpus_of(name: str) -> str:
    return f"{name.removesuffix('.parquet')}.gpus.parquet"


def _named(result: OperatorResult) -> list[tuple[str, Execution]]:
    """Executions of an operator and the files of their readings, relative to the run's folder."""
    every = list(result.executions)
    if result.sized is not None:
        every += [*result.sized.executions, *(trial.execution for trial in result.sized.trials)]
    return [(f"{_READINGS}/{result.name}.{number}.parquet", each) for number, each in enumerate(every)]


def _served(result: PipelineResult) -> list[tuple[str, ServerResult]]:
    """Servers and the files of their readings; one name may have run several times."""
    return [(f"{_READINGS}/{each.name}.server.{number}.parquet", each) for number, each in enumerate(result.servers)]


def pipeline_document(result: PipelineResult, about: dict[str, Any]) -> dict[str, Any]:
    """A run as one document. Command lines and variables are not in it, as they may hold secrets."""
    from gpusize import __version__

    return {
        "schema": SCHEMA,
        "gpusize": __version__,
        **about,
        "pipeline": {"name": result.pipeline.name, "form": result.pipeline.form, "source": result.pipeline.source},
        "containers": result.run,
        "started_ns": result.started_ns,
        "ended_ns": result.ended_ns,
        "interrupted": result.interrupted,
        "exit_code": result.exit_code,
        "operators": [_operator(each) for each in result.operators],
        "servers": [{"name": each.name, **_execution(each.execution, file)} for file, each in _served(result)],
        "notes": list(result.notes),
    }


def _operator(result: OperatorResult) -> dict[str, Any]:
    requests = result.operator.requests
    executions = [_execution(each, name) for name, each in _named(result)]
    first = len(result.executions)
    more = 0 if result.sized is None else len(result.sized.executions)
    trials = () if result.sized is None else result.sized.trials
    return {
        "name": result.name,
        "image": result.operator.image,
        "upstream": result.operator.upstream,
        "outcome": result.outcome,
        "exit_code": result.exit_code,
        "asked": {"cpus": requests.cpus, "mem_bytes": requests.mem_bytes, "gpus": requests.gpus},
        "recommendation": advice_of(result).to_dict(),
        "executions": executions[:first],
        "finer": executions[first : first + more],
        "trials": [_trial(each, run) for each, run in zip(trials, executions[first + more :], strict=True)],
        "cpu_curve": None if result.sized is None or result.sized.curve is None else asdict(result.sized.curve),
    }


def _trial(trial: Trial, execution: dict[str, Any]) -> dict[str, Any]:
    told = {"kind": trial.kind, **execution}
    if trial.check is None:
        return told
    return {**told, "verdict": {name: each for name, each in asdict(trial.check).items() if name != "raised"}}


def _execution(execution: Execution, file: str) -> dict[str, Any]:
    from gpusize.observe.usage.usage import usage_of

    readings = execution.readings
    return {
        "outcome": execution.outcome,
        "exit_code": execution.exit_code,
        "container": execution.container_id,
        "error": execution.error,
        "oom_killed": execution.oom_killed,
        "asked_ns": execution.asked_ns,
        "started_ns": execution.started_ns,
        "ended_ns": execution.ended_ns,
        "duration_s": execution.duration_s,
        "limits": {"cpus": execution.limits[0], "mem_bytes": execution.limits[1]},
        "log_tail": "" if execution.ok else execution.log_tail,
        "readings": None if readings is None else file,
        "gpu_samples": None if execution.gpu_samples is None else _gpus_of(file),
        "unread": execution.unread,
        "usage": None if readings is None else usage_of(readings).to_dict(),
        "gpus": [asdict(each) for each in execution.gpus],
        "gpu_notes": execution.gpu_notes,
    }


def _blocks(result: PipelineResult) -> dict[str, str]:
    """YAML to paste: Clara's requests, containers of a pod, an overlay for Compose."""

    def each(made: Callable[[Recommendation], str], head: str, item: str, indent: int) -> str:
        parts = [head]
        for operator in result.operators:
            block = made(advice_of(operator))
            if block.startswith("#"):
                parts.append(f"# {operator.name}: {block.removeprefix('# ')}")
            else:
                parts += [item.format(name=operator.name), textwrap.indent(block, " " * indent)]
        return "".join(parts) if len(parts) > 1 else f"{head.rstrip()} {{}}\n"

    return {
        "requests.yaml": each(clara_requests, "operators:\n", "- name: {name}\n", 2),
        "kubernetes.yaml": each(kubernetes_resources, "containers:\n", "- name: {name}\n", 2),
        "compose.yaml": each(compose_deploy, "services:\n", "  {name}:\n", 4),
    }
