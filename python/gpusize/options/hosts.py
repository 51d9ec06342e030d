"""Options of a run that many hosts send, as what a head is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.on_ray.connection import ray_address
from gpusize.base.units import as_duration_s
from gpusize.base.urls import address_of
from gpusize.engine.hosts.access import Access, read_token
from gpusize.engine.hosts.head import LOOPBACK, WAIT_S, HostsOptions
from gpusize.engine.hosts.on_ray import RAY_LISTEN, RAY_WAIT_S
from gpusize.targets.workflow.target import WorkflowTarget

if TYPE_CHECKING:
    from gpusize.targets.server import Target
    from gpusize.workload.load import Load

__all__ = ["HOSTS_OPTIONS", "hosts_of"]

REMOTE: Final = 100
"""Of so many rows one comes home where the others stay on their host."""

SHOWN: Final = ("token_file", "hosts_ca", "hosts_cert", "hosts_key")
"""What agents that join by themselves have to show."""

HOSTS_OPTIONS: Final = ("hosts", "ray", "listen", *SHOWN, "records", "hosts_wait")


def hosts_of(options: Mapping[str, Any], target: Target | WorkflowTarget, load: Load) -> HostsOptions | None:
    """What a head is asked for; None where this machine alone sends.

    Args:
        options: by the names of the command line.
        target: what is sent to.
        load: how hard.

    Raises:
        UsageError: hosts cannot send this, or whoever reaches the address could join.
    """
    given = [name for name in HOSTS_OPTIONS if options.get(name) is not None]
    if not given:
        return None
    if "hosts" not in given:
        raise UsageError("there is no number of hosts", given[0], "add --hosts N, or leave it out")
    if isinstance(target, WorkflowTarget):
        todo = "serve it and give its address with --url, or leave --hosts out"
        raise UsageError("functions and commands run on this machine alone", "hosts", todo)
    if load.source_addresses:
        todo = "leave one of them out: each host connects from its own addresses"
        raise UsageError("source addresses are of one machine", "source_address", todo)
    one_in = _one_in(options)
    if options.get("ray") is not None:
        return _on_ray(options, one_in)
    files = {name: options.get(f"hosts_{name}") for name in ("ca", "cert", "key")}
    access = Access(
        read_token(None if options.get("token_file") is None else Path(options["token_file"])),
        **{name: None if path is None else Path(path) for name, path in files.items()},
    )
    listen = LOOPBACK if options.get("listen") is None else address_of(str(options["listen"]), "listen")
    wait = options.get("hosts_wait")
    wait_s = WAIT_S if wait is None else as_duration_s(wait, "hosts_wait")
    return HostsOptions(int(options["hosts"]), listen, access, wait_s, one_in)


def _one_in(options: Mapping[str, Any]) -> int:
    """Of how many rows one comes home."""
    where = options.get("records") or "home"
    if where not in ("home", "remote"):
        raise UsageError("rows are kept at home, or remote on the hosts", "records", "give home or remote")
    return REMOTE if where == "remote" else 1


def _on_ray(options: Mapping[str, Any], one_in: int) -> HostsOptions:
    """Of hosts that Ray starts: it hands them a token that is made for the run."""
    theirs = next((name for name in SHOWN if options.get(name) is not None), None)
    if theirs is not None:
        raise UsageError("hosts of a Ray cluster get a token from the cluster", theirs, "leave it out, or --ray")
    listen = RAY_LISTEN if options.get("listen") is None else address_of(str(options["listen"]), "listen")
    wait = options.get("hosts_wait")
    wait_s = RAY_WAIT_S if wait is None else as_duration_s(wait, "hosts_wait")
    ray = ray_address(str(options["ray"]))
    return HostsOptions(int(options["hosts"]), listen, wait_s=wait_s, one_in=one_in, ray=ray)
