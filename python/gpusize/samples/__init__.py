"""What servers and GPUs say of themselves while a run goes on, on the same clock as the records."""

from __future__ import annotations

from gpusize.samples.kube import KubeForward, resolve_kube, touched
from gpusize.samples.kube_address import is_kube
from gpusize.samples.observer import Forwards, Planned, ServerMetrics
from gpusize.samples.plan import server_metrics
from gpusize.samples.scrape import default_metrics_urls
from gpusize.samples.summarise import samples_summary, scan_samples, summarise, value_of

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
