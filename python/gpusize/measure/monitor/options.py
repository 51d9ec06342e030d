"""From options, as the command line names them, to a run's monitor."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from gpusize.base.errors import UsageError
from gpusize.base.units import as_duration_s
from gpusize.measure.monitor.metrics_page import MetricsPage, PushGateway, checked_gateway
from gpusize.measure.monitor.run_counts import RunTally
from gpusize.measure.monitor.run_monitor import RunMonitor
from gpusize.measure.monitor.stop_rules import Rule, parse_rules

__all__ = ["MonitorOptions"]

HOST: Final = "127.0.0.1"
PUSH_EVERY_S: Final = 15.0
_MOST_PORT: Final = 65_535


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """How a run is monitored; made and checked before anything is started.

    Attributes:
        rules: what ends the run.
        port: of the metrics page, 0 for any free one; None: no page.
        address: that it listens on.
        gateway: address of a Pushgateway; None: none.
        push_every_s: seconds between pushes.
    """

    rules: tuple[Rule, ...] = ()
    port: int | None = None
    address: str = HOST
    gateway: str | None = None
    push_every_s: float = PUSH_EVERY_S

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Read and check the options.

        Args:
            options: ``stop_when`` (a text or several), ``metrics_port``, ``metrics_address``, ``push_gateway`` and
                ``push_every``, each of which may be missing.

        Raises:
            SloError: a rule that does not parse, with its column.
            UsageError: another invalid option.
        """
        texts: str | Sequence[str] = options.get("stop_when") or ()
        port, gateway, every = (options.get(name) for name in ("metrics_port", "push_gateway", "push_every"))
        if port is not None and not 0 <= port <= _MOST_PORT:
            raise UsageError(f"{port} is not a port", "metrics_port", f"give 0 to {_MOST_PORT}; 0 is any free one")
        every_s = PUSH_EVERY_S if every is None else as_duration_s(every, "push_every")
        if every_s < 1:
            raise UsageError("the metrics change once a second", "push_every", "give 1s or more")
        for name, needs in (("metrics_address", "metrics_port"), ("push_every", "push_gateway")):
            if options.get(name) is not None and options.get(needs) is None:
                todo = f"give --{needs.replace('_', '-')} as well, or leave it out"
                raise UsageError("it sets how metrics are published, and nothing publishes them", name, todo)
        return cls(
            tuple(parse_rules([texts] if isinstance(texts, str) else texts)),
            port,
            options.get("metrics_address") or HOST,
            None if gateway is None else checked_gateway(gateway),
            every_s,
        )

    def __bool__(self) -> bool:
        return bool(self.rules) or self.port is not None or self.gateway is not None

    def open(
        self,
        info: Mapping[str, str] | None = None,
        *,
        levels: int = 0,
        workers: int = 1,
        note: Callable[[str], None] | None = None,
    ) -> RunMonitor:
        """Start the page and the pushes; they end with the monitor, which is a context manager.

        Args:
            info: labels of ``gpusize_run_info``, such as run, target, api and model.
            levels: how many there are to do.
            workers: threads that send.
            note: told where the page is, and of a gateway's first failure.

        Raises:
            EnvironmentLacks: the port cannot be had.
        """
        if self.port is None and self.gateway is None:
            return RunMonitor(self.rules)
        tally = RunTally(info or {}, levels, workers)
        with contextlib.ExitStack() as started:
            closing: list[MetricsPage | PushGateway] = []
            if self.port is not None:
                page = MetricsPage(tally, self.port, self.address)
                started.callback(page.close)
                closing.append(page)
                if note is not None:
                    note(f"the run's metrics are at {page.url}")
            if self.gateway is not None:
                name = socket.gethostname()
                closing.append(PushGateway(tally, self.gateway, instance=name, every_s=self.push_every_s, note=note))
            started.pop_all()
        return RunMonitor(self.rules, tally, closing)
