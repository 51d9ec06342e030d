"""From what the user asked for to what is sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpusize.base.errors import EnvironmentLacks, UsageError
from gpusize.base.urls import parse_url
from gpusize.observe.kubernetes.address import is_kube
from gpusize.observe.kubernetes.port_forward import KubeForward, resolve_kube
from gpusize.observe.metrics.kserve_statistics import CounterReader, StatisticsSource
from gpusize.observe.metrics.nvml import LocalGpus, local_gpus_wanted
from gpusize.observe.metrics.prometheus_pull import PrometheusServer
from gpusize.observe.metrics.scrape_page import MetricsPage, default_metrics_urls, keep_pattern, metrics_url
from gpusize.observe.metrics.server_metrics import Planned, ServerMetrics
from gpusize.observe.metrics.trust import Verify, with_systems

__all__ = ["NONE", "server_metrics"]

NONE: Final = "none"
"""As the only metrics address: sample no page, not even a guessed one."""


def server_metrics(
    targets: Sequence[Mapping[str, Any]],
    *,
    metrics_urls: Sequence[str] = (),
    keep: str | None = None,
    gpu_sample: bool | None = None,
    prometheus: str | None = None,
    prometheus_match: str | None = None,
    prometheus_headers: Mapping[str, str] | None = None,
    prometheus_verify: Verify = True,
    statistics: Sequence[tuple[str, CounterReader]] = (),
    verify: bool | str = True,
    interval_s: float = 1.0,
) -> tuple[ServerMetrics, list[KubeForward]]:
    """The observer that samples what was asked for, and the ways into a cluster that it needs.

    Args:
        targets: per replica ``url``, ``api`` and ``simulated``, as in ``run.json``; ``url`` is the one that is sent to.
        metrics_urls: pages of metrics; ``kube://`` addresses too. None given: the usual ones are tried. ``none`` alone:
            no page at all.
        keep: regular expression for the names to keep, matched from their beginning.
        gpu_sample: sample the GPUs of this machine; None: where that makes sense.
        prometheus: address of a Prometheus server to pull from.
        prometheus_match: further label matchers for it.
        prometheus_headers: request headers for it.
        prometheus_verify: check its certificate; see `observe.metrics.trust`. It has nothing to do with the target's.
        statistics: per server a name and what reads its statistics (`targets.kserve.stats.KserveStats`): read once
            here, before the request that precedes a sweep, and on a thread of its own from then on.
        verify: check the target's certificate; a text names a PEM file of authorities, which are trusted beside the
            system's for pages on other hosts.
        interval_s: time between two readings.

    Raises:
        UsageError: an invalid address, pattern or header.
        EnvironmentLacks: a ``kube://`` address, and no kubectl.
    """
    planned, forwards = _pages(targets, metrics_urls, keep, verify)
    if local_gpus_wanted(targets, gpu_sample):
        planned.append(Planned(LocalGpus(), "--gpu-sample" if gpu_sample else None, EnvironmentLacks))
    for name, reader in statistics:
        source = StatisticsSource(reader, name)
        source.note_requests()
        planned.append(Planned(source))
    _distinct(planned)
    server = None
    if prometheus is not None:
        server = PrometheusServer(
            prometheus, keep=keep, match=prometheus_match, headers=prometheus_headers, verify=prometheus_verify
        )
    return ServerMetrics(planned, prometheus=server, interval_s=interval_s), forwards


def _pages(
    targets: Sequence[Mapping[str, Any]],
    urls: Sequence[str],
    keep: str | None,
    verify: bool | str,  # noqa: FBT001 -- as httpx names it
) -> tuple[list[Planned], list[KubeForward]]:
    """The pages that were named, or else the usual ones."""
    pattern = keep_pattern(keep)
    if not urls:
        usual = default_metrics_urls(targets)
        return [Planned(MetricsPage(url, keep=pattern, verify=verify, guessed=True)) for url in usual], []
    if NONE in urls:
        if len(urls) > 1:
            raise UsageError("none and an address are both given", "metrics-url", "give one of them")
        return [], []
    planned: list[Planned] = []
    forwards: list[KubeForward] = []
    hosts = {parse_url(str(each["url"])).host for each in targets if each.get("url")}
    for url in urls:
        local = url
        if is_kube(url):
            local, forward = resolve_kube(url)
            forwards.append(forward)
        own = parse_url(local).host in hosts
        page = MetricsPage(local, keep=pattern, verify=verify if own else with_systems(verify))
        # The local end of a forward has another port each time; what it leads to says more.
        page.name = url if is_kube(url) else metrics_url(url)
        planned.append(Planned(page, "--metrics-url"))
    return planned, forwards


def _distinct(planned: Sequence[Planned]) -> None:
    """Refuse the same source twice: its counters would count twice."""
    seen: set[str] = set()
    for each in planned:
        if each.source.name in seen:
            raise UsageError("this address is given twice", each.source.name, "give it once")
        seen.add(each.source.name)
