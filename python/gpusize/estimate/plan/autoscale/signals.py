"""What a metric of a policy measures, in terms of what is simulated: a small part of PromQL over known names.

    sum(vllm:num_requests_waiting)                      all requests that wait
    avg(avg_over_time(vllm:kv_cache_usage_perc[1m]))    the caches' share, averaged over a minute and the replicas
    sum(rate(llm_d_epp_request_total[2m]))              requests per second
    100 * max(busy)                                     GPU utilization in per cent, by our own name

A name is that of a server's metric, with colons or underscores, or one of ours: ``running``, ``waiting``,
``in_flight``, ``cache_usage``, ``requests`` (a counter), ``busy`` (seconds at work, a counter).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from gpusize.base.errors import ConfigError
from gpusize.base.text import shown
from gpusize.base.units import as_duration_s

__all__ = ["QUANTITIES", "signal", "signal_of_name"]

QUANTITIES: Final = ("running", "waiting", "in_flight", "cache_usage", "requests", "busy")
COUNTERS: Final = ("requests", "busy")

_OURS: Final = {name: (name, None) for name in QUANTITIES}
_KNOWN: Final = MappingProxyType(
    {
        **_OURS,
        "vllm_num_requests_running": ("running", None),
        "vllm_num_requests_waiting": ("waiting", None),
        "vllm_kv_cache_usage_perc": ("cache_usage", None),
        "vllm_gpu_cache_usage_perc": ("cache_usage", None),
        "sglang_num_running_reqs": ("running", None),
        "sglang_num_queue_reqs": ("waiting", None),
        "sglang_token_usage": ("cache_usage", None),
        "tgi_queue_size": ("waiting", None),
        "tgi_batch_current_size": ("running", None),
        "nv_inference_pending_request_count": ("waiting", None),
        "llm_d_epp_request_running": ("in_flight", None),
        "llm_d_epp_inflight_requests": ("in_flight", None),
        "llm_d_epp_per_endpoint_queue_size": ("waiting", None),
        "llm_d_epp_request_total": ("requests", None),
        # These are averages over the endpoints already.
        "llm_d_epp_average_queue_size": ("waiting", "average"),
        "llm_d_epp_average_running_requests": ("running", "average"),
        "llm_d_epp_average_kv_cache_utilization": ("cache_usage", "average"),
    }
)
"""Name with underscores: quantity, and what it is made of over the replicas where the name says so."""

_ACROSS: Final = {"sum": "sum", "avg": "average", "max": "max"}
_OVER: Final = {"avg_over_time": "average", "max_over_time": "max", "last_over_time": "last", "rate": "rate"}
_SCALED: Final = re.compile(r"(?:(?P<before>[\d.]+)\s*\*\s*)?(?P<rest>.+?)(?:\s*(?P<sign>[*/])\s*(?P<after>[\d.]+))?")
_CALL: Final = re.compile(r"(?P<name>[a-z_]+)\s*\((?P<inner>.*)\)", re.DOTALL)
_SELECTOR: Final = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)\s*(?:\{[^{}]*\})?\s*(?:\[(?P<window>[^\]]+)\])?")
_OR_ZERO: Final = re.compile(r"\s+or\s+vector\(\s*0\s*\)$")
_LOOKBACK_S: Final = 300.0
"""Prometheus takes the last sample of five minutes for that of now."""


def signal_of_name(name: str) -> str | None:
    """The quantity that a metric of this name is, where it is known; None otherwise."""
    found = _KNOWN.get(_plain(name))
    return None if found is None else found[0]


def signal(query: str, place: str) -> dict[str, Any]:
    """What a query measures, as the extension reads it.

    Args:
        query: a query of the part of PromQL above.
        place: where it stands, for errors.

    Raises:
        ConfigError: it is none of these, or of a name that is not known.
    """
    scaled = _SCALED.fullmatch(_OR_ZERO.sub("", query.strip()))
    if scaled is None:
        raise _cannot(query, place)
    factor = _number(scaled["before"], place)
    if scaled["after"]:
        each = _number(scaled["after"], place)
        factor = factor * each if scaled["sign"] == "*" else factor / each
    across, inner = _called(scaled["rest"], _ACROSS)
    over, inner = _called(inner, _OVER)
    selector = _SELECTOR.fullmatch(inner.strip())
    if selector is None:
        raise _cannot(query, place)
    known = _KNOWN.get(_plain(selector["name"]))
    if known is None:
        raise ConfigError(f'what the metric "{selector["name"]}" measures is not known', place, _todo())
    quantity, across_already = known
    window = selector["window"]
    if (over is None) != (window is None):
        raise _cannot(query, place)
    is_counter = quantity in COUNTERS
    if is_counter != (over == "rate"):
        what = f"{selector['name']} {'only ever grows' if is_counter else 'is no counter'}"
        raise ConfigError(
            what, place, f"{'take' if is_counter else 'leave out'} rate(), as in: sum(rate(requests[1m]))"
        )
    return {
        "quantity": quantity,
        "over_time": over or "last",
        "window_s": _LOOKBACK_S if window is None else as_duration_s(window.strip(), place),
        "across": across_already or across or "sum",
        "factor": factor,
    }


def _called(text: str, functions: Mapping[str, str]) -> tuple[str | None, str]:
    """The function that is called, by our word, and what it is called with; none of these: None and the text."""
    call = _CALL.fullmatch(text.strip())
    if call is None or call["name"] not in functions:
        return None, text
    return functions[call["name"]], call["inner"]


def _cannot(query: str, place: str) -> ConfigError:
    return ConfigError(f"this query cannot be simulated: {shown(query.strip(), 200)}", place, _todo())


def _number(text: str | None, place: str) -> float:
    try:
        value = 1.0 if text is None else float(text)
    except ValueError:
        value = 0.0
    if not 1e-9 <= value <= 1e9:
        raise ConfigError(f'a factor must be above 0, not "{text}"', place, _todo())
    return value


def _plain(name: str) -> str:
    return name.replace(":", "_")


def _todo() -> str:
    return f"say what it measures: --signal 'NAME=sum(waiting)', of {', '.join(QUANTITIES)}"
