"""What became of the sources of samples over a whole run: how often each was read, and how many readings were lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["lost_text", "sources_of"]

_COUNTS: Final = ("readings", "failures", "missed")


def sources_of(levels: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each source of one run with its counts.

    Args:
        levels: the contents of ``level.json`` of the run, by visit. Their ``sampling`` counts from the start of the
            process that measured them, so that the counts of a run that was resumed begin anew.

    Returns:
        By source, in the order in which they appear: ``source``, ``readings`` had, ``failures``, ``missed`` (due times
        that passed while a reading went on), ``lost`` (both together) and ``last_failure``.
    """
    before: dict[str, dict[str, int]] = {}
    last: dict[str, Mapping[str, Any]] = {}
    said: dict[str, str | None] = {}
    for level in levels:
        for told in level.get("sampling") or ():
            name, known = str(told["source"]), last.get(str(told["source"]))
            base = before.setdefault(name, dict.fromkeys(_COUNTS, 0))
            if known is not None and any(told[count] < known[count] for count in _COUNTS):
                before[name] = {count: base[count] + known[count] for count in _COUNTS}
            last[name] = told
            said[name] = told.get("last_failure") or said.get(name)
    found = []
    for name, told in last.items():
        counts = {count: before[name][count] + int(told[count]) for count in _COUNTS}
        lost = counts["failures"] + counts["missed"]
        found.append({"source": name, **counts, "lost": lost, "last_failure": said[name]})
    return found


def lost_text(source: Mapping[str, Any]) -> str | None:
    """One sentence on what a source has lost; None where that is nothing."""
    if not source["lost"]:
        return None
    why = f", the last with: {source['last_failure']}" if source["last_failure"] else ", as earlier ones took too long"
    due = source["readings"] + source["lost"]
    return f"{source['source']}: {source['lost']} of {due} readings were lost{why}"
