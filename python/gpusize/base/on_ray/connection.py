"""A connection to a Ray cluster, where Ray is installed."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from gpusize.base.errors import EnvironmentLacks, UsageError
from gpusize.base.text import shown
from gpusize.base.urls import address_of

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["START_S", "by_value", "connected", "ray_address"]

START_S: Final = 60.0
"""How long an actor or a task may take to start: a node may have to unpack its environment first."""
CONNECT_S: Final = 5.0
INSTALL: Final = "install it: pip install 'gpusize[ray]'"


def ray_address(text: str) -> str:
    """The address of a Ray cluster: ``auto``, or ``HOST:PORT`` of its head node.

    Raises:
        UsageError: it is neither.
    """
    if text == "auto":
        return text
    if text == "local":
        todo = "leave it out, or start a cluster: ray start --head"
        raise UsageError("a cluster of this machine alone does no more than this machine", "ray", todo)
    if "://" in text:
        todo = "run gpusize on a node of the cluster, with --ray auto"
        raise UsageError("through Ray's client the nodes cannot reach this machine", "ray", todo)
    address_of(text, "ray")
    return text


def _ray() -> ModuleType:
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError:
        raise EnvironmentLacks("there is no Ray here", "ray", INSTALL) from None
    found: ModuleType = ray
    return found


@contextlib.contextmanager
def connected(asked: str) -> Iterator[ModuleType]:
    """A connection to a cluster, as the package ``ray``; one that the program has is used, and left open.

    Args:
        asked: the address.

    Raises:
        EnvironmentLacks: there is no Ray here, or no such cluster.
        UsageError: the program is connected to another one.
    """
    ray = _ray()
    if ray.is_initialized():
        theirs = ray.get_runtime_context().gcs_address
        if asked not in ("auto", theirs):
            todo = f"say ray='auto' or {theirs!r}, or call ray.shutdown() before"
            raise UsageError(f"this program is connected to the Ray cluster at {theirs}", "ray", todo)
        yield ray
        return
    address = asked if asked != "auto" else ray_address(os.environ.get("RAY_ADDRESS") or "auto")
    if address != "auto":
        _answers(ray, address)
    with _sigterm_kept():
        try:
            ray.init(address=address, log_to_driver=False, configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            todo = "gpusize runs on one of its nodes (ray start), with its token (RAY_AUTH_TOKEN) where it asks for one"
            raise EnvironmentLacks(f"no Ray cluster to join: {shown(str(error), 400)}", address, todo) from None
    try:
        with _results_apart():
            yield ray
    finally:
        # Whatever this job still has, Ray ends with it.
        ray.shutdown()


def _answers(ray: ModuleType, address: str) -> None:
    """See whether somebody is there: where nobody is, Ray tries for minutes.

    Raises:
        EnvironmentLacks: nobody is.
    """
    host, port = address_of(address, "ray")
    # Of this machine, Ray takes the address that others know it by.
    host = str(ray.util.get_node_ip_address()) if host in ("localhost", "127.0.0.1", "::1") else host
    try:
        socket.create_connection((host, port), CONNECT_S).close()
    except OSError as error:
        todo = "start it with ray start --head, and give the address that it prints"
        raise EnvironmentLacks(f"no Ray cluster answers at {host}:{port}: {error}", "ray", todo) from None


@contextlib.contextmanager
def _sigterm_kept() -> Iterator[None]:
    """Ray takes the handler of SIGTERM for itself; it is the program's."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _results_apart() -> Iterator[None]:
    """What Ray says of nodes that died goes to the standard output, amid our results, and alerts say it: not there."""
    worker = importlib.import_module("ray._private.worker")
    says = getattr(worker, "print_to_stdstream", None)
    if says is None:
        yield
        return
    setattr(worker, says.__name__, lambda *_given, **_named: None)
    try:
        yield
    finally:
        setattr(worker, says.__name__, says)


@contextlib.contextmanager
def by_value(ray: ModuleType, *ours: ModuleType) -> Iterator[None]:
    """Inside the block Ray carries what these modules define whole.

    By its name, Ray's default, a node without gpusize could not even say that it has none.
    """
    for each in ours:
        ray.cloudpickle.register_pickle_by_value(each)
    try:
        yield
    finally:
        for each in ours:
            ray.cloudpickle.unregister_pickle_by_value(each)
