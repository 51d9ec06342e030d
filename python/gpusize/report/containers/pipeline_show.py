"""A run of a pipeline read back from its folder, shown again, perhaps by another policy."""

from __future__ import annotations

import json as json_lib
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusize.base.errors import PathMissing, StoreError
from gpusize.containers.cpost_csv import SUFFIX, read_cpost_csv
from gpusize.records.schema import check_schema
from gpusize.report.containers.pipeline_files import DOCUMENT, SCHEMA, pipeline_document
from gpusize.report.containers.pipeline_text import all_operators
from gpusize.report.export import dumps

if TYPE_CHECKING:
    from gpusize.containers.pipeline.execution import Execution
    from gpusize.containers.pipeline.outcome import OperatorResult, PipelineResult
    from gpusize.containers.pipeline.sizing import SizingOptions, Trial
    from gpusize.containers.recommend import CpuCurve, Recommendation
    from gpusize.observe.usage.readings import Readings

__all__ = ["open_pipeline_run", "show_run"]


def show_run(
    folder: Path, policy: str | None = None, *, whole_cores: bool = False, cpu_limit: bool = False, json: bool = False
) -> str:
    """A run as it was printed, or as its document.

    Args:
        folder: a metrics folder, of which the newest run is taken, or a run's own; or one with CSV files of CPOST.
        policy: another rule than the one that was stored; of CSV files than CPOST's.
        whole_cores: of that rule: CPU in whole cores.
        cpu_limit: of that rule: a CPU limit, too.
        json: the document.

    Raises:
        UsageError: no such policy.
        StoreError: no run there, or one that cannot be read.
        ConfigError: a line of a CSV file is none of CPOST's.
    """
    from gpusize.containers.pipeline.sizing import SizingOptions
    from gpusize.containers.recommend import check_policy

    again = None
    if policy is not None or whole_cores or cpu_limit:
        again = SizingOptions(check_policy(policy or "default"), whole_cores=whole_cores, cpu_limit=cpu_limit)
    result, document = open_pipeline_run(folder, again)
    if not json:
        return f"{all_operators(result)}\n"
    return dumps(pipeline_document(result, {"run": document["run"]}) if again and document["run"] else document)


def open_pipeline_run(folder: Path, again: SizingOptions | None = None) -> tuple[PipelineResult, dict[str, Any]]:
    """A run and its document. Readings that are missing or broken are left out, with a note that names them.

    Args:
        folder: a metrics folder, of which the newest run is taken, or a run's own; or one with CSV files of CPOST.
        again: size the operators anew in this way, from the stored readings.

    Raises:
        StoreError: no run there, or one that cannot be read.
        ConfigError: a line of a CSV file is none of CPOST's.
    """
    from gpusize.containers.pipeline.outcome import PipelineResult, ServerResult

    file = folder / DOCUMENT
    if not file.is_file():
        runs = sorted(folder.glob(f"*/{DOCUMENT}"))
        if not runs and (files := sorted(folder.glob(f"*{SUFFIX}"))):
            return _of_cpost(folder, files, again)
        if not runs:
            kind = StoreError if folder.exists() else PathMissing
            raise kind("there is no run of a pipeline", str(folder), "name the folder that --metrics-dir named")
        file = runs[-1]
    try:
        document: dict[str, Any] = json_lib.loads(file.read_text("utf-8"))
        check_schema(document["schema"], str(file), SCHEMA)
        pipeline = _pipeline(document)
        stored = _Stored(file.parent)
        operators = tuple(
            _operator(each, pipeline.operator(each["name"]), stored, again) for each in document["operators"]
        )
        servers = tuple(ServerResult(each["name"], _execution(each, stored)) for each in document["servers"])
        return PipelineResult(
            document["containers"],
            pipeline,
            operators,
            servers,
            document["started_ns"],
            document["ended_ns"],
            document["interrupted"],
            (*document["notes"], *stored.missing),
        ), document
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        if isinstance(problem, StoreError):
            raise
        raise StoreError(f"unreadable ({problem})", str(file), "the file is damaged") from None


def _of_cpost(folder: Path, files: list[Path], again: SizingOptions | None) -> tuple[PipelineResult, dict[str, Any]]:
    """What CPOST measured: it leaves a CSV file for each operator, and of its end nothing."""
    from gpusize.containers.pipeline.execution import Execution
    from gpusize.containers.pipeline.model import Operator, Pipeline
    from gpusize.containers.pipeline.outcome import OperatorResult, PipelineResult
    from gpusize.containers.pipeline.sizing import Sized, SizingOptions, recommended

    options = again or SizingOptions("cpost")
    results = []
    for file in files:
        each = read_cpost_csv(file)
        # A file with a header alone was measured at no time: that is not a use of 0 %.
        read = (each, None) if len(each) else (None, f"{file.name} has no rows")
        execution = Execution("completed", readings=read[0], unread=read[1])
        operator = Operator(each.name, "")
        results.append(OperatorResult(operator, (execution,), Sized(recommended([execution], options))))
    note = f"from CSV files of {folder}, which do not tell whether an operator failed"
    pipeline = Pipeline(folder.name, tuple(each.operator for each in results), "clara", str(folder))
    result = PipelineResult("", pipeline, tuple(results), notes=(note,))
    document = pipeline_document(result, {"run": None})
    for told, file in zip(document["operators"], files, strict=True):
        told["executions"][0]["readings"] = file.name
    return result, document


class _Stored:
    """The readings of a run, of which some may be lost."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.missing: list[str] = []

    def read(self, name: str | None) -> Readings | None:
        """Readings by the name of their file; None where there are none, or none any more."""
        from gpusize.observe.usage.readings import Readings

        if name is None:
            return None
        try:
            return Readings.read_parquet(self._folder / name)
        except StoreError as problem:
            self.missing.append(f"{name} is left out: {problem.what}")
            return None


def _pipeline(document: dict[str, Any]) -> Any:
    from gpusize.containers.pipeline.model import Operator, Pipeline, Requests

    told = document["pipeline"]
    operators = tuple(
        Operator(each["name"], each["image"], after=tuple(each["upstream"]), requests=Requests(**each["asked"]))
        for each in document["operators"]
    )
    return Pipeline(told["name"], operators, told["form"], told["source"])


def _operator(told: dict[str, Any], operator: Any, stored: _Stored, again: SizingOptions | None) -> OperatorResult:
    from gpusize.containers.pipeline.outcome import OperatorResult
    from gpusize.containers.pipeline.sizing import Sized, recommended

    executions = tuple(_execution(each, stored) for each in told["executions"])
    if not executions:
        return OperatorResult(operator)
    finer = tuple(_execution(each, stored) for each in told["finer"])
    every = (*executions, *finer)
    curve = _curve(told.get("cpu_curve"))
    advice = _recommendation(told["recommendation"]) if again is None else recommended(every, again, curve)
    # What was verified is another recommendation; what less CPU costs is the same.
    trials = tuple(_trial(each, stored) for each in told["trials"] if again is None or each["kind"] == "cpu_curve")
    return OperatorResult(operator, executions, Sized(advice, finer, trials, curve))


def _curve(told: dict[str, Any] | None) -> CpuCurve | None:
    from gpusize.containers.recommend import CpuCurve, CurvePoint

    if told is None:
        return None
    return CpuCurve(tuple(CurvePoint(**point) for point in told["points"]), told["base_cores"])


def _trial(told: dict[str, Any], stored: _Stored) -> Trial:
    from gpusize.containers.pipeline.sizing import Trial
    from gpusize.containers.recommend import RecommendationCheck

    judged = told.get("verdict")
    check = None if judged is None else RecommendationCheck(**{**judged, "reasons": tuple(judged["reasons"])})
    return Trial(told["kind"], _execution(told, stored), check)


def _execution(told: dict[str, Any], stored: _Stored) -> Execution:
    from gpusize.containers.pipeline.execution import Execution
    from gpusize.observe.usage.gpu_use import GpuUse

    readings = stored.read(told["readings"])
    lost = readings is None and told["readings"] is not None
    return Execution(
        outcome=told["outcome"],
        exit_code=told["exit_code"],
        container_id=told["container"],
        error=told["error"],
        oom_killed=told["oom_killed"],
        asked_ns=told["asked_ns"],
        started_ns=told["started_ns"],
        ended_ns=told["ended_ns"],
        log_tail=told["log_tail"],
        limits=(told["limits"]["cpus"], told["limits"]["mem_bytes"]),
        readings=readings,
        unread="its readings are missing" if lost else told["unread"],
        gpus=tuple(GpuUse(**each) for each in told["gpus"]),
        gpu_notes=tuple(told["gpu_notes"]),
    )


def _recommendation(told: dict[str, Any]) -> Recommendation:
    from gpusize.containers.recommend import Interval, Recommendation

    known = {each.name: told[each.name] for each in fields(Recommendation) if each.name in told}
    for name in ("cpu_interval", "mem_interval"):
        known[name] = None if known.get(name) is None else Interval(**known[name])
    for name in ("reasons", "doubts"):
        known[name] = tuple(known.get(name) or ())
    return Recommendation(**known)
