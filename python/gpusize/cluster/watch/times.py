"""The times that an API server writes, as nanoseconds with their resolution."""

from __future__ import annotations

from typing import Final

from gpusize._core import kube_time as parse_time

__all__ = ["SECOND_NS", "parse_time"]

SECOND_NS: Final = 1_000_000_000
