"""How far the workloads have come, by what has been stamped: what ``--until`` waits for and the live line shows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpusize.cluster.watch.belonging import Belonging

__all__ = ["Progress", "Until"]

Until = Literal["ready", "completed"]

_ENDED: Final = frozenset({"succeeded", "failed", "deleted"})
_OVER: Final = frozenset({"completed", "finished", "failed", "deleted"})
_QUIET_S: Final = 2.0


class Progress:
    """Pods and workloads, and which of them are ready or have ended.

    Attributes:
        pods, ready, ended: of pods, how many were seen, are ready or have been, are over.
    """

    def __init__(self) -> None:
        self._pods: dict[str, str] = {}
        self._over: set[str] = set()
        self._last_s = time.monotonic()

    def hear(self, kind: str, uid: str, _name: str, moment: str) -> None:
        """Take a new moment into account; for `StampBook`."""
        if kind == "Pod":
            state = self._pods.get(uid, "")
            if moment in _ENDED:
                state = "gone" if moment == "deleted" and state != "ended" else "ended"
            elif moment == "ready" and not state:
                state = "ready"
            self._pods[uid] = state
        elif kind != "Event" and moment in _OVER:
            self._over.add(uid)
        else:
            return
        self._last_s = time.monotonic()

    @property
    def pods(self) -> int:
        """How many pods were seen."""
        return len(self._pods)

    def count(self, *states: str) -> int:
        """How many pods are in one of the states ``ready``, ``ended`` and ``gone``."""
        return sum(state in states for state in self._pods.values())

    def done(self, until: Until, expected: Collection[str], belonging: Belonging) -> bool:
        """Whether all expected workloads are that far, and nothing has come for two seconds.

        A workload is ready when it has pods and all that are left are ready or have ended. It is completed when its
        job is, or failed; or where no job says so, when all its pods have ended.

        Args:
            until: how far.
            expected: names of the workloads; none for those of the pods that were seen.
            belonging: which workload an object belongs to.
        """
        if time.monotonic() - self._last_s < _QUIET_S:
            return False
        states: dict[str, set[str]] = {}
        for uid, state in self._pods.items():
            name = belonging.workload(uid)
            if name is not None:
                states.setdefault(name, set()).add(state)
        over = {belonging.workload(uid) for uid in self._over}
        names = expected or states.keys()
        return bool(names) and all(name in over or _there(states.get(name, set()) - {"gone"}, until) for name in names)


def _there(states: set[str], until: Until) -> bool:
    return bool(states) and states <= ({"ready", "ended"} if until == "ready" else {"ended"})
