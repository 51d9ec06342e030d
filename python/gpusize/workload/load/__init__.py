"""How users say the load, and what becomes of it: stages, streams, traces, and the levels that they make."""

from gpusize.workload.load.grammar import parse_stages, parse_think
from gpusize.workload.load.load import ALLOWED_ERROR_SHARE, DEFAULT_CONCURRENCIES, Load, Order, Overload
from gpusize.workload.load.stages import Bursts, Process, Stage
from gpusize.workload.load.streams import Stream
from gpusize.workload.load.think import Think
from gpusize.workload.load.trace import ArrivalTrace

__all__ = [
    "ALLOWED_ERROR_SHARE",
    "DEFAULT_CONCURRENCIES",
    "ArrivalTrace",
    "Bursts",
    "Load",
    "Order",
    "Overload",
    "Process",
    "Stage",
    "Stream",
    "Think",
    "parse_stages",
    "parse_think",
]
