"""Pipelines of containers: what each operator needs, measured by running it."""

from gpusize.pipeline.cleaning import Cleaned, clean
from gpusize.pipeline.definition import read_pipeline
from gpusize.pipeline.execution import Execution, MakeWatch, Watch
from gpusize.pipeline.model import Bind, Input, Operator, Output, Pipeline, Requests, Service
from gpusize.pipeline.order import in_order
from gpusize.pipeline.outcome import OperatorResult, PipelineResult, ServerResult
from gpusize.pipeline.plan import RunOptions
from gpusize.pipeline.runner import Events, run_pipeline
from gpusize.pipeline.serving import ServerOptions
from gpusize.pipeline.sizing import Sized, SizingOptions, Trial

__all__ = [
    "Bind",
    "Cleaned",
    "Events",
    "Execution",
    "Input",
    "MakeWatch",
    "Operator",
    "OperatorResult",
    "Output",
    "Pipeline",
    "PipelineResult",
    "Requests",
    "RunOptions",
    "ServerOptions",
    "ServerResult",
    "Service",
    "Sized",
    "SizingOptions",
    "Trial",
    "Watch",
    "clean",
    "in_order",
    "read_pipeline",
    "run_pipeline",
]
