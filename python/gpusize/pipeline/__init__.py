"""Pipelines of containers: what each operator needs, measured by running it."""

from gpusize.pipeline.definition import read_pipeline
from gpusize.pipeline.model import Bind, Input, Operator, Output, Pipeline, Requests, Service
from gpusize.pipeline.order import in_order

__all__ = [
    "Bind",
    "Input",
    "Operator",
    "Output",
    "Pipeline",
    "Requests",
    "Service",
    "in_order",
    "read_pipeline",
]
