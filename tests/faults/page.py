"""Writes the tables of docs/reference/faults.md from the matrix: ``python -m tests.faults.page``. A test holds the two
together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.faults import chat, http1, http2, tls
from tests.faults.http2 import FrameFault
from tests.faults.matrix import Fault
from tests.faults.tls import TlsFault

__all__ = ["PAGE", "START", "STOP", "tables"]

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "reference" / "faults.md"
START, STOP = "<!-- tables -->\n", "<!-- end of tables -->\n"

SECTIONS: Sequence[tuple[str, str, Sequence[Fault | FrameFault | TlsFault]]] = (
    ("HTTP/1.1", "test_http1.py", http1.FAULTS),
    ("Answers of a chat API", "test_http1.py", chat.FAULTS),
    ("TLS", "test_tls.py", tls.FAULTS),
    ("HTTP/2", "test_http2.py", http2.HTTP2),
    ("gRPC", "test_http2.py", http2.GRPC),
)


def tables() -> str:
    """All sections as Markdown."""
    return "\n".join(_section(*each) for each in SECTIONS)


def _section(title: str, test: str, faults: Sequence[Fault | FrameFault | TlsFault]) -> str:
    lines = [f"### {title}", "", f"{len(faults)} faults, `tests/faults/{test}`.", ""]
    return "\n".join([*lines, "| the server … | outcome |", "|---|---|", *_rows(faults), ""])


def _rows(faults: Iterable[Fault | FrameFault | TlsFault]) -> Iterable[str]:
    for fault in faults:
        outcomes = fault.outcomes if isinstance(fault, FrameFault) else {fault.outcome}
        again = ", asked again once" if not isinstance(fault, TlsFault) and fault.again else ""
        does = fault.does.replace("|", "\\|").replace("[", "\\[")
        yield f"| {does} | {' or '.join(f'`{each}`' for each in sorted(outcomes))}{again} |"


def main() -> None:
    """Put today's tables into the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    PAGE.write_text(before + START + tables() + STOP + rest.partition(STOP)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
