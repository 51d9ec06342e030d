"""Shows the run's metrics to Prometheus: a page on this machine, and pushes to a Pushgateway."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from gpusize.base.clock import MACHINE, Clock
from gpusize.base.errors import EnvironmentLacks, UsageError
from gpusize.base.text import shown
from gpusize.measure.monitor.own_metrics import registry_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusize.measure.monitor.run_counts import RunTally

__all__ = ["MetricsPage", "PushGateway", "checked_gateway"]

PUSH_TIMEOUT_S: Final = 5.0


class MetricsPage:
    """Serves ``/metrics`` on a thread of its own until closed.

    Args:
        tally: what is shown.
        port: where to listen; 0 for any free port.
        host: address to listen on.

    Attributes:
        url: where the page is.

    Raises:
        EnvironmentLacks: the port cannot be had.
    """

    def __init__(self, tally: RunTally, port: int, host: str = "127.0.0.1") -> None:
        from prometheus_client import start_http_server

        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=registry_of(tally))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            where = f"--metrics-port {port}"
            raise EnvironmentLacks(
                f"cannot listen on {host}: {reason}", where, "choose another port or address"
            ) from None
        shown_host = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown_host}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def checked_gateway(url: str) -> str:
    """The address of a Pushgateway.

    Raises:
        UsageError: it is invalid.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        what = f'"{shown(url)}" is not an address of a Pushgateway'
        raise UsageError(what, "push_gateway", "write it as http://host:9091")
    return url


def _direct(
    url: str, method: str, timeout: float | None, headers: list[tuple[str, str]], data: bytes
) -> Callable[[], None]:
    """As prometheus_client's own way to push, but never through a proxy of the environment."""
    from urllib.request import ProxyHandler, Request, build_opener

    def push() -> None:
        request = Request(url, data=data, headers=dict(headers), method=method)  # noqa: S310 -- the address was checked
        with build_opener(ProxyHandler({})).open(request, timeout=timeout):
            pass

    return push


class PushGateway:
    """Pushes the run's metrics every so often, on a thread of its own, and once more when closed.

    What fails becomes one note and never ends a run.

    Args:
        tally: what is pushed.
        url: address of the gateway, without ``/metrics/job``.
        instance: value of the ``instance`` label.
        job: value of the ``job`` label.
        every_s: seconds between pushes.
        note: told of the first failure.
        clock: what the seconds between pushes are of.

    Raises:
        UsageError: an invalid address.
    """

    def __init__(
        self,
        tally: RunTally,
        url: str,
        *,
        instance: str,
        job: str = "gpusize",
        every_s: float = 15.0,
        note: Callable[[str], None] | None = None,
        clock: Clock = MACHINE,
    ) -> None:
        self._url, self._job, self._group = checked_gateway(url), job, {"instance": instance}
        self._registry = registry_of(tally)
        self._note = note
        self._failed = False
        self._clock = clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, args=(every_s,), name="push-gateway", daemon=True)
        self._thread.start()

    def _loop(self, every_s: float) -> None:
        self._clock.repeat(every_s, self._stop, self._push)
        self._push()

    def _push(self) -> None:
        from prometheus_client import push_to_gateway

        try:
            push_to_gateway(self._url, self._job, self._registry, self._group, timeout=PUSH_TIMEOUT_S, handler=_direct)
        except Exception as error:  # noqa: BLE001 - whatever a network does: it is told once, and the run goes on
            if not self._failed and self._note is not None:
                reason = getattr(error, "reason", None)
                said = str(reason if isinstance(reason, OSError) else error)
                self._note(f"the Pushgateway {shown(self._url)} takes no metrics: {shown(said, 200)}")
            self._failed = True

    def close(self) -> None:
        """Push once more and end."""
        self._stop.set()
        self._thread.join()
