"""Whether scaling is told right: a real Triton at three instance counts, and data whose law is known.

``python -m benches.scaling [--only known,triton] [--quick]``; Triton's environment comes from ``make peers``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benches.lib.command import Section, run_sections
from benches.sections.scaling_known import known
from benches.sections.scaling_triton import triton

__all__ = ["main"]

SECTIONS: dict[str, Section] = {"known": known, "triton": triton}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections that were asked for."""
    return run_sections("benches.scaling", SECTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
