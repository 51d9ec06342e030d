"""The run's own metrics as Prometheus reads them: names, units and help texts. prometheus-client writes the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from gpusize.analysis.delivery.intended import rate_at
from gpusize.measure.monitor.run_counts import HISTOGRAMS, RunTally, View
from gpusize.records.schema import OUTCOMES

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

__all__ = ["NAMES", "registry_of"]

P: Final = "gpusize_run_"

NAMES: Final = (
    *(f"{P}{name}" for name in ("info", "finished", "stopped", "level", "levels", "workers")),
    *(f"{P}{name}" for name in ("target_requests_per_second", "target_concurrency")),
    *(f"{P}{name}" for name in ("level_elapsed_seconds", "level_duration_seconds")),
    *(f"{P}requests_{name}" for name in ("due_total", "sent_total", "completed_total", "in_flight", "waiting")),
    *(f"{P}{name}" for name in ("requests_shed_total", "connections", "connects_total")),
    *(f"{P}{name}" for name in ("generator_cpu_seconds_total", "generator_cpu_ratio")),
    *(f"{P}{name}_seconds" for name in HISTOGRAMS),
)
"""Every metric; a histogram has the usual endings besides."""


def registry_of(tally: RunTally) -> CollectorRegistry:
    """A registry of the run's metrics alone, read from the tally whenever somebody asks."""
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(tally))
    return registry


class _Collector:
    def __init__(self, tally: RunTally) -> None:
        self._tally = tally

    def collect(self) -> Iterable[Metric]:
        view = self._tally.view()
        yield from self._state(view)
        yield from _counters(view)
        yield from _gauges(view)
        yield from _histograms(view)

    def describe(self) -> Iterable[Metric]:
        """Nothing to compare with: it is alone in its registry."""
        return ()

    def _state(self, view: View) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily

        yield InfoMetricFamily(f"{P[:-1]}", "What is being measured", value=dict(self._tally.info))
        yield GaugeMetricFamily(f"{P}finished", "Whether the run is over", value=float(view.finished))
        stopped = GaugeMetricFamily(
            f"{P}stopped", "Whether a rule has ended the run, and of which kind", labels=["reason"]
        )
        for reason in ("slo", "errors", "saturation"):
            stopped.add_metric([reason], float(view.stopped == reason))
        yield stopped
        yield GaugeMetricFamily(f"{P}level", "Number of the running level or stage, from 1", value=view.level)
        yield GaugeMetricFamily(f"{P}levels", "Levels or stages of the run", value=self._tally.levels)
        yield GaugeMetricFamily(f"{P}workers", "Threads that send", value=self._tally.workers)


def _counters(view: View) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    yield CounterMetricFamily(f"{P}requests_due", "Requests that the schedule wanted sent", value=view.counts["due"])
    yield CounterMetricFamily(f"{P}requests_sent", "Requests that were written", value=view.counts["sent"])
    done = CounterMetricFamily(f"{P}requests_completed", "Requests that have ended, by outcome", labels=["outcome"])
    # All from the start: a rate over a series that appears with its first error misses that error.
    for outcome in OUTCOMES:
        done.add_metric([outcome], view.outcomes.get(outcome, 0))
    yield done
    shed = view.outcomes.get("shed", 0)
    yield CounterMetricFamily(f"{P}requests_shed", "Requests given up because the queue was full", value=shed)
    yield CounterMetricFamily(f"{P}connects", "Connections that were opened", value=view.counts["connects"])
    yield CounterMetricFamily(f"{P}generator_cpu_seconds", "CPU time of the threads that send", value=view.cpu_s)


def _gauges(view: View) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    gauges = (
        ("requests_in_flight", "Requests on their way: due, not ended and not waiting", view.now.get("in_flight")),
        ("requests_waiting", "Requests due that wait for a connection", view.now.get("waiting")),
        ("connections", "Connections that are open", view.now.get("connections")),
        ("generator_cpu_ratio", "Share of its cores that the generator uses, in the last second", view.cpu_share),
        ("target_requests_per_second", "Rate that is asked for at this moment", _target_rate(view)),
        ("target_concurrency", "Requests in flight that are asked for", view.setting.get("concurrency")),
        ("level_elapsed_seconds", "Time since the running level began", view.elapsed_s),
        ("level_duration_seconds", "Time that the running level is to take", view.setting.get("duration_s")),
    )
    for name, text, value in gauges:
        if value is not None:
            yield GaugeMetricFamily(f"{P}{name}", text, value=float(value))


def _target_rate(view: View) -> float | None:
    """The rate that is asked for now: on a ramp, in a burst or between two, of all streams together."""
    found = rate_at(view.setting, view.elapsed_s)
    return None if found is None else float(found)


def _histograms(view: View) -> Iterator[Metric]:
    from prometheus_client.core import HistogramMetricFamily

    for name, text in HISTOGRAMS.items():
        found = view.histograms[name]
        buckets = [(_bound(bound_s), float(count)) for bound_s, count in found.cumulative()]
        yield HistogramMetricFamily(f"{P}{name}_seconds", text, buckets=buckets, sum_value=found.sum_s)


def _bound(bound_s: float) -> str:
    return "+Inf" if bound_s == float("inf") else repr(bound_s)
