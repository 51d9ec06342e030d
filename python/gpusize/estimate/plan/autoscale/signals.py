"""What a metric measures, in terms of what is simulated: a small part of PromQL over known names.

    sum(vllm:num_requests_waiting)                      all requests that wait
    avg(avg_over_time(vllm:kv_cache_usage_perc[1m]))    the caches' share, averaged over a minute and the replicas
    sum(rate(llm_d_epp_request_total[2m]))              requests per second
    100 * max(rate(busy[1m]))                           GPU utilization in per cent, by our own name
    histogram_quantile(0.9, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[1m])))
    sum(vllm:num_requests_running) + llm_d_epp_flow_control_queue_size

``query`` says what is understood of PromQL. A name is that of a server's metric, with colons or underscores, or one
of ours: ``QUANTITIES``, and ``HISTOGRAMS`` with ``_bucket``, ``_sum`` or ``_count``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from gpusize.base.errors import ConfigError
from gpusize.base.text import shown
from gpusize.base.units import as_duration_s
from gpusize.estimate.plan.autoscale.query import Call, Operation, Query, QueryError, Selector, parse

__all__ = ["HISTOGRAMS", "QUANTITIES", "signal", "signal_of_name"]

COUNTERS: Final = ("requests", "busy", "prompt_tokens", "output_tokens", "arrived", "dispatched")
GATEWAY: Final = ("held", "arrived", "dispatched", "gateway_in_flight", "unanswered", "ready_replicas")
"""What the gateway in front tells: it is there without replicas, too."""
QUANTITIES: Final = (
    *("running", "waiting", "in_flight", "cache_usage", "in_flight_tokens"),
    *("requests", "busy", "prompt_tokens", "output_tokens"),
    *GATEWAY,
)
HISTOGRAMS: Final = MappingProxyType(
    {
        "ttft_seconds": "ttft",
        "itl_seconds": "itl",
        "runtime_seconds": "runtime",
        "queue_seconds": "queue",
        "gateway_ttft_seconds": "gateway_ttft",
        "gateway_runtime_seconds": "gateway_runtime",
    }
)
"""Our names of histograms, and what the extension calls them."""

_KNOWN: Final[Mapping[str, tuple[str, str | None]]] = MappingProxyType(
    {
        **{name: (name, None) for name in QUANTITIES},
        "vllm_num_requests_running": ("running", None),
        "vllm_num_requests_waiting": ("waiting", None),
        "vllm_kv_cache_usage_perc": ("cache_usage", None),
        "vllm_gpu_cache_usage_perc": ("cache_usage", None),
        "vllm_prompt_tokens": ("prompt_tokens", None),
        "vllm_generation_tokens": ("output_tokens", None),
        "sglang_num_running_reqs": ("running", None),
        "sglang_num_queue_reqs": ("waiting", None),
        "sglang_token_usage": ("cache_usage", None),
        "sglang_prompt_tokens": ("prompt_tokens", None),
        "sglang_generation_tokens": ("output_tokens", None),
        "tgi_queue_size": ("waiting", None),
        "tgi_batch_current_size": ("running", None),
        "nv_inference_pending_request_count": ("waiting", None),
        "llm_d_epp_inflight_requests": ("in_flight", None),
        "llm_d_epp_inflight_tokens": ("in_flight_tokens", None),
        "llm_d_epp_per_endpoint_queue_size": ("waiting", None),
        # These are averages over the endpoints already.
        "llm_d_epp_average_queue_size": ("waiting", "average"),
        "llm_d_epp_average_running_requests": ("running", "average"),
        "llm_d_epp_average_kv_cache_utilization": ("cache_usage", "average"),
        # The picker counts a request when it has been sent on; what it holds is in the queue alone.
        "llm_d_epp_request": ("dispatched", None),
        "llm_d_epp_request_running": ("gateway_in_flight", None),
        "llm_d_epp_flow_control_queue_size": ("held", None),
        "inference_extension_flow_control_queue_size": ("held", None),
        "llm_d_epp_ready_endpoints": ("ready_replicas", None),
    }
)
"""Name with underscores, of a counter without ``_total``: quantity, and what it is made of over the replicas where the
name says so."""

_HISTOGRAMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **HISTOGRAMS,
        "vllm_time_to_first_token_seconds": "ttft",
        "vllm_inter_token_latency_seconds": "itl",
        "vllm_time_per_output_token_seconds": "itl",
        "vllm_e2e_request_latency_seconds": "runtime",
        "vllm_request_queue_time_seconds": "queue",
        "sglang_time_to_first_token_seconds": "ttft",
        "sglang_inter_token_latency_seconds": "itl",
        "sglang_e2e_request_latency_seconds": "runtime",
        "llm_d_epp_request_ttft_seconds": "gateway_ttft",
        "llm_d_epp_request_duration_seconds": "gateway_runtime",
    }
)

_ACROSS: Final = {"sum": "sum", "avg": "average", "max": "max", "min": "min", "count": "count"}
_OVER: Final = {"avg_over_time": "average", "max_over_time": "max", "last_over_time": "last", "rate": "rate"}
_OPERATORS: Final = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
_LOOKBACK_S: Final = 300.0
"""Prometheus takes the last sample of five minutes for that of now."""


def signal_of_name(name: str) -> str | None:
    """The quantity that a metric of this name is, where it is known; None otherwise."""
    found = _known(name)
    return None if found is None or isinstance(found[0], dict) else found[0]


def signal(query: str, place: str, *, single: bool = False) -> dict[str, Any]:
    """What a query measures, as the extension reads it.

    Args:
        query: a query of the part of PromQL above.
        place: where it stands, for errors.
        single: refuse one that gives a value for each replica, as KEDA does; else such values are added.

    Raises:
        ConfigError: it is none of these, or of a name that is not known.
    """
    try:
        tree = parse(query)
    except QueryError as problem:
        raise _cannot(query, place, str(problem)) from None
    reader = _Signals(query, place)
    found, is_of_each = reader.read(tree)
    if not is_of_each:
        return found
    if single:
        what = f"this query gives a value for each replica, which KEDA refuses: {shown(query.strip(), 200)}"
        raise ConfigError(what, place, "put sum(), avg() or max() around it")
    return reader.over("sum", found)


class _Signals:
    """From a query's tree to a signal; what is of each replica is marked until something is made of all of them."""

    def __init__(self, query: str, place: str) -> None:
        self._query, self._place = query, place

    def read(self, tree: Query) -> tuple[dict[str, Any], bool]:
        if isinstance(tree, float):
            return {"number": tree}, False
        if isinstance(tree, Selector):
            return self._selector(tree, None)
        if isinstance(tree, Operation):
            return self._operation(tree)
        if tree.name == "vector" and len(tree.of) == 1 and isinstance(tree.of[0], float):
            return {"number": tree.of[0]}, False
        if tree.name in _ACROSS and len(tree.of) == 1 and not tree.by:
            inner, is_of_each = self.read(tree.of[0])
            if is_of_each or tree.name in ("sum", "avg", "max", "min"):
                return (self.over(_ACROSS[tree.name], inner) if is_of_each else inner), False
        if tree.name == "histogram_quantile" and len(tree.of) == 2:
            return self._quantile(*tree.of)
        if tree.name == "increase" and len(tree.of) == 1 and isinstance(tree.of[0], Selector):
            rate, is_of_each = self._selector(tree.of[0], "rate")
            return _arithmetic("*", rate, {"number": rate["series"]["window_s"]}), is_of_each
        if tree.name in _OVER and len(tree.of) == 1 and isinstance(tree.of[0], Selector):
            return self._selector(tree.of[0], _OVER[tree.name])
        raise self._refused()

    def over(self, across: str, found: dict[str, Any]) -> dict[str, Any]:
        """One value of those of all replicas."""
        for kind in ("series", "quantile"):
            if kind in found:
                return {kind: {**found[kind], "across": across}}
        return {"over": {"across": across, "each": found}}

    def _operation(self, tree: Operation) -> tuple[dict[str, Any], bool]:
        (left, of_each), (right, right_of_each) = self.read(tree.left), self.read(tree.right)
        if tree.sign == "or":
            if of_each or right_of_each:
                raise self._refused("or between values of each replica")
            return {"or": [left, right]}, False
        numbers = "number" in left or "number" in right
        if of_each != right_of_each and not numbers:
            raise self._refused("values of each replica beside one value of all")
        return _arithmetic(tree.sign, left, right), of_each or right_of_each

    def _selector(self, tree: Selector, over: str | None) -> tuple[dict[str, Any], bool]:
        known = _known(tree.name)
        if known is None:
            raise ConfigError(f'what the metric "{tree.name}" measures is not known', self._place, _todo())
        quantity, across = known
        if isinstance(quantity, dict) and "bucket" in quantity:
            what = f"{tree.name} is a histogram"
            todo = "take histogram_quantile(0.9, sum by (le) (rate(NAME_bucket[1m]))), or its _sum and _count"
            raise ConfigError(what, self._place, todo)
        if (over is None) != (tree.window is None):
            raise self._refused("a range goes with a function over time, and only with it")
        is_counter = isinstance(quantity, dict) or quantity in COUNTERS
        if is_counter != (over == "rate"):
            what = f"{tree.name} {'only ever grows' if is_counter else 'is no counter'}"
            raise ConfigError(
                what, self._place, f"{'take' if is_counter else 'leave out'} rate(), as in: sum(rate(requests[1m]))"
            )
        found = {
            "quantity": quantity,
            "over_time": over or "last",
            "window_s": self._window(tree.window),
            "across": across or "sum",
        }
        histogram = next(iter(quantity.values())) if isinstance(quantity, dict) else ""
        is_of_gateway = quantity in GATEWAY if isinstance(quantity, str) else histogram.startswith("gateway")
        return {"series": found}, across is None and not is_of_gateway

    def _quantile(self, q: Query, of: Query) -> tuple[dict[str, Any], bool]:
        merged = isinstance(of, Call) and of.name == "sum" and of.by == ("le",) and len(of.of) == 1
        inner = of.of[0] if merged and isinstance(of, Call) else of
        rate = isinstance(inner, Call) and inner.name == "rate" and len(inner.of) == 1
        selector = inner.of[0] if rate and isinstance(inner, Call) else None
        if not isinstance(q, float) or not 0 <= q <= 1 or not isinstance(selector, Selector):
            raise self._refused("histogram_quantile(0.9, sum by (le) (rate(NAME_bucket[1m]))) is understood")
        known = _known(selector.name)
        if known is None or not isinstance(known[0], dict) or "bucket" not in known[0]:
            what = f'"{selector.name}" is no histogram that is known'
            raise ConfigError(what, self._place, f"take one of {', '.join(f'{name}_bucket' for name in HISTOGRAMS)}")
        if selector.window is None:
            raise self._refused("rate() needs a range")
        histogram = known[0]["bucket"]
        found = {"q": q, "histogram": histogram, "window_s": self._window(selector.window)}
        return {"quantile": found}, not merged and not histogram.startswith("gateway")

    def _window(self, text: str | None) -> float:
        return _LOOKBACK_S if text is None else as_duration_s(text, self._place)

    def _refused(self, why: str = "") -> ConfigError:
        return _cannot(self._query, self._place, why)


def _known(name: str) -> tuple[str | dict[str, str], str | None] | None:
    """The quantity of a name, and what is made of the replicas already."""
    plain = name.replace(":", "_")
    found = _KNOWN.get(plain) or _KNOWN.get(plain.removesuffix("_total"))
    if found is not None:
        return found
    for part in ("bucket", "sum", "count"):
        histogram = _HISTOGRAMS.get(plain.removesuffix(f"_{part}"))
        if histogram is not None and plain.endswith(f"_{part}"):
            return {part: histogram}, None
    return ({"bucket": _HISTOGRAMS[plain]}, None) if plain in _HISTOGRAMS else None


def _arithmetic(sign: str, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    return {"arithmetic": {"operator": _OPERATORS[sign], "left": left, "right": right}}


def _cannot(query: str, place: str, why: str) -> ConfigError:
    reason = f" ({why})" if why else ""
    return ConfigError(f"this query cannot be simulated: {shown(query.strip(), 200)}{reason}", place, _todo())


def _todo() -> str:
    return f"say what it measures: --signal 'NAME=sum(waiting)', of {', '.join(QUANTITIES)}"
