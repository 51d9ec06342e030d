"""Servers beside operators: Triton for models, services of Clara; started, waited for, measured and ended."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gpusize.base.errors import EnvironmentLacks
from gpusize.base.interrupt import StopSwitch
from gpusize.base.text import shown
from gpusize.base.urls import is_ok
from gpusize.containers.pipeline.container import Container
from gpusize.containers.pipeline.container_spec import RunOptions
from gpusize.containers.pipeline.execute import Running
from gpusize.containers.pipeline.execution import MakeReader
from gpusize.containers.pipeline.model import Operator, Pipeline, Service
from gpusize.containers.pipeline.outcome import ServerResult
from gpusize.containers.pipeline.server_options import (
    TRITON_PORTS,
    ServerOptions,
    models_of,
    service_container,
    triton_addresses,
    triton_container,
    uses_servers,
)
from gpusize.containers.pipeline.session import Session
from gpusize.containers.pipeline.wait import Interrupted, wait_for

__all__ = ["Servers"]

_POLL_S: Final = 0.2
_HELD_S: Final = 1.0
"""A connection that stays open for so long is one to the container; Docker's proxy may take its time to close one."""
_READY: Final = ("/v2/health/ready", "/api/health/ready")
"""Of servers of today, and of those that Clara's services run."""
_TRITON_NAMES: Final = ("trtis", "triton")


@dataclass
class _Server:
    name: str
    running: Running
    service: Service | None
    address: str
    on_host: dict[int, int]


@dataclass
class Servers:
    """The servers of one run.

    Args:
        session: the run's session.
        pipeline: what runs.
        serving: where models are served.
        options: of the containers.
        make_reader: makes what reads a container.
        command: told the ``docker run`` line of each server.
        stop: ends waiting.
    """

    session: Session
    pipeline: Pipeline
    serving: ServerOptions
    options: RunOptions
    make_reader: MakeReader
    command: Callable[[str, str], None]
    stop: StopSwitch
    _servers: list[_Server] = field(default_factory=list, init=False)
    _results: list[ServerResult] = field(default_factory=list, init=False)

    def start(self) -> None:
        """Start Triton where models need it, or ask the one that runs already.

        Raises:
            EnvironmentLacks: it does not get ready, or lacks a model; with its last words.
            Interrupted: the user asked for an end.
        """
        models = models_of(self.pipeline)
        if self.serving.starts_triton(self.pipeline):
            container = triton_container(
                self.serving,
                models,
                has_gpus=self.session.daemon.has_gpus,
                network=self.session.network or self.options.network,
                labels=self.session.labels("triton"),
            )
            self._begin("triton", container, None)
        elif models:
            self._ask(models)

    def ready_for(self, operator: Operator) -> dict[str, str]:
        """Have the servers ready that an operator needs, and those ended that it does not.

        Returns:
            Variables with their addresses.

        Raises:
            EnvironmentLacks: one does not get ready.
            Interrupted: the user asked for an end.
        """
        for server in [each for each in self._servers if each.service is not None]:
            if server.service not in operator.services:
                self._finish(server)
        for service in operator.services:
            if all(server.service != service for server in self._servers):
                container = service_container(
                    service,
                    self.serving,
                    network=self.session.network or self.options.network,
                    labels=self.session.labels(service.name),
                )
                self._begin(service.name, container, service)
        return self._addresses(operator)

    def pasted(self, container: Container, operator: Operator) -> Container:
        """The container for its ``docker run`` line: without the run's own network, unless servers are in it."""
        own = container.network == self.session.network and not uses_servers(operator)
        return replace(container, network=None) if own else container

    def close(self) -> tuple[ServerResult, ...]:
        """End all servers and return how they ran."""
        for server in list(self._servers):
            self._finish(server)
        return tuple(self._results)

    def _addresses(self, operator: Operator) -> dict[str, str]:
        on_host = (operator.network or self.options.network) == "host"
        found: dict[str, str] = {}
        if operator.models and self.serving.address is not None:
            address = self.serving.address
            found |= triton_addresses(f"{address.host}:{address.port}", self.serving.grpc_address)
        for server in self._servers:
            places = {
                port: f"127.0.0.1:{published}" if on_host else f"{server.address}:{port}"
                for port, published in server.on_host.items()
            }
            if server.service is None and operator.models:
                found |= triton_addresses(places[TRITON_PORTS[0]], places[TRITON_PORTS[1]])
            elif server.service in operator.services and server.service is not None:
                found |= {name: places[port] for name, port in server.service.connections}
        return found

    def _begin(self, name: str, container: Container, service: Service | None) -> None:
        group, path = self.session.group()
        made = replace(container, cgroup_parent=group)
        self.command(name, made.command_line(self.session.daemon.cli))
        running = Running(self.session.daemon, made, self.make_reader(name), path)
        server = _Server(name, running, service, "", {})
        self._servers.append(server)
        refused = running.start(self.stop, self.options.start_timeout_s)
        if refused is not None:
            if refused[0] == "interrupted":
                raise Interrupted
            raise self._not_ready(server, refused[1])
        seen = running.inspect()
        network = seen["NetworkSettings"]
        server.address = next((each["IPAddress"] for each in network["Networks"].values() if each["IPAddress"]), "")
        server.on_host = _published(network.get("Ports") or {}, made.ports)
        unseen = [str(port) for port in made.ports if port not in server.on_host]
        if unseen and not seen["State"]["Running"]:
            # One that has ended already has no ports either; its end is the better reason, and is told any moment.
            wait_for(running.ended, self.stop, self.options.start_timeout_s)
        elif unseen:
            why = f"its network publishes no ports ({', '.join(unseen)}), as that of the run would"
            raise self._not_ready(server, why)
        self._wait(server)

    def _wait(self, server: _Server) -> None:
        """Until it answers that it is ready, or, where it is no Triton, until it listens."""
        until = time.monotonic() + self.serving.timeout_s
        is_triton = server.service is None or any(each in server.name.casefold() for each in _TRITON_NAMES)
        while True:
            if server.running.ended.is_set():
                code = server.running.inspect()["State"]["ExitCode"]
                raise self._not_ready(server, f"it ended with exit code {code}")
            ports = list(server.on_host.values())
            # A port that Docker has published is open before anything listens behind it; it then closes at once.
            if _answers(ports[0]) if is_triton and ports else all(_listens(port) for port in ports):
                return
            if time.monotonic() >= until:
                raise self._not_ready(server, f"it was not ready within {self.serving.timeout_s:g} s")
            wait_for(server.running.ended, self.stop, _POLL_S)

    def _not_ready(self, server: _Server, why: str) -> EnvironmentLacks:
        tail = server.running.log_tail()
        last = f"its last output: {shown(tail, 600)}" if tail else "it printed nothing"
        return EnvironmentLacks(f"the server {server.name} is not ready: {why}", None, last)

    def _finish(self, server: _Server) -> None:
        running = server.running
        by_itself = running.ended.is_set()
        try:
            if not by_itself:
                running.end(self.stop)
            # One that was stopped while it was started may go on until it is removed: its end is not waited for.
            done = running.finish("completed" if by_itself else "interrupted", None)
            # A server is ended by a signal, which is no failure of it.
            done = done if by_itself else replace(done, outcome="completed", error=None)
        except EnvironmentLacks as problem:
            done = running.lost(problem)
        self._servers.remove(server)
        self._results.append(ServerResult(server.name, running.close(done)))

    def _ask(self, models: list[str]) -> None:
        address = self.serving.address
        if address is None:
            return
        base = f"{'https' if address.tls else 'http'}://{address.host}:{address.port}"
        if not is_ok(f"{base}{_READY[0]}"):
            raise EnvironmentLacks("the Triton server is not ready", base, "start it, or correct --triton-url")
        for model in models:
            if not is_ok(f"{base}/v2/models/{model}/ready"):
                raise EnvironmentLacks(f"the Triton server does not serve the model {model}", base, "load it there")


def _published(ports: dict[str, Any], wanted: tuple[int, ...]) -> dict[int, int]:
    return {port: int(ports[f"{port}/tcp"][0]["HostPort"]) for port in wanted if ports.get(f"{port}/tcp")}


def _answers(port: int) -> bool:
    return any(is_ok(f"http://127.0.0.1:{port}{path}") for path in _READY)


def _listens(port: int) -> bool:
    """Whether something in the container takes a connection: Docker's proxy alone closes it without a byte."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=_HELD_S) as connection:
        connection.settimeout(_HELD_S)
        try:
            return bool(connection.recv(1))
        except TimeoutError:
            return True
    return False
