"""The simulated cluster as a child process that serves on loopback.

The child is a process of its own so that its CPU time is not the generator's. It says on its standard output when it is
up, takes questions on its standard input, and ends when that closes: also when this process is killed.
"""

from __future__ import annotations

import http.client
import json
import math
from typing import TYPE_CHECKING, Any, Final, Self

from gpusize.base.child_process import Child
from gpusize.base.errors import EnvironmentLacks, UsageError
from gpusize.base.given_numbers import as_whole
from gpusize.base.text import shown
from gpusize.base.units import as_duration_s
from gpusize.targets.simulated.config import config_text
from gpusize.targets.simulated.replicas import with_replicas

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpusize.targets.server import Target

__all__ = ["ClusterLateness", "SimulatedCluster"]

HOST: Final = "127.0.0.1"
ADMIN_S: Final = 30.0
"""How long an admin call waits for its answer, which does not come while a stall is on."""


class SimulatedCluster:
    """A simulated cluster that serves on loopback while the ``with`` block runs.

    Args:
        config: fields of the cluster's configuration that differ from the defaults; see docs/reference/simulate.md.
            ``replicas`` may be a text such as ``1@0s,2@30s``.
        port: where to listen; 0 for any free port.
        grpc_port: where to listen for gRPC; 0 for any free port.

    Attributes:
        url: its HTTP address, as ``http://127.0.0.1:8000``; empty before entry.
        grpc_url: its gRPC address, as ``127.0.0.1:8001``; empty before entry.

    Raises:
        UsageError: an invalid text of replicas; on entry, a configuration that does not fit.
        EnvironmentLacks: on entry, when the child does not come up; with what it said.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, *, port: int = 0, grpc_port: int = 0) -> None:
        self.config: dict[str, Any] = {"gpus": 2, "model": "simulated", **with_replicas(dict(config or {}))}
        self._port = port
        self._grpc_port = grpc_port
        self._child: Child | None = None
        self.url = ""
        self.grpc_url = ""

    def __enter__(self) -> Self:
        ports = ["--port", str(self._port), "--grpc-port", str(self._grpc_port)]
        child = Child(["gpusize", "simulate", "--json-ready", *ports, "--cluster", config_text(self.config)])
        ready = child.read()
        if ready is None:
            said = shown(child.last_words(), 500)
            raise EnvironmentLacks(f"the simulated cluster did not start: {said}", "simulate")
        self._child = child
        self.url = str(ready["url"])
        self.grpc_url = str(ready["grpc_url"])
        self.config = dict(ready["config"])
        return self

    def target(self, **settings: Any) -> Target:
        """The cluster as a target: its address, model and GPUs, and whatever ``settings`` say.

        Args:
            **settings: further arguments of ``gpusize.Target``.

        Raises:
            UsageError: settings that ``gpusize.Target`` refuses.
        """
        from gpusize.targets.server import Target

        return Target(**{"url": self.url, "model": self.config["model"], "gpus": self.config["gpus"], **settings})

    def stats(self) -> dict[str, Any]:
        """What the cluster says of itself: requests served, iterations, its own lateness; empty when it has ended."""
        if self._child is None:
            return {}
        self._child.tell("stats")
        return self._child.read() or {}

    def scale(self, replicas: int) -> dict[str, int]:
        """Ask for so many replicas from now on, between 1 and the cluster's ``gpus``.

        A new one takes requests when ``start_delay_s`` is over; one that is removed finishes what it has.

        Args:
            replicas: how many, 1 to ``gpus``.

        Returns:
            ``desired`` and ``ready`` replicas, and ``gpus``, the most there can be.

        Raises:
            UsageError: so many cannot be had, or the cluster does not run.
            EnvironmentLacks: no answer, as in a long stall.
        """
        wanted = as_whole(replicas, "replicas", 1, 2**31)
        return self._administer("POST", "replicas", {"replicas": wanted})

    def replicas(self) -> dict[str, int]:
        """Replicas that are asked for (``desired``) and take requests (``ready``), of ``gpus``.

        Raises:
            UsageError: the cluster does not run.
            EnvironmentLacks: no answer, as in a long stall.
        """
        return self._administer("GET", "replicas")

    def stall(self, duration: str | float) -> dict[str, float]:
        """Freeze the whole server from now on: nothing is computed, and nothing answered on any route.

        Args:
            duration: for how long, as ``2s`` or in seconds.

        Returns:
            ``duration_s``, and the stall's end as ``end_s`` (from the server's start) and ``end_wall_s`` (since 1970).

        Raises:
            UsageError: not above 0 or more than an hour, or the cluster does not run.
            EnvironmentLacks: no answer, as in a long stall.
        """
        return self._administer("POST", "stall", {"duration_s": as_duration_s(duration, "duration")})

    def _administer(self, method: str, what: str, content: Mapping[str, Any] | None = None) -> dict[str, Any]:
        if not self.url or self._child is None:
            raise UsageError("the simulated cluster is not running", "SimulatedCluster", "ask it within its with block")
        # No urllib: that would send it through a proxy of the environment.
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=ADMIN_S)
        try:
            connection.request(method, f"/admin/{what}", None if content is None else json.dumps(content))
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, http.client.HTTPException) as error:
            raise EnvironmentLacks(f"the simulated cluster does not answer: {error}", f"/admin/{what}") from None
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise UsageError(str(answer["error"]["message"]), what, "see docs/reference/simulate.md")
        return dict(answer)

    def __exit__(self, *_: object) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()
            child.close()


class ClusterLateness:
    """How late the cluster was with its iterations, from one look to the next."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._before = self._counts()

    def _counts(self) -> list[tuple[float, int]]:
        """Iterations that were late by no more than each bound, in seconds; the last bound is infinite."""
        buckets = self._cluster.stats().get("lateness_buckets") or []
        return [(math.inf if bound is None else float(bound), int(count)) for bound, count in buckets]

    def p99_s(self) -> float:
        """Lateness in seconds that 99 % of the iterations since the last look kept; 0 when there were none.

        Interpolated within its bucket; infinite beyond the last bound.
        """
        now = self._counts()
        earlier = dict(self._before)
        self._before = now
        since = [(bound_s, count - earlier.get(bound_s, 0)) for bound_s, count in now]
        total = since[-1][1] if since else 0
        rank = 0.99 * total
        low_s, below = 0.0, 0
        for bound_s, count in since:
            if total and count >= rank:
                # An empty bucket cannot hold the rank, so that count > below here.
                return low_s + (bound_s - low_s) * (rank - below) / (count - below)
            low_s, below = bound_s, count
        return 0.0
