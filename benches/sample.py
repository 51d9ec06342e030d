"""The sampler of resources: what it costs, how near it comes to what a program really used, and who sees a spike.

``python -m benches.sample [--only cost,truth,spike] [--quick]``; needs to make cgroups (root), and Docker. psutil comes
from ``scripts/peers.py psutil``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benches.lib.command import Section, run_sections
from benches.sections.sample_cost import cost
from benches.sections.sample_spike import spike
from benches.sections.sample_truth import truth

__all__ = ["main"]

SECTIONS: dict[str, Section] = {"cost": cost, "truth": truth, "spike": spike}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections that were asked for."""
    return run_sections("benches.sample", SECTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
