"""Datasets: the rows to send, whatever file they come from."""

from gpusize.dataset._dataset import FORMATS, KEYS, Dataset, Row

__all__ = ["FORMATS", "KEYS", "Dataset", "Row"]
