"""One line of the report, and the files of the system from which most lines come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = ["Finding", "Severity", "System"]

Severity = Literal["ok", "warn", "lacks"]
"""``warn``: results may suffer. ``lacks``: something is not there, and what needs it does not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        group: ``clock``, ``cpu``, ``limits``, ``container``, ``software`` or ``ceiling``.
        name: what was looked at.
        verdict: what it means for measuring.
        value: what was found, for people.
        todo: what to do about it; empty where there is nothing to do.
        facts: the same for programs; times in seconds, units in the names.
        prevents: whether nothing can be measured because of it.
    """

    group: str
    name: str
    verdict: Severity
    value: str
    todo: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    prevents: bool = False

    @classmethod
    def checked(cls, group: str, name: str, value: str, todo: str, facts: Mapping[str, Any], *, bad: bool) -> Finding:
        """A warning with what to do, or, where nothing is bad, a finding without."""
        return cls(group, name, "warn" if bad else "ok", value, todo if bad else "", facts)


@dataclass(frozen=True, slots=True)
class System:
    """The files in which Linux tells of itself.

    Attributes:
        root: the folder that has ``proc`` and ``sys``; another one than / for tests.
    """

    root: Path = Path("/")

    def text(self, path: str) -> str:
        """The contents of a file without blanks around them; empty where it cannot be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""

    def number(self, path: str) -> int | None:
        """A file's whole number; None where it has none."""
        text = self.text(path)
        return int(text) if text.isdigit() else None

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return (self.root / path).exists()
