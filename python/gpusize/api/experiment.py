"""An experiment on an autoscaler: the load is sent, the series are pulled, the run is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpusize.base.errors import GpusizeError, TargetError

if TYPE_CHECKING:
    from gpusize.api.pull import PulledSeries, Server
    from gpusize.base.interrupt import StopSwitch
    from gpusize.estimate.plan.autoscale.judge.types import Judgement
    from gpusize.measure.sweep import ProgressEvent
    from gpusize.result import Result
    from gpusize.studies.experiment import Experiment

__all__ = ["ExperimentResult", "run_experiment"]


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """What an experiment has left in its run folder.

    Attributes:
        result: the run.
        pulled: the series, in ``series`` of the run folder; None where the server gave none.
        judgement: what the autoscaler did; None where it could not be judged.
        written: the judgement's files.
        problems: what went wrong after the load, and what to do about it, in one line each.
        interrupted: whether Ctrl-C ended the pull; ``result.cancelled`` is of the load.
    """

    result: Result
    pulled: PulledSeries | None
    judgement: Judgement | None
    written: tuple[Path, ...] = ()
    problems: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def complete(self) -> bool:
        """Whether all series are there, and the run was judged."""
        return self.judgement is not None and self.pulled is not None and self.pulled.complete


def run_experiment(
    experiment: Experiment | str | Path,
    *,
    out: str | Path | None = None,
    plots: bool = True,
    command: Sequence[str] = (),
    server: Server | None = None,
    stop: StopSwitch | None = None,
    progress: Callable[[ProgressEvent], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> ExperimentResult:
    """Send an experiment's load, pull its series, and judge what the autoscaler did.

    The server of the series is asked before any load is sent. What fails after the load costs nothing that was
    measured: the run folder is complete, and ``problems`` says how to go on.

    Args:
        experiment: read by `gpusize.studies.experiment.read_experiment`, or its file.
        out: the folder in which the run folder is made; None for what the experiment says.
        plots: draw the figures.
        command: the command line, for ``run.json``.
        server: asks for the series, in place of the server that the experiment names.
        stop: ends the load in order; what was measured is judged.
        progress: told how the load goes.
        say: told what is done after it, in words.

    Raises:
        UsageError: the experiment is invalid; nothing was sent.
        TargetError: the target or the Prometheus server does not answer; nothing was sent.
        StoreError: the run folder cannot be written.
    """
    from gpusize.api.pull import check_server
    from gpusize.base.interrupt import StopSwitch
    from gpusize.report.plans.judged import write_judgement
    from gpusize.studies.conduct import measure
    from gpusize.studies.experiment import Experiment, read_experiment

    asked = experiment if isinstance(experiment, Experiment) else read_experiment(experiment)
    server = server or _server(asked.run)
    check_server(server)
    options = {**asked.run, **({} if out is None else {"out": str(out)})}
    result = measure(options, command=command, resume=None, stop=stop or StopSwitch(), progress=progress)
    problems: list[str] = []
    pulled, interrupted = None, False
    try:
        pulled = _pulled(asked, server, result, problems, say)
    except KeyboardInterrupt:
        interrupted = True
        problems.append(f"the pull was interrupted; {_again(result)}")
    judgement = _judged(asked, result, problems, say)
    written = [] if judgement is None else write_judgement(judgement, result.path, plots=plots)
    # Last, so that the page has what was pulled.
    result.report(plots=plots)
    return ExperimentResult(result, pulled, judgement, tuple(written), tuple(problems), interrupted)


def _server(options: Mapping[str, object]) -> Server:
    from gpusize.api.pull import Server
    from gpusize.observe.metrics.trust import prometheus_trust
    from gpusize.options.observers import prometheus_headers

    cacert = options.get("prometheus_cacert")
    return Server(
        str(options["prometheus"]),
        prometheus_headers(options),
        prometheus_trust(None if cacert is None else str(cacert), insecure=bool(options.get("prometheus_insecure"))),
    )


def _pulled(
    asked: Experiment,
    server: Server,
    result: Result,
    problems: list[str],
    say: Callable[[str], None] | None,
) -> PulledSeries | None:
    from gpusize.api.pull import pull_series
    from gpusize.observe.series.time_range import of_run

    match = asked.run.get("prometheus_match")
    try:
        pulled = pull_series(
            server,
            result.path / "series",
            of_run(result.path),
            presets=asked.presets,
            series=asked.series,
            match=None if match is None else str(match),
            margin_s=asked.margin_s,
            step_s=asked.step_s,
            wait_for_end=True,
            progress=say,
        )
    except TargetError as problem:
        problems.append(f"no series were pulled: {problem}; {_again(result)}")
        return None
    if pulled.fatal is not None:
        problems.append(f"not all series were pulled: {pulled.fatal}; {_again(result)}")
    return pulled


def _again(result: Result) -> str:
    return f"gpusize autoscale pull --run {result.path}, with the server and the presets, goes on with it"


def _judged(
    asked: Experiment, result: Result, problems: list[str], say: Callable[[str], None] | None
) -> Judgement | None:
    from gpusize.api.judged_autoscaler import judge_autoscaler

    try:
        return judge_autoscaler(
            result,
            needed=list(asked.needed) or None,
            gpus_per_replica=asked.gpus_per_replica,
            gpu_hour_price=asked.gpu_hour_price,
            window_s=asked.window_s,
            progress=say,
        )
    except GpusizeError as problem:
        if problem.todo and "--allow" in problem.todo:
            # An option of the report, and of no experiment.
            runs = " ".join(f"--needed {each}" for each in asked.needed)
            allowed = f"gpusize autoscale report {result.path} {runs} --allow"
            problem = type(problem)(problem.what, problem.where, problem.todo.replace("--allow", allowed))
        problems.append(f"it was not judged: {problem}")
        return None
