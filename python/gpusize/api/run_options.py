"""What ``gpusize.run`` takes beside target, rows, load and question: options by the names of the command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from gpusize.base.errors import UsageError
from gpusize.base.numeric import check_limits
from gpusize.base.units import as_duration_s
from gpusize.options.assemble import RUN_OPTIONS
from gpusize.options.kinds import complaint

if TYPE_CHECKING:
    from gpusize.analysis.slo import Slo
    from gpusize.estimate.search.terms import Adaptive
    from gpusize.measure.sweep import ProgressEvent
    from gpusize.observe.observer import Observer

__all__ = ["RunArguments", "RunOptions", "checked_options"]


class RunOptions(TypedDict, total=False):
    """Options of a run, each as the option of ``gpusize run`` with the same name; None stands for not given.

    Times are texts such as ``20ms``, or seconds. What is marked "several" is one text or a list of them.
    """

    stop_when: str | Sequence[str] | None
    """Rules that end the run, such as ``p99 ttft > 2s for 30s``; several."""
    metrics_port: int | None
    """Serve the run's own metrics for Prometheus at this port; 0: any free one."""
    metrics_address: str | None
    """Address that they are served on; 127.0.0.1."""
    push_gateway: str | None
    """Address of a Pushgateway that they are pushed to."""
    push_every: str | float | None
    """Time between pushes; 15s."""
    metrics_url: str | Sequence[str] | None
    """Pages of the server's metrics; several. None: the usual ones are tried. ``"none"``: no page is read."""
    metrics_keep: str | None
    """Regular expression of the series to keep."""
    gpu_sample: bool | None
    """Sample the GPUs of this machine; None: where the target is on it."""
    prometheus: str | None
    """Prometheus server to ask for the time range of each level."""
    prometheus_match: str | None
    """Label matchers for it, such as ``namespace="llm"``."""
    prometheus_header: str | Sequence[str] | None
    """``Name: value`` for it; several."""
    prometheus_token_env: str | None
    """Environment variable that holds the token for it."""
    prometheus_cacert: str | os.PathLike[str] | None
    """PEM file of the authorities to trust for it."""
    prometheus_insecure: bool | None
    """Accept any certificate of it."""
    sample_container: str | Sequence[str] | None
    """Containers to sample CPU and memory of; several."""
    sample_pid: str | Sequence[str] | None
    """Processes to sample, with their descendants; several."""
    sample_cgroup: str | Sequence[str] | None
    """Cgroups to sample; several."""
    sample_interval: str | float | None
    """Time between readings of these; 20ms."""
    llm_proxy: str | None
    """Where a workflow would reach its language model: its calls are timed on their way there."""
    hosts: int | None
    """Hosts that send, each of which runs ``gpusize agent``; None: this machine alone."""
    ray: str | None
    """Ray cluster that starts them, ``"auto"`` or the address of its head; None: people do."""
    listen: str | None
    """Address and port where they join; 127.0.0.1:7070."""
    token_file: str | os.PathLike[str] | None
    """File with the token that all hosts share; ``$GPUSIZE_TOKEN``."""
    hosts_ca: str | os.PathLike[str] | None
    """PEM file of the authority that the hosts' certificates are of."""
    hosts_cert: str | os.PathLike[str] | None
    """PEM file of this machine's certificate for them."""
    hosts_key: str | os.PathLike[str] | None
    """PEM file of its key."""
    records: str | None
    """``home``: all rows come home; ``remote``: they stay on the hosts, and one in 100 comes home."""
    hosts_wait: str | float | None
    """How long to wait for them; 10m."""
    replicas: str | None
    """Replicas of the simulated cluster over time, such as ``1@0s,2@30s``."""


class RunArguments(RunOptions, total=False):
    """Every keyword argument of ``gpusize.run`` but ``stop``; `gpusize.api.run.run` explains them."""

    slos: Sequence[Slo | str] | Slo | str | None
    users: float | None
    out: str | Path
    labels: Mapping[str, str] | None
    append: bool
    resume: str | Path | None
    progress: Callable[[ProgressEvent], None] | None
    observers: Sequence[Observer]
    shapes: Sequence[str]
    batch: int
    adaptive: Adaptive | bool | None


def checked_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that have a value, paths as texts.

    Raises:
        TypeError: a name that is no option.
        UsageError: a value of the wrong kind, or beyond its limits. The value, which may be a secret, is not shown.
    """
    unknown = next((name for name in given if name not in RunOptions.__annotations__), None)
    if unknown is not None:
        message = f"run() got an unexpected keyword argument '{unknown}'"
        raise TypeError(message)
    options = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in given.items()
        if value is not None
    }
    for name, value in options.items():
        wrong = complaint(RUN_OPTIONS[name], value)
        if wrong:
            raise UsageError(f"{name} {wrong}", name, "see the option of the same name in gpusize run --help")
    durations = [name for name in options if RUN_OPTIONS[name] == "duration"]
    check_limits({**options, **{name: as_duration_s(options[name], name) for name in durations}})
    return options
