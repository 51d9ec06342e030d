"""Pipelines of containers: what each operator needs, measured by running it."""

from gpusize.base.old_names import renamed
from gpusize.containers.pipeline.cleaning import Cleaned, clean
from gpusize.containers.pipeline.container_spec import RunOptions
from gpusize.containers.pipeline.execution import Execution, MakeReader, Reader
from gpusize.containers.pipeline.model import Bind, Input, Operator, Output, Pipeline, Requests, Service
from gpusize.containers.pipeline.order import in_order
from gpusize.containers.pipeline.outcome import OperatorResult, PipelineResult, ServerResult
from gpusize.containers.pipeline.read import read_pipeline
from gpusize.containers.pipeline.runner import Events, run_pipeline
from gpusize.containers.pipeline.server_options import ServerOptions
from gpusize.containers.pipeline.sizing import Sized, SizingOptions, Trial

__all__ = [
    "Bind",
    "Cleaned",
    "Events",
    "Execution",
    "Input",
    "MakeReader",
    "Operator",
    "OperatorResult",
    "Output",
    "Pipeline",
    "PipelineResult",
    "Reader",
    "Requests",
    "RunOptions",
    "ServerOptions",
    "ServerResult",
    "Service",
    "Sized",
    "SizingOptions",
    "Trial",
    "clean",
    "in_order",
    "read_pipeline",
    "run_pipeline",
]

__getattr__ = renamed(__name__, {"MakeWatch": "MakeReader", "Watch": "Reader"})
