"""Detectors over plain arrays: is a window steady, does it drift, is the target saturated.

Pure functions of numpy arrays with times in seconds. They know nothing of levels or files, so that a monitor of a
running level and the judgement of a stored one use the same.
"""

from __future__ import annotations

from gpusize.analysis.detect.blocks import Blocks, blocks_of
from gpusize.analysis.detect.drift import Drift, drift
from gpusize.analysis.detect.saturation import Growth, answered_behind, growing, plateau
from gpusize.analysis.detect.steady import Steadiness, mser, steady_from

__all__ = [
    "Blocks",
    "Drift",
    "Growth",
    "Steadiness",
    "answered_behind",
    "blocks_of",
    "drift",
    "growing",
    "mser",
    "plateau",
    "steady_from",
]
