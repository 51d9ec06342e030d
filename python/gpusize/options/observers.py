"""From options to what is measured beside the load, and to the ways that lead into a Kubernetes cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.secrets import parse_header
from gpusize.base.units import as_duration_s
from gpusize.observe.machine import MachineObserver
from gpusize.observe.metrics import Forwards, ServerMetrics, is_kube, resolve_kube, server_metrics
from gpusize.observe.metrics.trust import prometheus_trust
from gpusize.options.kinds import texts_of
from gpusize.targets.server import Target
from gpusize.targets.server_checks import checked_headers

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Mapping, Sequence

    from gpusize.observe.metrics import KubeForward
    from gpusize.observe.observer import Observer
    from gpusize.targets.kserve.prepare import KserveRun
    from gpusize.targets.simulated.cluster import SimulatedCluster
    from gpusize.targets.workflow.target import WorkflowTarget

__all__ = ["forwarded", "observers_of", "prometheus_headers"]

_METRICS: Final = ("metrics_url", "metrics_keep", "gpu_sample", "prometheus")
"""Options of the server metrics that gpusize makes."""


def forwarded(urls: Sequence[str], stack: contextlib.ExitStack) -> tuple[list[str], list[KubeForward]]:
    """The addresses to send to; ``kube://`` ones by ``kubectl port-forward``, which is up until the stack closes.

    Raises:
        UsageError: an invalid ``kube://`` address.
        EnvironmentLacks: there is no kubectl.
        TargetError: the service cannot be reached.
    """
    reached, ways = [], []
    for url in urls:
        if is_kube(url):
            local, way = resolve_kube(url)
            stack.enter_context(way)
            reached.append(local)
            ways.append(way)
        else:
            reached.append(url)
    return reached, ways


def observers_of(
    options: Mapping[str, Any],
    target: Target | WorkflowTarget,
    *,
    cluster: SimulatedCluster | None = None,
    kserve: KserveRun | None = None,
    ways: Sequence[KubeForward] = (),
    own: Sequence[Observer] = (),
) -> list[Observer]:
    """What watches a run: ways into a cluster first, then the server's metrics, statistics, this machine and its GPUs.

    Args:
        options: ``metrics_url``, ``metrics_keep``, ``gpu_sample``, ``prometheus``, ``prometheus_match``,
            ``prometheus_header``, ``prometheus_token_env``, ``prometheus_cacert``, ``prometheus_insecure``,
            ``sample_container``, ``sample_pid``, ``sample_cgroup`` and ``sample_interval``, as
            the command line names them.
        target: what the load is sent to.
        cluster: the simulated cluster behind it.
        kserve: its models, where it speaks KServe.
        ways: port forwards that the target itself needs.
        own: observers of the user's; server metrics among them take the place of the usual ones.

    Raises:
        UsageError: an invalid address, pattern or header; or server metrics are asked for twice.
        EnvironmentLacks: a ``kube://`` address, and no kubectl.
    """
    metrics, more = _metrics(options, target, cluster, kserve) if not _has_metrics(own, options) else (None, [])
    all_ways = [*ways, *more]
    forwards = [Forwards(all_ways)] if all_ways else []
    machine = [] if any(isinstance(each, MachineObserver) for each in own) else [MachineObserver()]
    return [*forwards, *([] if metrics is None else [metrics]), *machine, *_resources(options)]


def _has_metrics(own: Sequence[Observer], options: Mapping[str, Any]) -> bool:
    """Whether the user brought server metrics of their own: two would write the same files."""
    if not any(isinstance(each, ServerMetrics) for each in own):
        return False
    named = next((name for name in _METRICS if options.get(name)), None)
    if named is not None:
        todo = f"leave {named} out, or the observer"
        raise UsageError("server metrics are asked for by an option and by an observer", named, todo)
    return True


def _metrics(
    options: Mapping[str, Any],
    target: Target | WorkflowTarget,
    cluster: SimulatedCluster | None,
    kserve: KserveRun | None,
) -> tuple[ServerMetrics, list[KubeForward]]:
    """What samples the server and its GPUs, and the port forwards that it needs."""
    simulated = None if cluster is None else cluster.config
    server = isinstance(target, Target)
    return server_metrics(
        [{**each, "simulated": simulated} for each in target.public()] if server else [],
        metrics_urls=texts_of(options.get("metrics_url")),
        keep=options.get("metrics_keep"),
        gpu_sample=options.get("gpu_sample"),
        prometheus=options.get("prometheus"),
        prometheus_match=options.get("prometheus_match"),
        prometheus_headers=prometheus_headers(options),
        prometheus_verify=prometheus_trust(
            options.get("prometheus_cacert"), insecure=bool(options.get("prometheus_insecure"))
        ),
        statistics=[] if kserve is None else _statistics(kserve),
        verify=not target.insecure and (target.cacert or True) if isinstance(target, Target) else True,
    )


def prometheus_headers(options: Mapping[str, Any]) -> dict[str, str]:
    """Its headers, the token among them.

    Raises:
        UsageError: a header that cannot be sent, or an option for a Prometheus that nobody has named.
    """
    of_it = ("header", "token_env", "cacert", "insecure", "match")
    alone = next((name for name in of_it if options.get(f"prometheus_{name}")), None)
    if alone is not None and options.get("prometheus") is None:
        raise UsageError("it belongs to a Prometheus server", f"prometheus_{alone}", "name the server by --prometheus")
    given = dict(parse_header(line) for line in texts_of(options.get("prometheus_header")))
    variable = options.get("prometheus_token_env")
    try:
        headers = checked_headers(given, variable)
    except UsageError as problem:
        raise UsageError(problem.what, f"prometheus {problem.where}", problem.todo) from None
    return headers if variable is None else {**headers, "Authorization": f"Bearer env:{variable}"}


def _resources(options: Mapping[str, Any]) -> list[Observer]:
    """The sampler of containers, processes and cgroups, where some are named."""
    from gpusize.observe.usage.observer import Beside, ResourceObserver
    from gpusize.observe.usage.sampler import INTERVAL_S

    kinds = ("container", "pid", "cgroup")
    beside = [Beside(kind, named) for kind in kinds for named in texts_of(options.get(f"sample_{kind}"))]
    interval = options.get("sample_interval")
    interval_s = INTERVAL_S if interval is None else as_duration_s(interval, "sample_interval")
    return [ResourceObserver(beside, interval_s)] if beside else []


def _statistics(kserve: KserveRun) -> list[tuple[str, Any]]:
    from gpusize.targets.kserve.stats import KserveStats

    return [(kserve.client.where, KserveStats(kserve.client, [model.name for model in kserve.models]))]
