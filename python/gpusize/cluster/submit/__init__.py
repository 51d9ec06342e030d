"""Workloads into a cluster: templates, names, rounds and rates, every attempt a row; and out of it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusize.base.lazy import lazily

if TYPE_CHECKING:
    from gpusize.cluster.submit.clean import Cleaned, clean_run
    from gpusize.cluster.submit.options import SubmitOptions
    from gpusize.cluster.submit.submit import Submitted, submit_workloads

__all__ = ["Cleaned", "SubmitOptions", "Submitted", "clean_run", "submit_workloads"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "Cleaned": "cluster.submit.clean",
        "SubmitOptions": "cluster.submit.options",
        "Submitted": "cluster.submit.submit",
        "clean_run": "cluster.submit.clean",
        "submit_workloads": "cluster.submit.submit",
    },
)
