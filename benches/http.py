"""The timing bars of plain HTTP, each beside its peer: ``python -m benches.http [--only cpu,open] [--quick]``.

Prints tables, then one ``BAR name value [lo,hi] bound ok|short`` per bar; exits with 1 when one is short, 2 when a
measurement cannot be taken. A full run is appended to benches/RESULTS.md; a quick one is a smoke test and never is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benches.lib.command import Section, run_sections
from benches.sections.cpu import cpu
from benches.sections.instructions import instructions
from benches.sections.model import model
from benches.sections.open_loop import open_loop
from benches.sections.records import records

__all__ = ["main"]

SECTIONS: dict[str, Section] = {
    "cpu": cpu,
    "instructions": instructions,
    "open": open_loop,
    "records": records,
    "model": model,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections that were asked for."""
    return run_sections("benches.http", SECTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
