"""How many GPUs a container needs, and how much memory each must have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gpusize.containers.recommend.types import MIB, Execution, Recommendation, round_up

__all__ = ["gpu_request"]

MARGIN_PERCENT: Final = 15
STEP: Final = 64 * MIB
FULL: Final = 0.85
"""Share of a GPU's memory from which on a framework may have taken it in advance."""


def gpu_request(made: Recommendation, executions: Sequence[Execution]) -> Recommendation:
    """The recommendation with its GPUs: as many as an execution held memory of, with 15 % more memory than the most.

    A GPU that nothing was held of is not needed. Memory that a framework takes in advance looks like need: it is named.
    """
    used = [[gpu for gpu in each.gpus if gpu.mem_peak_bytes] for each in executions]
    count = max((len(gpus) for gpus in used), default=0)
    if count == 0:
        return made
    every = [gpu for gpus in used for gpu in gpus]
    most = max(gpu.mem_peak_bytes or 0 for gpu in every)
    doubts = list(made.doubts)
    if any(gpu.mem_total_bytes and (gpu.mem_peak_bytes or 0) >= FULL * gpu.mem_total_bytes for gpu in every):
        doubts.append("GPU memory was nearly full: frameworks take it in advance, so that less may do")
    if any(gpu.mem_from == "whole GPU" for gpu in every):
        doubts.append("the driver reports GPU memory only for the whole GPU, all of its processes together")
    why = f"GPU: memory was held of {count}, at most {most / MIB:.0f} MiB of one; plus 15 %"
    wanted = int(round_up(-(-most * (100 + MARGIN_PERCENT) // 100), STEP))
    held = max((gpu.mem_total_bytes or 0 for gpu in every), default=0)
    return replace(
        made,
        gpu_count=count,
        # It ran on what is there: more than that cannot be needed of one GPU.
        gpu_mem_bytes=min(wanted, held) if held else wanted,
        reasons=(*made.reasons, why),
        doubts=tuple(doubts),
    )
