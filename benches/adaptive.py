"""The search for the edge in real time: ``python -m benches.adaptive [--quick]``, some minutes on a quiet machine.

As benches.http. Whether the search's interval keeps its word is ``python -m benches.search``, in virtual time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benches.lib.command import run_sections
from benches.sections.adaptive import adaptive

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    return run_sections("benches.adaptive", {"adaptive": adaptive}, arguments)


if __name__ == "__main__":
    sys.exit(main())
