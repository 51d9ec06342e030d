"""What watches a run while it goes on: rules that end it, and the run's own metrics.

It reads what the engine has counted, once a second, on the thread that drives the run; no worker waits for it.
"""

from __future__ import annotations

from gpusize.analysis.stop_cause import Stop
from gpusize.measure.monitor.judge_rules import Monitor
from gpusize.measure.monitor.options import WatchOptions
from gpusize.measure.monitor.stop_rules import Rule, parse_rule, parse_rules
from gpusize.measure.monitor.watch import RunWatch

__all__ = ["Monitor", "Rule", "RunWatch", "Stop", "WatchOptions", "parse_rule", "parse_rules"]
