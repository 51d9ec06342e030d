"""KAI's scale tests: one time for each test, as its ``kwok_scale_test.json`` has it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["go_duration_s", "looks_like_kai", "test_rows"]

_TERM: Final = re.compile(r"(\d+(?:\.\d+)?)(h|ms|us|µs|ns|m|s)")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def go_duration_s(text: str) -> float | None:
    """Seconds of a duration as Go writes it, such as ``6m36.7s``; None where it is none."""
    if not text or "".join(found[0] for found in _TERM.finditer(text)) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _TERM.findall(text))


def looks_like_kai(document: object) -> bool:
    """Whether a document is one of KAI's: tests with their details, bare or under ``results``."""
    found = document.get("results", document) if isinstance(document, dict) else None
    tests = found.get("tests") if isinstance(found, dict) else None
    return isinstance(tests, list) and all(isinstance(each, dict) and "test_name" in each for each in tests)


def test_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Figures of each test: its times in seconds, and its counts."""
    made = []
    for test in document.get("results", document)["tests"]:
        details = test.get("details")
        for key, value in details.items() if isinstance(details, dict) else ():
            found = go_duration_s(value) if isinstance(value, str) else value
            if isinstance(found, int | float) and not isinstance(found, bool):
                timed = isinstance(value, str) or "(seconds)" in key
                row = {"source": "KAI", "test": str(test["test_name"]), "phase": str(test.get("status") or "")}
                figure = key.replace("(seconds)", "").strip()
                made.append({**row, "figure": figure, "value": float(found), "unit": "s" if timed else "count"})
    return made


test_rows.__test__ = False  # type: ignore[attr-defined]
