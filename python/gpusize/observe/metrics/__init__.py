"""What servers and GPUs say of themselves while a run goes on, on the same clock as the records."""

from __future__ import annotations

from gpusize.observe.kubernetes.address import is_kube
from gpusize.observe.kubernetes.port_forward import KubeForward, resolve_kube, touched
from gpusize.observe.metrics.choose_sources import server_metrics
from gpusize.observe.metrics.scrape_page import default_metrics_urls
from gpusize.observe.metrics.server_metrics import Forwards, Planned, ServerMetrics
from gpusize.observe.metrics.summarise import samples_summary, summarise
from gpusize.records.samples import scan_samples, value_of

__all__ = [
    "Forwards",
    "KubeForward",
    "Planned",
    "ServerMetrics",
    "default_metrics_urls",
    "is_kube",
    "resolve_kube",
    "samples_summary",
    "scan_samples",
    "server_metrics",
    "summarise",
    "touched",
    "value_of",
]
