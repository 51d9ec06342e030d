"""The one function that makes a run's specification, whoever asks: command line, file, study, resume, Python.

Each of them brings its target, rows and load, and all else as options under the names of the command line. What
follows from these is decided here alone: preparation of a KServe run, what is measured beside it, whether it searches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.slo import as_slos, readings
from gpusize.base.errors import UsageError
from gpusize.base.units import format_duration
from gpusize.measure.mix import server_priorities
from gpusize.measure.monitor.options import MonitorOptions
from gpusize.measure.spec import RunSpec
from gpusize.options.hosts import HOSTS_OPTIONS, hosts_of
from gpusize.options.inputs import addresses_of, target_from_options
from gpusize.options.kinds import texts_of
from gpusize.options.labels import labels_of
from gpusize.options.search import terms_of
from gpusize.targets.apis.generic import BODILESS
from gpusize.targets.apis.kserve import is_kserve
from gpusize.targets.kserve.prepare import prepare_kserve
from gpusize.targets.server import Target
from gpusize.targets.simulated.cluster import SimulatedCluster
from gpusize.targets.simulated.replicas import ReplicaSchedule, replica_steps
from gpusize.targets.workflow.target import WorkflowTarget
from gpusize.workload.dataset import Dataset

if TYPE_CHECKING:
    from gpusize.observe.metrics import KubeForward
    from gpusize.observe.observer import Observer
    from gpusize.targets.kserve.prepare import KserveRun
    from gpusize.targets.workflow.llm_proxy import LlmProxy
    from gpusize.workload.load import Load

__all__ = ["RunInputs", "reached", "refuse_simulated", "run_spec"]

_BESIDE: Final = (
    "llm_proxy", "metrics_url", "metrics_keep", "prometheus", "prometheus_match", "prometheus_header",
    "prometheus_token_env", "prometheus_cacert", "prometheus_insecure", "gpu_sample",
    "sample_container", "sample_pid", "sample_cgroup", "sample_interval",
)  # fmt: skip
_RULES: Final = ("stop_when", "metrics_port", "metrics_address", "push_gateway", "push_every")
_AGAIN: Final = (*_BESIDE, *_RULES, *HOSTS_OPTIONS)
"""Options that make the run again, beside those of target, dataset and load."""

_SIMULATED: Final = ("replicas", "start_delay")
"""Options of the simulated cluster."""


@dataclass(frozen=True)
class RunInputs:
    """What is sent, where, and how hard.

    Attributes:
        target: where to send.
        load: how hard.
        dataset: the rows; None where the load's streams bring their own, or nothing has to be sent.
        inputs: tensors for a KServe API, as ``--input`` takes them.
        cluster: the simulated cluster that the target is.
        ways: port forwards that lead to it.
        names: its addresses as the user named them, where others are sent to.
    """

    target: Target | WorkflowTarget
    load: Load
    dataset: Dataset | None = None
    inputs: Sequence[str] = ()
    cluster: SimulatedCluster | None = None
    ways: Sequence[KubeForward] = ()
    names: Sequence[str] = ()


def reached(
    options: Mapping[str, Any], stack: contextlib.ExitStack
) -> tuple[Target, Sequence[KubeForward], Sequence[str]]:
    """The server that options name, the port forwards to it, and its addresses where these are not what is sent to.

    Args:
        options: of a target, as the command line names them.
        stack: closes the port forwards.

    Raises:
        UsageError: there is no address, or an invalid one.
        EnvironmentLacks: a ``kube://`` address, and no kubectl.
    """
    from gpusize.options.observers import forwarded

    named = addresses_of(options["url"])
    urls, ways = forwarded(named, stack)
    target = target_from_options({**options, "url": urls})
    if target is None:
        raise UsageError("there is no address", "url", "give --url")
    return target, ways, named if ways else ()


@contextlib.contextmanager
def run_spec(
    sent: RunInputs,
    options: Mapping[str, Any],
    *,
    observers: Sequence[Observer] = (),
    command: Sequence[str] = (),
    resume: Path | None = None,
) -> Iterator[RunSpec]:
    """The specification of a run; what it needs, such as the LLM proxy of a server, is up while the block runs.

    Args:
        sent: what is sent where.
        options: all else, by the names of the command line: SLOs and users, the search, what ends the run, what is
            measured beside it, labels and folders. Those of target, dataset and load are not read.
        observers: what else is measured; server metrics among them take the place of the usual ones.
        command: the command line, without secrets.
        resume: a run folder to go on with.

    Raises:
        UsageError: invalid options, or nothing to send.
        TargetError: a KServe server does not answer, or lacks the model.
    """
    from gpusize.options.observers import observers_of

    steps = _replica_steps(sent.cluster, options)
    with contextlib.ExitStack() as stack:
        proxy = _proxy(sent.target, options, stack)
        ready = _prepared(sent, options)
        target, dataset = (sent.target, _rows(sent)) if ready is None else (ready.target, ready.dataset)
        if isinstance(target, Target) and ready is None:
            target = target.speaking(dataset.api)
        beside = [
            *observers_of(options, target, cluster=sent.cluster, kserve=ready, ways=sent.ways, own=observers),
            *_scaling(sent.cluster, steps),
            *([] if proxy is None else [proxy]),
            *observers,
        ]
        notes = [
            *readings(options.get("slo")),
            *target.notes(),
            *dataset.notes,
            *(note for observer in beside for note in observer.notes),
        ]
        slos = as_slos(options.get("slo"))
        gpus = sum(int(each.get("gpus") or 0) for each in target.public())
        yield RunSpec(
            target=target,
            dataset=dataset,
            load=sent.load,
            slos=slos,
            users=options.get("users"),
            out=Path(options.get("out") or "runs"),
            labels=labels_of(options.get("label")),
            append=bool(options.get("append")),
            resume=resume,
            cluster=sent.cluster,
            api=None if ready is None else ready.api,
            observers=beside,
            names=sent.names,
            command=command,
            options=_again(sent, options, ready),
            monitor=MonitorOptions.of(options),
            adaptive=terms_of(options, sent.load, slos, gpus or None),
            notes=list(dict.fromkeys(notes)),
            hosts=hosts_of(options, target, sent.load),
        )


def _replica_steps(cluster: SimulatedCluster | None, options: Mapping[str, Any]) -> list[dict[str, float]]:
    if cluster is None:
        refuse_simulated(options)
        return []
    return replica_steps({**options, "gpus": cluster.config["gpus"]})


def refuse_simulated(options: Mapping[str, Any]) -> None:
    """Refuse what belongs to a simulated cluster, beside another target.

    Raises:
        UsageError: an option of the cluster is given.
    """
    named = next((name for name in _SIMULATED if options.get(name) is not None), None)
    if named is not None:
        raise UsageError("only the simulated cluster takes it", named, "leave it out, or the target")


def _scaling(cluster: SimulatedCluster | None, steps: Sequence[Mapping[str, float]]) -> list[ReplicaSchedule]:
    """What changes a cluster's replicas while the load runs; it begins with those of the first step."""
    if cluster is None or not steps:
        return []
    first = int(steps[0]["replicas"])
    if cluster.replicas()["desired"] != first:
        cluster.scale(first)
    return [ReplicaSchedule(cluster, steps)] if len(steps) > 1 else []


def _proxy(target: Target | WorkflowTarget, options: Mapping[str, Any], stack: contextlib.ExitStack) -> LlmProxy | None:
    """What times the calls of language models; that of a workflow that is a server is up before the first request."""
    if isinstance(target, WorkflowTarget):
        return target.proxy
    if options.get("llm_proxy") is None:
        return None
    from gpusize.targets.workflow.llm_proxy import REMOTE_PORT, LlmProxy

    proxy = LlmProxy(options["llm_proxy"], port=REMOTE_PORT)
    stack.callback(proxy.stop)
    proxy.start()
    return proxy


def _prepared(sent: RunInputs, options: Mapping[str, Any]) -> KserveRun | None:
    """A KServe run, whose server is asked what its models take; None where rows are there already."""
    if not (isinstance(sent.target, Target) and is_kserve(sent.target.api)):
        if sent.inputs:
            todo = "use --dataset, or --api kserve"
            raise UsageError(f"the {sent.target.api} API takes no tensors", "input", todo)
        return None
    if sent.dataset is not None:
        return None
    shapes, batch, load = texts_of(options.get("shape")), options.get("batch") or 1, sent.load
    told = server_priorities(load)
    return prepare_kserve(sent.target, sent.inputs, shapes=shapes, batch=batch, seed=load.seed, priorities=told)


def _rows(sent: RunInputs) -> Dataset:
    """What is sent, read once; where every stream of the load brings its own, the first of these."""
    if sent.dataset is not None:
        return sent.dataset
    own = next(iter(sent.load.own_datasets().values()), None)
    if own is not None:
        return own
    if isinstance(sent.target, Target) and sent.target.method in BODILESS:
        return Dataset.from_rows([{}], key=".", source="no body")
    raise UsageError("there is nothing to send", "dataset", "give --dataset FILE, --prompt TEXT or --synthetic")


def _again(sent: RunInputs, options: Mapping[str, Any], ready: KserveRun | None) -> dict[str, Any]:
    again = {name: options[name] for name in _AGAIN if options.get(name) is not None}
    if isinstance(sent.target, WorkflowTarget):
        # It has its proxy among its own options.
        again.pop("llm_proxy", None)
    if ready is not None:
        again |= ready.options(sent.inputs, texts_of(options.get("shape")), options.get("batch") or 1)
    if sent.cluster is not None and options.get("replicas") is not None:
        again["replicas"] = options["replicas"]
    delay_s = None if sent.cluster is None else sent.cluster.config.get("start_delay_s")
    return again if not delay_s else {**again, "start_delay": format_duration(float(delay_s))}
