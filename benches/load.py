"""The bars of the load generator beside the field's: ``python -m benches.load [--only streamed,omission] [--quick]``.

As benches.http; the other generators' environments come from ``scripts/peers.py --load``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benches.lib.command import Section, run_sections
from benches.sections.load_boundaries import boundaries
from benches.sections.load_endurance import endurance
from benches.sections.load_omission import omission
from benches.sections.load_overload import overload
from benches.sections.load_overpromise import overpromise
from benches.sections.load_processes import processes
from benches.sections.load_streamed import streamed
from benches.sections.load_throughput import throughput
from benches.sections.load_timing import timing
from benches.sections.load_workers import workers

__all__ = ["main"]

SECTIONS: dict[str, Section] = {
    "processes": processes,
    "boundaries": boundaries,
    "overload": overload,
    "omission": omission,
    "workers": workers,
    "overpromise": overpromise,
    "timing": timing,
    "throughput": throughput,
    "streamed": streamed,
    "endurance": endurance,
}
"""Cheap ones first."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections that were asked for."""
    return run_sections("benches.load", SECTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
