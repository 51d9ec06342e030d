"""From options, wherever they were written, to a run's specification; without a target, of a simulated cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.numeric import check_limits
from gpusize.base.units import as_duration_s
from gpusize.options import demo
from gpusize.options.inputs import dataset_from_options
from gpusize.options.load import LOAD_STOPS, LOAD_WAYS, load_from_options, over
from gpusize.options.load_values import LOAD_OPTIONS
from gpusize.options.read_file import load_config
from gpusize.options.run_spec import RunInputs, reached, refuse_simulated, run_spec
from gpusize.options.search import over_levels, refuse_levels, wants_search
from gpusize.options.table import kinds_of
from gpusize.targets.apis.kserve import is_kserve
from gpusize.targets.simulated.cluster import SimulatedCluster
from gpusize.targets.simulated.replicas import replica_steps
from gpusize.targets.workflow.target import workflow_from_options
from gpusize.workload.load.profiles import profile_options

if TYPE_CHECKING:
    from gpusize.measure.spec import RunSpec
    from gpusize.observe.observer import Observer

__all__ = ["RUN_OPTIONS", "read_options", "spec_from_options"]

RUN_OPTIONS: Final = kinds_of("target", "dataset", "load", "search", "run")
"""Every option of ``gpusize run`` that a file may hold, with the kind of its value."""

_ROWS: Final = ("prompt", "dataset", "synthetic", "input")
"""Options that say what is sent: one on the command line takes the place of any in a file."""


def read_options(
    file: Path | None, given: Mapping[str, Any], resume: Path | None = None, *, sends: bool = True
) -> tuple[dict[str, Any], list[str]]:
    """Options of a file, with those given on the command line over them.

    Args:
        file: TOML, YAML or JSON, or None.
        given: options of the command line; None stands for not given.
        resume: a run folder, whose options are those of the run to go on with.
        sends: whether something is going to be measured, so that the options must say what.

    Returns:
        The options, and what the user should know about the file.

    Raises:
        ConfigError: the file is broken, or holds what the command does not know.
        UsageError: there is no run to resume; or the file is the sizing calculator's, which describes a workflow
            that is not run from it, and nothing says what to measure instead.
    """
    mine = {name: value for name, value in given.items() if value is not None}
    options: dict[str, Any] = {}
    notes: list[str] = []
    if resume is not None:
        if not (resume / "run.json").is_file():
            raise UsageError("there is no run to resume", str(resume), "name the folder that holds its run.json")
        # The note that a run is repeated would mislead here: it is gone on with.
        options |= load_config(resume, RUN_OPTIONS).options
    if file is not None:
        config = load_config(file, RUN_OPTIONS)
        options |= config.options
        notes += config.notes
        if sends and not config.names_target and not {*options, *mine} & {"url", "workflow", "command"}:
            # The simulated cluster would be measured with the user's dataset, and look like their workflow.
            what = "a sizing calculator's configuration gives a dataset, and nothing says what to measure"
            todo = "serve it and add --url http://localhost:8000 --api nat, or name a function with --workflow"
            raise UsageError(what, str(file), todo)
    options = over(over_levels(options, mine), {name: value for name, value in mine.items() if name in LOAD_OPTIONS})
    if any(name in mine for name in _ROWS):
        for name in (*_ROWS, "dataset_key", "dataset_format", "tokenizer", "shape", "batch"):
            options.pop(name, None)
    found = {**options, **mine}
    if found.get("profile") is not None and not any(found.get(name) for name in _ROWS):
        # Its lengths are part of some shapes; a profile that there is not is refused with the load.
        lengths = profile_options(found["profile"]).get("synthetic")
        found |= {} if lengths is None else {"synthetic": lengths}
    check_limits(_in_seconds(found))
    return found, notes


def _in_seconds(options: Mapping[str, Any]) -> dict[str, Any]:
    times = [name for name, kind in RUN_OPTIONS.items() if kind == "duration" and options.get(name) is not None]
    return {**options, **{name: as_duration_s(options[name], name) for name in times}}


@contextlib.contextmanager
def spec_from_options(
    options: Mapping[str, Any],
    *,
    observers: Sequence[Observer] = (),
    command: Sequence[str] = (),
    resume: Path | None = None,
) -> Iterator[RunSpec]:
    """A run from options; without an address a simulated cluster is up while the block runs.

    Args:
        options: as `read_options` gives them.
        observers: what else is measured beside the load.
        command: the command line, without secrets.
        resume: a run folder to go on with.

    Raises:
        UsageError: invalid options, or nothing to send.
        DatasetError: the dataset cannot be read.
        EnvironmentLacks: the simulated cluster cannot be started.
    """
    refuse_levels(options)
    with contextlib.ExitStack() as stack:
        inputs, chosen = _inputs(options, stack)
        yield stack.enter_context(run_spec(inputs, chosen, observers=observers, command=command, resume=resume))


def _inputs(options: Mapping[str, Any], stack: contextlib.ExitStack) -> tuple[RunInputs, Mapping[str, Any]]:
    """What is sent where, and the options, which are the demonstration's where no target is named."""
    inputs = options.get("input") or ()
    tensors = [inputs] if isinstance(inputs, str) else list(inputs)
    workflow = workflow_from_options(options)
    if workflow is not None:
        load = load_from_options(options)
        return RunInputs(workflow, load, dataset_from_options(options), tensors), options
    if options.get("url") is not None:
        refuse_simulated(options)
        target, ways, names = reached(options, stack)
        load = load_from_options(options)
        # Of a KServe API its tensors are sent.
        rows = None if is_kserve(target.api) else dataset_from_options(options)
        return RunInputs(target, load, rows, tensors, ways=ways, names=names), options
    chosen = _demo_options(options)
    # Invalid options are refused before the cluster is started.
    load, dataset = load_from_options(chosen), dataset_from_options(chosen)
    config = {**demo.CLUSTER, **_cluster_options(options, replica_steps(options))}
    cluster = stack.enter_context(SimulatedCluster(config))
    served = {"url": cluster.url, "model": cluster.config["model"], "gpus": cluster.config["gpus"]}
    target, _, _ = reached({**chosen, **served}, stack)
    if dataset is None and not (tensors and is_kserve(target.api)):
        dataset = demo.prompts()
    return RunInputs(target, load, dataset, tensors, cluster), chosen


def _cluster_options(options: Mapping[str, Any], steps: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    delay, most = options.get("start_delay"), max((int(step["replicas"]) for step in steps), default=None)
    wanted = {
        "gpus": options.get("gpus") or most,
        "model": options.get("model"),
        # The others come when the load is so far: times count from its beginning.
        "replicas": [dict(steps[0])] if steps else None,
        "start_delay_s": None if delay is None else as_duration_s(delay, "start_delay"),
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _demo_options(options: Mapping[str, Any]) -> dict[str, Any]:
    chosen = dict(demo.OPTIONS)
    given = [name for name in (*LOAD_WAYS, *LOAD_STOPS) if options.get(name) is not None]
    if wants_search(options):
        # The SLO is the user's own, or the demonstration's: the levels follow from it.
        chosen = {"adaptive": True, **{name: chosen[name] for name in ("users", "slo")}}
    if any(name in LOAD_WAYS for name in given):
        chosen.pop("concurrencies", None)
    if any(name in given for name in (*LOAD_STOPS, "stages", "profile", "load", "arrivals", "plan")):
        chosen.pop("duration", None)
    if any(name in LOAD_WAYS and name != "concurrencies" for name in given):
        # Users are requests in flight: a load by rates cannot be asked for them, unless the user insists.
        chosen.pop("users")
    return {**chosen, **options}
