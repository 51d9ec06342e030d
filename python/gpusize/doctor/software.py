"""The software that measuring needs, and what is there to measure with: GPUs, Docker."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable
from typing import Final

from gpusize.base.errors import EnvironmentLacks
from gpusize.base.text import shown
from gpusize.doctor.finding import Finding
from gpusize.observe.metrics.nvml import LocalGpus, driver_is_there
from gpusize.observe.metrics.reading import SourceFailed
from gpusize.observe.usage.find_containers import daemon_address, knock

__all__ = ["software_findings"]

DOCKER_TIMEOUT_S: Final = 3


def software_findings(
    *, gpus: Callable[[], list[str]] | None = None, ping: Callable[[], str] | None = None
) -> list[Finding]:
    """Python, the package and its extension, NVML, Docker.

    Args:
        gpus: names of this machine's GPUs; raises `SourceFailed` where there are none.
        ping: asks the Docker daemon for its version; raises when it cannot be reached.
    """
    return [_package(), _gpus(gpus or _gpu_names), _docker(ping or _docker_version)]


def _package() -> Finding:
    from gpusize import __version__
    from gpusize.engine.session import build_profile

    base = f"gpusize {__version__}, Python {platform.python_version()}, Linux {platform.release()}"
    facts = {"gpusize": __version__, "python": platform.python_version(), "kernel": platform.release()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            profile = build_profile()
    except EnvironmentLacks as error:
        return Finding("software", "gpusize", "lacks", error.what, error.todo or "", facts, prevents=True)
    slow = profile != "release"
    todo = "build it with --release: a debug build is many times slower" if slow else ""
    return Finding(
        "software", "gpusize", "warn" if slow else "ok", f"{base}, {profile} build", todo, {**facts, "build": profile}
    )


def _gpus(gpus: Callable[[], list[str]]) -> Finding:
    try:
        names = gpus()
    except SourceFailed as error:
        todo = "needed only where the target runs here and its GPUs are to be sampled"
        return Finding("software", "GPUs", "lacks", shown(str(error), 160), todo, {"gpus": []})
    listed = ", ".join(dict.fromkeys(names))
    return Finding("software", "GPUs", "ok", f"{len(names)}: {shown(listed, 160)}", "", {"gpus": names})


def _gpu_names() -> list[str]:
    if not driver_is_there():
        raise SourceFailed("no NVIDIA driver on this machine", final=True)
    import pynvml

    # Opened as the sampler does it: what it cannot use is not reported as usable.
    sampler = LocalGpus(nvml=pynvml)
    sampler.open()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        names = [pynvml.nvmlDeviceGetName(handle) for handle in handles]
    finally:
        sampler.close()
    return [name.decode() if isinstance(name, bytes) else str(name) for name in names]


def _docker(ping: Callable[[], str]) -> Finding:
    try:
        version = ping()
    except Exception as error:  # noqa: BLE001 - the client raises its own, requests' and urllib3's errors
        todo = "needed only for targets in containers of this machine"
        return Finding("software", "Docker", "lacks", f"not reachable: {shown(_root(error), 120)}", todo)
    return Finding("software", "Docker", "ok", f"version {shown(version)}", "", {"version": version})


def _root(error: BaseException) -> str:
    """The innermost reason: the outer ones wrap it in their own names."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return str(getattr(error, "strerror", None) or error)


def _docker_version() -> str:
    # The client wraps a refusal in three others and leaves its socket open.
    knock(daemon_address(), DOCKER_TIMEOUT_S)
    import docker

    client = docker.from_env(timeout=DOCKER_TIMEOUT_S)
    try:
        return str(client.version().get("Version", "unknown"))
    finally:
        client.close()
