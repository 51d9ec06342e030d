"""The bars of the APIs, each beside its peer in one run: ``python -m benches.apis [--only sse,truth] [--quick]``.

As benches.http; the peers' environments come from ``make peers``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benches.lib.command import Section, run_sections
from benches.sections.body import body
from benches.sections.clients import clients
from benches.sections.grpc import grpc
from benches.sections.http2 import http2
from benches.sections.llama import llama
from benches.sections.sse import sse
from benches.sections.triton import triton
from benches.sections.truth import truth

__all__ = ["main"]

SECTIONS: dict[str, Section] = {
    "sse": sse,
    "http2": http2,
    "grpc": grpc,
    "body": body,
    "truth": truth,
    "clients": clients,
    "triton": triton,
    "llama": llama,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections that were asked for."""
    return run_sections("benches.apis", SECTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
