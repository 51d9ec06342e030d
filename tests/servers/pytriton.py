"""A real Triton Inference Server on CPU, by PyTriton, in its own virtual environment."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.servers.child import Child, ChildFailed, free_ports

__all__ = ["PyTriton"]

PROGRAM = Path(__file__).with_name("programs") / "pytriton_server.py"
TRIES = 8
"""Besides ports, PyTriton gives its processes one second to find each other, which a busy machine may not have."""


def _started(command: Sequence[str | Path], log: Path, environment: Mapping[str, str], tries: int = TRIES) -> Child:
    """Triton binds by itself, so a port that was free a moment ago may be gone: then it is tried with others."""
    ports = zip(("--http", "--grpc", "--metrics"), map(str, free_ports(3)), strict=True)
    try:
        return Child([*command, *(word for pair in ports for word in pair)], log, environment)
    except ChildFailed:
        if tries == 1:
            raise
        return _started(command, log, environment, tries - 1)


class PyTriton:
    """A running Triton; a context manager. Its models: see programs/pytriton_server.py.

    Args:
        python: the interpreter of the peer ``triton``.
        folder: an empty folder for its log.
        instances: a model ``sleep_N`` for each N.
        only: the models to serve; all when empty. Each instance is a process, so that fewer start sooner.
        restricted: whether statistics and the like answer 403 and UNAVAILABLE, as they do by default.
        prefix: words before the command, to pin it to a core for instance.
    """

    def __init__(
        self,
        python: Path,
        folder: Path,
        *,
        instances: Sequence[int] = (1,),
        only: Sequence[str] = (),
        restricted: bool = False,
        prefix: Sequence[str] = (),
    ) -> None:
        # Triton's Python stub is linked with libpython and must find that of the interpreter, not the system's.
        environment = {"LD_LIBRARY_PATH": f"{sys.base_prefix}/lib"}
        options = ["--instances", ",".join(map(str, instances)), "--only", ",".join(only)]
        options += ["--restricted"] if restricted else []
        command: list[str | Path] = [*prefix, python, PROGRAM, *options]
        self._child = _started(command, folder / "triton.log", environment)
        ports = self._child.ready
        self.http_port: int = ports["http"]
        self.grpc_port: int = ports["grpc"]
        self.metrics_port: int = ports["metrics"]

    @property
    def url(self) -> str:
        """Its HTTP address."""
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def metrics_url(self) -> str:
        """Its Prometheus text."""
        return f"http://127.0.0.1:{self.metrics_port}/metrics"

    def log(self) -> str:
        """The end of what it wrote."""
        return self._child.tail()

    def close(self) -> None:
        """End it with its processes."""
        self._child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
