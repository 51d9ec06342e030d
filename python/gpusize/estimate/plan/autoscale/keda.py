"""A ScaledObject of KEDA (``keda.sh/v1alpha1``, as of 2.20) as it is simulated: KEDA's own part, and the HPA's metrics.

Sources: KEDA's Go code; docs/reference/autoscale.md names the function for each rule.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpusize.base.errors import ConfigError, UsageError
from gpusize.base.text import shown
from gpusize.engine.session import core
from gpusize.estimate.plan.autoscale.fields import integer, real, real_milli, table, truth, word

__all__ = ["IDLE", "INITIAL", "NO_FALLBACK", "PAUSED", "POLLING", "KedaPart", "read_keda"]

MOST: Final = 100
"""``maxReplicaCount`` where it is left out."""
POLLING: Final = (
    "its polling interval has no effect: the HPA asks for the metrics at each sync, and there is no scale to zero"
)
INITIAL: Final = "its initialCooldownPeriod counts from the start of the day, as though it had been applied then"
NO_FALLBACK: Final = "its fallback never takes effect: beside a formula, KEDA takes only whole numbers as target"
IDLE: Final = "its HPA raises idle replicas to minReplicaCount at once: KEDA supports an idleReplicaCount of 0 alone"
PAUSED: Final = "its annotations are not looked at: it runs as though it were not paused"
_BEHAVIORS: Final = {
    "static": "static",
    "currentReplicas": "current_replicas",
    "currentReplicasIfHigher": "current_replicas_if_higher",
    "currentReplicasIfLower": "current_replicas_if_lower",
    "scalingModifiers": "scaling_modifiers",
}
_TARGETS: Final = {"AverageValue": "average_value", "Value": "value"}


@dataclass(frozen=True, slots=True)
class KedaPart:
    """What a ScaledObject is.

    Attributes:
        keda: what KEDA itself goes by, as the extension reads it.
        metrics: of the HPA that it makes.
        signals: of the triggers.
        bounds: least and most replicas of that HPA.
        behavior: of that HPA, as in the manifest.
        notes: what a reader should know.
    """

    keda: Mapping[str, Any]
    metrics: tuple[Mapping[str, Any], ...]
    signals: tuple[Mapping[str, Any], ...]
    bounds: tuple[int, Any]
    behavior: Any
    notes: tuple[str, ...]


def read_keda(
    document: Mapping[str, Any], place: str, read_signal: Callable[[str, str, str], dict[str, Any]]
) -> KedaPart:
    """Read a ScaledObject.

    Args:
        document: the object.
        place: where it stands, for errors.
        read_signal: makes a signal of a trigger's name, its query and its place.

    Raises:
        ConfigError: it cannot be simulated, or KEDA would refuse it.
    """
    spec = table(document, "spec", place)
    triggers = spec.get("triggers")
    if not isinstance(triggers, Sequence) or isinstance(triggers, str) or not triggers:
        raise ConfigError("it has no triggers", place, "give it a trigger of type prometheus")
    read = [_trigger(each, k, f"{place}: triggers[{k}]", read_signal) for k, each in enumerate(triggers)]
    advanced = spec.get("advanced") or {}
    modifiers = _modifiers(advanced.get("scalingModifiers"), f"{place}: scalingModifiers")
    least = integer(spec, "minReplicaCount", 0, place)
    keda = {
        "polling_s": float(integer(spec, "pollingInterval", 30, place)),
        "cooldown_s": integer(spec, "cooldownPeriod", 300, place),
        "initial_cooldown_s": integer(spec, "initialCooldownPeriod", 0, place),
        "min_replicas": least,
        "idle_replicas": integer(spec, "idleReplicaCount", 0, place) if "idleReplicaCount" in spec else None,
        "fallback": _fallback(spec.get("fallback"), f"{place}: fallback"),
        "triggers": [trigger for trigger, _ in read],
        "modifiers": modifiers,
    }
    _check(keda, place)
    metrics = [{"source": "external", "target": trigger["target"]} for trigger, _ in read]
    if modifiers is not None:
        kind = "value" if modifiers["is_value"] else "average_value"
        metrics = [{"source": "external", "target": {kind: int(float(modifiers["target"]) * 1000)}}]
    return KedaPart(
        keda,
        tuple(metrics),
        tuple(signal for _, signal in read),
        (max(1, least), spec.get("maxReplicaCount", MOST)),
        (advanced.get("horizontalPodAutoscalerConfig") or {}).get("behavior"),
        tuple(_notes(document, spec, keda)),
    )


def _trigger(
    trigger: Any, number: int, place: str, read_signal: Callable[[str, str, str], dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    kind = trigger.get("type") if isinstance(trigger, Mapping) else None
    if kind != "prometheus":
        raise ConfigError(f"triggers of type {kind} are not simulated", place, "take one of type prometheus")
    metadata = table(trigger, "metadata", place)
    target = trigger.get("metricType", "AverageValue")
    if target not in _TARGETS:
        raise ConfigError(f"a metricType of {target} does not go with prometheus", place, "take AverageValue or Value")
    name = trigger.get("name")
    read = {
        "name": None if name is None else str(name),
        "target": {_TARGETS[target]: real_milli(metadata, "threshold", place)},
        "activation": real(metadata, "activationThreshold", 0.0, place),
        "use_cached": truth(trigger, "useCachedMetrics", place, default=False),
        "ignore_null": truth(metadata, "ignoreNullValues", place, default=True),
    }
    return read, read_signal(str(name or f"s{number}"), str(metadata.get("query", "")), place)


def _modifiers(given: Any, place: str) -> dict[str, Any] | None:
    if not given:
        return None
    if not isinstance(given, Mapping):
        raise ConfigError(f"it is no table: {shown(str(given), 60)}", place, "correct it there")
    formula = given.get("formula")
    if not isinstance(formula, str) or not formula.strip():
        raise ConfigError("it has no formula", place, "give one over the triggers' names, as in: max(queue, running)")
    target = str(given.get("target", ""))
    real({"target": target}, "target", None, place)
    kind = "average_value" if given.get("metricType") is None else word(given, "metricType", _TARGETS, place)
    return {
        "formula": formula,
        "target": target,
        "activation": real(given, "activationTarget", 0.0, place),
        "is_value": kind == "value",
    }


def _fallback(given: Any, place: str) -> dict[str, Any] | None:
    if not given:
        return None
    behavior = "static" if given.get("behavior") is None else word(given, "behavior", _BEHAVIORS, place)
    return {
        "failure_threshold": integer(given, "failureThreshold", 0, place),
        "replicas": integer(given, "replicas", 0, place),
        "behavior": behavior,
    }


def _check(keda: Mapping[str, Any], place: str) -> None:
    """What KEDA's admission would refuse; the rules are the extension's, where they are followed."""
    try:
        core().keda_course(json.dumps(keda), "[]")
    except UsageError as problem:
        raise ConfigError(problem.what, place, "correct it there") from None


def _notes(document: Mapping[str, Any], spec: Mapping[str, Any], keda: Mapping[str, Any]) -> list[str]:
    notes = []
    idle, cached = keda["idle_replicas"], any(each["use_cached"] for each in keda["triggers"])
    if "pollingInterval" in spec and keda["min_replicas"] > 0 and idle != 0 and not cached:
        notes.append(POLLING)
    if keda["initial_cooldown_s"]:
        notes.append(INITIAL)
    if keda["fallback"] and keda["modifiers"] and not keda["modifiers"]["target"].isdecimal():
        notes.append(NO_FALLBACK)
    if idle:
        notes.append(IDLE)
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    if any(str(key).startswith("autoscaling.keda.sh/") for key in annotations):
        notes.append(PAUSED)
    return notes
