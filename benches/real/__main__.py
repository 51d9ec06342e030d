"""Whether counts hold for real servers: told from one replica, measured with one, two and more.

``python -m benches.real [--only llama,triton] [--quick]``; ``scripts/peers.py llama llama-server triton`` makes the
servers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benches.lib.command import Section, run_sections
from benches.real.llama import llama
from benches.real.triton import triton

__all__ = ["main"]

SECTIONS: dict[str, Section] = {"llama": llama, "triton": triton}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections that were asked for."""
    return run_sections("benches.real", SECTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
