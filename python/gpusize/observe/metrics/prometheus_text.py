"""The Prometheus text format, read quickly again and again: the same page once a second, its series known by then.

Each line is matched by one linear pattern; what follows from a series' name and labels is worked out once and kept.
The page is hostile: its size, its lines and its series are bounded, and what is no sample is counted and passed over.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = [
    "KNOWN_NAMES",
    "MAX_PAGE_BYTES",
    "Page",
    "PageReader",
    "SeriesKey",
    "canonical_labels",
    "parse_labels",
]

SeriesKey = tuple[str, str]
"""Name of a series and its labels in canonical form."""

MAX_PAGE_BYTES: Final = 16 << 20
MAX_LINE: Final = 8192
MAX_SERIES: Final = 20_000
SMALL_PAGE: Final = 200
"""Series up to which a page is kept whole."""

KNOWN_NAMES: Final = (
    r"(nv_|vllm:|sglang:|tgi_|trtllm_|llamacpp:|lmdeploy:|DCGM_FI_|nvml_|gpusize_|kserve_|inference_pool_"
    r"|inference_extension_|llm_d_|wva_|kube_deployment_|kube_horizontalpodautoscaler_|process_cpu_seconds_total$|process_resident_memory_bytes$)"
)
"""Names that are kept of a large page, as a regular expression for the beginning of the name."""

_LINE: Final = re.compile(
    r"(?P<name>[A-Za-z_:][A-Za-z0-9_:]*+)[ \t]*+(?P<labels>\{(?:[^\"{}]|\"(?:[^\"\\]|\\.)*+\")*+\})?"
    r"[ \t]*+(?P<value>[^ \t#]++)(?P<time>[ \t]++-?[0-9.]++)?[ \t]*+(?:#.*)?\Z"
)
_LABEL: Final = re.compile(
    r"[ \t]*+(?P<name>[A-Za-z_][A-Za-z0-9_]*+)[ \t]*+=[ \t]*+\"(?P<text>(?:[^\"\\]|\\.)*+)\"[ \t]*+"
)
_TYPE: Final = re.compile(r"# TYPE (?P<name>[A-Za-z_:][A-Za-z0-9_:]*+) (?P<kind>[a-z]++)")
_ESCAPE: Final = re.compile(r"\\(.)")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_WORDS: Final = {"nan": math.nan, "+inf": math.inf, "inf": math.inf, "-inf": -math.inf}


def canonical_labels(labels: Mapping[str, str]) -> str:
    """Labels as ``k="v",k2="v2"``, sorted by name, values escaped as in the text format; empty without labels."""
    return ",".join(f'{name}="{_escaped(labels[name])}"' for name in sorted(labels))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def parse_labels(text: str) -> dict[str, str] | None:
    """Labels from ``k="v",k2="v2"``, with a trailing comma or without; None when it is not that."""
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None:
            return None if text[at:].strip() else labels
        labels[match["name"]] = _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], match["text"])
        at = match.end()
        if at < len(text):
            if text[at] != ",":
                return None
            at += 1
    return labels


def _number(text: str) -> float | None:
    if _NUMBER.fullmatch(text):
        return float(text)
    return _WORDS.get(text.lower())


@dataclass(frozen=True, slots=True)
class Page:
    """One page as read.

    Attributes:
        values: the kept series.
        series: how many the page had.
        bad_lines: lines that are neither a sample nor a comment, or belong to a series beyond the bound.
    """

    values: dict[SeriesKey, float]
    series: int
    bad_lines: int


@dataclass
class PageReader:
    """Reads one server's pages.

    Args:
        keep: regular expression for the names to keep, matched from their beginning. None: those of `KNOWN_NAMES`, and
            every name of a page of less than `SMALL_PAGE` series.

    Attributes:
        kinds: ``counter``, ``gauge``, ``histogram`` or ``summary`` by name, as the page declares.
    """

    keep: re.Pattern[str] | None = None
    kinds: dict[str, str] = field(default_factory=dict)
    _known: dict[tuple[str, str | None], tuple[SeriesKey, bool] | None] = field(default_factory=dict)

    def read(self, text: str) -> Page:
        """The kept series of a page, by name and labels. Times on the page are not used.

        Args:
            text: the page; more than `MAX_PAGE_BYTES` has to be refused before.
        """
        kept: dict[SeriesKey, float] = {}
        others: dict[SeriesKey, float] = {}
        bad = 0
        # Not splitlines: it also splits where a label's value holds one of Unicode's other line ends.
        for line in text.replace("\r\n", "\n").split("\n"):
            if not line or line[0] == "#":
                self._note_kind(line)
                continue
            match = _LINE.match(line) if len(line) <= MAX_LINE else None
            value = None if match is None else _number(match["value"])
            known = None if match is None or value is None else self._series(match["name"], match["labels"])
            if known is None or value is None:
                bad += bool(line.strip())
                continue
            (kept if known[1] else others)[known[0]] = value
        series = len(kept) + len(others)
        if self.keep is None and series < SMALL_PAGE:
            kept |= others
        return Page(kept, series, bad)

    def _note_kind(self, line: str) -> None:
        match = _TYPE.match(line)
        if match is not None and (match["name"] in self.kinds or len(self.kinds) < MAX_SERIES):
            self.kinds[match["name"]] = match["kind"]

    def _series(self, name: str, labels: str | None) -> tuple[SeriesKey, bool] | None:
        written = (name, labels)
        if written in self._known:
            return self._known[written]
        if len(self._known) >= MAX_SERIES:
            return None
        pairs = {} if labels is None else parse_labels(labels[1:-1])
        wanted = bool(self.keep.match(name)) if self.keep is not None else _is_known(name)
        found = None if pairs is None else ((name, canonical_labels(pairs)), wanted)
        self._known[written] = found
        return found


_KNOWN: Final = re.compile(KNOWN_NAMES)


def _is_known(name: str) -> bool:
    return _KNOWN.match(name) is not None
