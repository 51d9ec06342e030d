"""Datasets: the rows to send, whatever file they come from, or made up."""

from gpusize.workload.dataset.dataset import Dataset, Row
from gpusize.workload.dataset.formats import FORMATS, KEYS
from gpusize.workload.dataset.lengths import LengthReport, corrected, length_report
from gpusize.workload.dataset.published_traces import TRACES
from gpusize.workload.dataset.row_ids import repeated_ids
from gpusize.workload.dataset.synthetic import Synthetic

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
