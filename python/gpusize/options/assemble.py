"""From options, wherever they were written, to a run; with a simulated cluster behind it when no target is named."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.slo import as_slos
from gpusize.base.errors import UsageError
from gpusize.base.numeric import check_limits
from gpusize.base.text import shown
from gpusize.base.units import as_duration_s
from gpusize.measure.mix import told_priorities
from gpusize.measure.monitor.options import WatchOptions
from gpusize.measure.spec import RunSpec
from gpusize.options import (
    INPUT_OPTIONS,
    LOAD_OPTIONS,
    LOAD_STOPS,
    LOAD_WAYS,
    Kind,
    addresses_of,
    dataset_from_options,
    demo,
    load_config,
    load_from_options,
    over,
    target_from_options,
)
from gpusize.options.search import SEARCH_OPTIONS, over_levels, refuse_levels, terms_from_options, wants_search
from gpusize.targets.kserve.prepare import is_kserve, prepare_kserve
from gpusize.targets.simulated.cluster import SimulatedCluster
from gpusize.targets.simulated.replicas import ReplicaSchedule, replica_steps
from gpusize.targets.workflow.target import WorkflowTarget, workflow_from_options
from gpusize.workload.dataset import Dataset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpusize.observe.metrics import KubeForward
    from gpusize.observe.observer import Observer
    from gpusize.targets.kserve.prepare import KserveRun
    from gpusize.targets.server import Target
    from gpusize.targets.workflow.llm_proxy import LlmProxy
    from gpusize.workload.load import Load

__all__ = ["RUN_OPTIONS", "Assembled", "assembled", "labels_of", "read_options"]

RUN_OPTIONS: Final[dict[str, Kind]] = {
    **INPUT_OPTIONS,
    "workflow": "text",
    "command": "text",
    "llm_proxy": "text",
    "replicas": "text",
    "start_delay": "duration",
    "stop_when": "texts",
    "metrics_port": "whole",
    "metrics_address": "text",
    "push_gateway": "text",
    "push_every": "duration",
    "metrics_url": "texts",
    "metrics_keep": "text",
    "prometheus": "text",
    "prometheus_match": "text",
    "prometheus_header": "texts",
    "prometheus_token_env": "text",
    "prometheus_cacert": "text",
    "prometheus_insecure": "flag",
    "gpu_sample": "flag",
    "sample_container": "texts",
    "sample_pid": "texts",
    "sample_cgroup": "texts",
    "sample_interval": "duration",
    **SEARCH_OPTIONS,
    "users": "number",
    "slo": "texts",
    "out": "text",
    "label": "pairs",
    "append": "flag",
    "strict": "flag",
    "plots": "flag",
    "quiet": "flag",
    "json": "flag",
}
"""Every option of ``gpusize run`` that a file may hold, with the kind of its value."""

_WATCHED: Final = (
    "llm_proxy", "metrics_url", "metrics_keep", "prometheus", "prometheus_match", "prometheus_header",
    "prometheus_token_env", "prometheus_cacert", "prometheus_insecure", "gpu_sample",
    "sample_container", "sample_pid", "sample_cgroup", "sample_interval",
)  # fmt: skip
_ROWS: Final = ("prompt", "dataset", "synthetic", "input")
"""Options that say what is sent: one on the command line takes the place of any in a file."""

_SIMULATED: Final = ("replicas", "start_delay")
"""Options of the simulated cluster, which a run without an address starts."""
_RULES: Final = ("stop_when", "metrics_port", "metrics_address", "push_gateway", "push_every")
_AGAIN: Final = (*_WATCHED, *_RULES)
"""Options that make the run again, beside those of target, dataset and load."""


@dataclass(frozen=True)
class _Behind:
    """What is known of a target beyond its options.

    Attributes:
        cluster: the simulated cluster that it is.
        kserve: its models.
        proxy: what times its calls of language models.
        ways: port forwards that lead to it.
        names: its addresses as the user named them, where others are sent to.
        again: further options that make the run again.
        scaling: what changes its replicas while the load runs.
    """

    cluster: SimulatedCluster | None = None
    kserve: KserveRun | None = None
    proxy: LlmProxy | None = None
    ways: Sequence[KubeForward] = ()
    names: Sequence[str] = ()
    again: Mapping[str, Any] = field(default_factory=dict)
    scaling: Sequence[ReplicaSchedule] = ()


class Assembled:
    """A run ready to go: the specification and what the user should know before it."""

    def __init__(self, spec: RunSpec, notes: Sequence[str]) -> None:
        self.spec = spec
        self.notes = list(notes)


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
        UsageError: there is no run to be resumed; or the file is the sizing calculator's, which describes a workflow
            that is not run from it, and nothing says what to measure instead.
    """
    mine = {name: value for name, value in given.items() if value is not None}
    options: dict[str, Any] = {}
    notes: list[str] = []
    if resume is not None:
        if not (resume / "run.json").is_file():
            raise UsageError("there is no run to be resumed", str(resume), "name the folder that holds its run.json")
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
    check_limits(_in_seconds(found))
    return found, notes


def _in_seconds(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, times as seconds."""
    times = [name for name, kind in RUN_OPTIONS.items() if kind == "duration" and options.get(name) is not None]
    return {**options, **{name: as_duration_s(options[name], name) for name in times}}


@contextlib.contextmanager
def assembled(
    options: Mapping[str, Any], *, command: Sequence[str] = (), resume: Path | None = None
) -> Iterator[Assembled]:
    """A run from options; without an address a simulated cluster is up while the block runs.

    Raises:
        UsageError: options that cannot be meant, or nothing to send.
        DatasetError: the dataset cannot be read.
        EnvironmentLacks: the simulated cluster cannot be started.
    """
    refuse_levels(options)
    workflow = workflow_from_options(options)
    if workflow is not None or options.get("url") is not None:
        _refuse_simulated(options)
    if workflow is not None:
        load = load_from_options(options)
        yield _assemble(workflow, _rows(options, load), load, options, command, resume, _Behind())
        return
    if options.get("url") is not None:
        with contextlib.ExitStack() as stack:
            yield _against_server(options, command, resume, stack)
        return
    chosen = _demo_options(options)
    # What cannot be meant is refused before the cluster is started.
    load = load_from_options(chosen)
    dataset = dataset_from_options(chosen) or demo.prompts()
    steps = replica_steps(options)
    with SimulatedCluster({**demo.CLUSTER, **_cluster_options(options, steps)}) as cluster:
        served = {"url": cluster.url, "model": cluster.config["model"], "gpus": cluster.config["gpus"]}
        target = _target({**chosen, **served})
        scaling = [ReplicaSchedule(cluster, steps)] if len(steps) > 1 else []
        again = {name: options[name] for name in _SIMULATED if options.get(name) is not None}
        yield _assemble(target, dataset, load, chosen, command, resume, _Behind(cluster, scaling=scaling, again=again))


def _refuse_simulated(options: Mapping[str, Any]) -> None:
    named = next((name for name in _SIMULATED if options.get(name) is not None), None)
    if named is not None:
        raise UsageError("only the simulated cluster takes it", named, "leave it out, or the target")


def _against_server(
    options: Mapping[str, Any], command: Sequence[str], resume: Path | None, stack: contextlib.ExitStack
) -> Assembled:
    from gpusize.options.observers import forwarded

    named = addresses_of(options["url"])
    proxy = _proxy(options, stack)
    reached, ways = forwarded(named, stack)
    target = _target({**options, "url": reached})
    names = named if ways else ()
    load = load_from_options(options)
    if not is_kserve(target.api):
        if options.get("input") is not None:
            raise UsageError(f"the {target.api} API takes no tensors", "input", "use --dataset, or --api kserve")
        dataset = _rows(options, load, target)
        behind = _Behind(ways=ways, names=names, proxy=proxy)
        return _assemble(target.speaking(dataset.api), dataset, load, options, command, resume, behind)
    inputs, shapes, batch = _texts(options.get("input")), _texts(options.get("shape")), options.get("batch") or 1
    told = told_priorities(load)
    ready = prepare_kserve(target, inputs, shapes=shapes, batch=batch, seed=load.seed, priorities=told)
    behind = _Behind(kserve=ready, proxy=proxy, ways=ways, names=names, again=ready.options(inputs, shapes, batch))
    return _assemble(ready.target, ready.dataset, load, options, command, resume, behind)


def _target(options: Mapping[str, Any]) -> Target:
    target = target_from_options(options)
    if target is None:
        raise UsageError("there is no address", "url", "give --url")
    return target


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
    if any(name in given for name in (*LOAD_STOPS, "stages", "load", "arrivals", "plan")):
        chosen.pop("duration", None)
    if any(name in LOAD_WAYS and name != "concurrencies" for name in given):
        # Users are requests in flight: a load by rates cannot be asked for them, unless the user insists.
        chosen.pop("users")
    return {**chosen, **options}


def _rows(options: Mapping[str, Any], load: Load, target: Target | None = None) -> Dataset:
    """What is sent, read once; where every stream of the load brings its own, the first of these."""
    found = dataset_from_options(options) or next(iter(load.own_datasets().values()), None)
    if found is not None:
        return found
    if target is not None and target.method in ("GET", "HEAD", "OPTIONS", "DELETE"):
        return Dataset.from_rows([{}], key=".", source="no body")
    raise UsageError("there is nothing to send", "dataset", "give --dataset FILE, --prompt TEXT or --synthetic")


def _assemble(
    target: Target | WorkflowTarget,
    dataset: Dataset,
    load: Load,
    options: Mapping[str, Any],
    command: Sequence[str],
    resume: Path | None,
    behind: _Behind,
) -> Assembled:
    watching = _watching(options, target, behind)
    spec = RunSpec(
        target=target,
        dataset=dataset,
        load=load,
        slos=as_slos(_texts(options.get("slo"))),
        users=options.get("users"),
        out=Path(options.get("out") or "runs"),
        labels=labels_of(options.get("label")),
        append=bool(options.get("append")),
        resume=resume,
        cluster=behind.cluster,
        api=None if behind.kserve is None else behind.kserve.api,
        observers=watching,
        names=behind.names,
        command=command,
        options={**behind.again, **{name: options[name] for name in _AGAIN if options.get(name) is not None}},
        watch=WatchOptions.of(options),
        adaptive=terms_from_options(options, [str(each.get("api") or "") for each in target.public()]),
    )
    notes = [*target.notes(), *dataset.notes, *(note for observer in watching for note in observer.notes)]
    return Assembled(spec, list(dict.fromkeys(notes)))


def _watching(options: Mapping[str, Any], target: Target | WorkflowTarget, behind: _Behind) -> list[Observer]:
    """What is measured beside the load, and the proxy that times the calls of language models."""
    from gpusize.options.observers import observers_of

    watching = observers_of(options, target, cluster=behind.cluster, kserve=behind.kserve, ways=behind.ways)
    proxy = target.proxy if isinstance(target, WorkflowTarget) else behind.proxy
    return [*watching, *behind.scaling, *([] if proxy is None else [proxy])]


def _proxy(options: Mapping[str, Any], stack: contextlib.ExitStack) -> LlmProxy | None:
    """The proxy of a workflow that is a server: up before the first request."""
    if options.get("llm_proxy") is None:
        return None
    from gpusize.targets.workflow.llm_proxy import REMOTE_PORT, LlmProxy

    proxy = LlmProxy(options["llm_proxy"], port=REMOTE_PORT)
    stack.callback(proxy.stop)
    proxy.start()
    return proxy


def _texts(value: str | Sequence[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def labels_of(value: Mapping[str, Any] | str | Sequence[str] | None) -> dict[str, str]:
    """Labels from a table or from texts such as ``gpu=H200``.

    Raises:
        UsageError: a text without a key or without ``=``.
    """
    if value is None:
        return {}
    if not isinstance(value, str) and hasattr(value, "items"):
        return {str(key): str(text) for key, text in value.items()}
    labels = {}
    for each in _texts(value):
        key, equals, text = each.partition("=")
        if not equals or not key.strip():
            raise UsageError(f'"{shown(each)}" is not a label', "label", "write it as key=value")
        labels[key.strip()] = text.strip()
    return labels
