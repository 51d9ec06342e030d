"""Running containers by id or name, from Docker or anything that speaks its API; and processes that run."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpusize.errors import EnvironmentLacks, UsageError
from gpusize.textio import shown

__all__ = ["RunningContainer", "check_pid", "running_container"]

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
        raise UsageError(f"this container does not run, it is {state.get('Status')}", name, "start it first")
    pid = int(state["Pid"])
    if not Path(f"/proc/{pid}").is_dir():
        todo = "run gpusize on the machine of the daemon, in its pid namespace"
        raise EnvironmentLacks(f"its process {pid} is not to be seen from here", name, todo)
    return RunningContainer(str(told["Id"]), name, str(told["Config"].get("Image") or ""), pid)


@contextlib.contextmanager
def _asking() -> Iterator[None]:
    """Turn what the Docker SDK raises into an error that says what to do."""
    import docker
    import requests

    where = os.environ.get("DOCKER_HOST") or _DEFAULT
    try:
        _knock(where)
        yield
    except PermissionError as problem:
        todo = "run as root, or join the group that owns it (usually docker)"
        raise EnvironmentLacks("no permission on the socket of the Docker daemon", where, todo) from problem
    except (FileNotFoundError, ConnectionRefusedError) as problem:
        raise EnvironmentLacks("there is no Docker daemon", where, _OTHERWISE) from problem
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as problem:
        what = f"the Docker daemon does not answer: {shown(str(problem), 160)}"
        raise EnvironmentLacks(what, where, _OTHERWISE) from problem


def _knock(where: str) -> None:
    """Connect to a daemon's socket once: the SDK wraps the reason why that fails in several layers, and leaks it.

    Raises:
        OSError: it cannot be connected to.
    """
    if where.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as knock:
            knock.settimeout(ANSWER_S)
            knock.connect("/" + where.removeprefix("unix://").lstrip("/"))


def check_pid(pid: int) -> int:
    """The process, if it is there.

    Raises:
        UsageError: it is not.
    """
    if pid < 1 or not Path(f"/proc/{pid}").is_dir():
        raise UsageError(f"there is no process {pid}", "pid", "see ps")
    return pid
