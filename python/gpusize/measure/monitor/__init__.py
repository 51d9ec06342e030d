"""What monitors a run while it goes on: rules that end it, and the run's own metrics.

It reads what the engine has counted, once a second, on the thread that drives the run; no worker waits for it.
"""

from __future__ import annotations

from gpusize.analysis.stop_cause import Stop
from gpusize.measure.monitor.judge_rules import Monitor
from gpusize.measure.monitor.options import MonitorOptions
from gpusize.measure.monitor.run_monitor import RunMonitor
from gpusize.measure.monitor.stop_rules import Rule, parse_rule, parse_rules

__all__ = ["Monitor", "MonitorOptions", "Rule", "RunMonitor", "Stop", "parse_rule", "parse_rules"]
