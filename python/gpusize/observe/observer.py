"""What is measured beside the load: an observer is told when levels begin and end, and adds files and facts to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

__all__ = ["Observer"]


class Observer(Protocol):
    """Something that watches a run: the server's metrics, local GPUs, containers, the way to the target.

    Attributes:
        notes: what the user should know, one sentence each; grows while the run goes on.
    """

    notes: list[str]

    def start(self) -> None:
        """Begin, before the first level.

        Raises:
            TargetError: an address that the user named does not answer.
            EnvironmentLacks: this machine lacks something that the user asked for.
        """

    def boundary(self) -> None:
        """A level is about to start or has ended: take a reading now."""

    def level(self, folder: Path, start_ns: int, end_ns: int) -> dict[str, Any]:
        """A level is about to be committed: write its files, give its facts.

        Args:
            folder: the level's open folder.
            start_ns: when the level began, on the engine's clock.
            end_ns: its last record, on the same clock.

        Returns:
            Members of ``level.json``. A member ``alerts``, a list of texts, is added to the level's own.

        Raises:
            StoreError: the files cannot be written.
        """

    def stop(self) -> None:
        """End; called always, also when ``start`` failed, and safe to call twice."""
