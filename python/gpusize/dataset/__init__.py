"""Datasets: the rows to send, whatever file they come from, or made up."""

from gpusize.dataset._dataset import Dataset, Row
from gpusize.dataset._formats import FORMATS, KEYS
from gpusize.dataset._ids import repeated_ids
from gpusize.dataset._lengths import LengthReport, corrected, length_report
from gpusize.dataset._synthetic import Synthetic
from gpusize.dataset._traces import TRACES

__all__ = [
    "FORMATS",
    "KEYS",
    "TRACES",
    "Dataset",
    "LengthReport",
    "Row",
    "Synthetic",
    "corrected",
    "length_report",
    "repeated_ids",
]
