"""Running containers by id or name, from Docker or anything that speaks its API; and processes that run."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpusize.base.errors import EnvironmentLacks, UsageError
from gpusize.base.text import shown

__all__ = ["RunningContainer", "check_pid", "daemon_address", "daemon_problem", "knock", "running_container"]

ANSWER_S: Final = 30
_DEFAULT: Final = "unix:///var/run/docker.sock"
_OTHERWISE: Final = "start it, set DOCKER_HOST, or name the process by --pid"


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A container that runs.

    Attributes:
        id: its full id.
        name: its name.
        image: what it was made from.
        pid: its first process, as this machine numbers it.
    """

    id: str
    name: str
    image: str
    pid: int


def running_container(named: str) -> RunningContainer:
    """The container of this id, beginning of an id, or name.

    Raises:
        UsageError: there is no such container, or it does not run.
        EnvironmentLacks: no daemon, or no permission to ask it; or its processes are not of this machine.
    """
    import docker
    from docker.utils import kwargs_from_env

    with _asking():
        client = docker.APIClient(**kwargs_from_env(), version="auto", timeout=ANSWER_S)
        try:
            told: dict[str, Any] = client.inspect_container(named)
        except docker.errors.NotFound:
            todo = "see docker ps, or give its id"
            raise UsageError("there is no such container", shown(named, 100), todo) from None
        finally:
            client.close()
    state, name = told["State"], str(told["Name"]).lstrip("/")
    if not state.get("Running") or not state.get("Pid"):
        raise UsageError(f"this container is not running: it is {state.get('Status')}", name, "start it first")
    pid = int(state["Pid"])
    if not Path(f"/proc/{pid}").is_dir():
        todo = "run gpusize on the machine of the daemon, in its pid namespace"
        raise EnvironmentLacks(f"its process {pid} is not visible from here", name, todo)
    return RunningContainer(str(told["Id"]), name, str(told["Config"].get("Image") or ""), pid)


def daemon_address() -> str:
    """Where the Docker daemon is looked for: ``DOCKER_HOST``, else the usual socket."""
    return os.environ.get("DOCKER_HOST") or _DEFAULT


def daemon_problem(problem: BaseException, otherwise: str = "start it, or set DOCKER_HOST") -> EnvironmentLacks:
    """The error for what the Docker SDK raised because the daemon cannot be talked to.

    The SDK wraps the reason in several layers, so it is found by connecting once more.

    Args:
        problem: what was raised.
        otherwise: what to do where there is no daemon.
    """
    where = daemon_address()
    try:
        knock(where)
    except PermissionError:
        todo = "run as root, or join the group that owns it (usually docker)"
        return EnvironmentLacks("no permission on the socket of the Docker daemon", where, todo)
    except (FileNotFoundError, ConnectionRefusedError):
        podman = _podman_sockets()
        todo = f"Podman's socket is there: set DOCKER_HOST=unix://{podman[0]}" if podman else otherwise
        return EnvironmentLacks("there is no Docker daemon", where, todo)
    except OSError as other:
        problem = other
    return EnvironmentLacks(f"the Docker daemon does not answer: {shown(str(problem), 160)}", where, otherwise)


def _podman_sockets() -> list[str]:
    """Where Podman's service listens by its own defaults, for root and for a user, and does so here."""
    folders = filter(None, ("/run", os.environ.get("XDG_RUNTIME_DIR")))
    sockets = [f"{folder}/podman/podman.sock" for folder in folders]
    return [each for each in sockets if Path(each).is_socket() and each not in daemon_address()]


@contextlib.contextmanager
def _asking() -> Iterator[None]:
    """Turn what the Docker SDK raises into an error that says what to do."""
    import docker
    import requests

    try:
        knock(daemon_address())
        yield
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as problem:
        raise daemon_problem(problem, _OTHERWISE) from problem


def knock(where: str, timeout_s: float = ANSWER_S) -> None:
    """Connect to a daemon's socket once, before the SDK does: it would let the socket of a failure leak.

    Args:
        where: the daemon's address; only sockets of this machine are tried.
        timeout_s: longest wait.

    Raises:
        OSError: it cannot be connected to.
    """
    if where.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as tried:
            tried.settimeout(timeout_s)
            tried.connect("/" + where.removeprefix("unix://").lstrip("/"))


def check_pid(pid: int) -> int:
    """The process, if it is there.

    Raises:
        UsageError: it is not.
    """
    if pid < 1 or not Path(f"/proc/{pid}").is_dir():
        raise UsageError(f"there is no process {pid}", "pid", "see ps")
    return pid
