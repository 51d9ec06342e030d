"""What runs on each node of a Ray cluster: an agent within an actor.

Ray carries this class whole, not by its name, and `about` with it: it has to say clearly that gpusize is missing where
it is missing. So everything else of ours is imported within its methods.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from gpusize.base.on_ray.about import about

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["GpusizeAgent"]


class GpusizeAgent:
    """One host of a run. Its name is what ``ray list actors`` and ``ps`` show."""

    def __init__(self) -> None:
        self._kept: dict[str, queue.SimpleQueue[Sequence[Any]]] = {}

    def about(self) -> dict[str, Any]:
        """What this node has of ours."""
        return about("gpusize.engine.hosts.agent")

    def keep(self, key: str, strings: Sequence[Any]) -> None:
        """Take what the head shares; it lies in this node's object store."""
        self._box(key).put(strings)

    def join(
        self, head: tuple[str, int], token: bytes, node: str, patience_s: float, *, checks: bool
    ) -> dict[str, Any] | None:
        """Join the head and do what it says; None when it had no more to do, else what was wrong."""
        from gpusize.base.errors import GpusizeError
        from gpusize.engine.hosts import agent
        from gpusize.engine.hosts.access import Access
        from gpusize.engine.limits import allow_most_files

        try:
            allow_most_files()
            facts = {**self._facts(checks=checks), "ray_node": node}
            agent.join(head, Access(token), facts, patience_s=patience_s, fetch=self._fetch)
        except GpusizeError as error:
            return {"type": type(error).__name__, "what": error.what, "where": error.where, "todo": error.todo}
        return None

    def _facts(self, *, checks: bool) -> dict[str, Any]:
        """What the head is to know of this machine; checks take some seconds, in a process of their own."""
        from gpusize.base.host import host_facts

        found: dict[str, Any] = dict(host_facts())
        if not checks:
            return found
        command = [sys.executable, "-m", "gpusize.doctor.joining"]
        try:
            said = subprocess.run(command, capture_output=True, text=True, timeout=60.0, check=True)
            return {**found, **json.loads(said.stdout)}
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            lacks = {"group": "software", "name": "doctor", "verdict": "lacks", "value": str(error)[:200]}
            return {**found, "findings": [lacks]}

    def _box(self, key: str) -> queue.SimpleQueue[Sequence[Any]]:
        # Two threads may ask for it at once: setdefault is one step.
        return self._kept.setdefault(key, queue.SimpleQueue())

    def _fetch(self, key: str) -> Sequence[Any]:
        """What the head has shared under this key, once: then the store may forget it."""
        from gpusize.base.errors import EnvironmentLacks

        try:
            return self._box(key).get(timeout=100.0)
        except queue.Empty:
            todo = "is Ray's object store full, or its port between the nodes closed?"
            raise EnvironmentLacks("the rows did not come through Ray's object store", None, todo) from None
        finally:
            self._kept.pop(key, None)
