"""Policies out of Kubernetes manifests: a HorizontalPodAutoscaler (autoscaling/v2) or a ScaledObject of KEDA.

Sources: the API reference of Kubernetes 1.37 for ``autoscaling/v2`` with its defaults, and of KEDA 2.20 for
``keda.sh/v1alpha1``, which makes an HPA of external metrics of each ScaledObject.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gpusize.base.errors import ConfigError
from gpusize.base.text import shown
from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler, Timing
from gpusize.estimate.plan.autoscale.quantity import milli
from gpusize.estimate.plan.autoscale.signals import signal, signal_of_name

__all__ = ["read_policies"]

KINDS: Final = ("HorizontalPodAutoscaler", "ScaledObject")
KEDA_MAX: Final = 100
ZERO: Final = "it may scale to zero; the simulation keeps one replica at all times"
FALLBACK: Final = "its fallback is not simulated: metrics do not fail there"
POLLING: Final = "its polling interval counts at zero replicas alone: the HPA asks for the metrics at each sync"


def read_policies(
    path: str | Path, signals: Mapping[str, str] | None = None, timing: Timing | None = None
) -> list[Autoscaler]:
    """Every HorizontalPodAutoscaler and ScaledObject of a YAML file, in its order.

    Args:
        path: the file; other objects in it are passed over.
        signals: what a metric measures, by its name (of a trigger: its ``name``, or ``s0``, ``s1`` by its place), as a
            query; needed where the name alone does not tell.
        timing: how often is looked.

    Raises:
        ConfigError: no such file or no YAML, no policy in it, or one that cannot be simulated, with its place.
    """
    found = []
    for number, document in enumerate(_documents(Path(path))):
        kind = document.get("kind")
        if kind not in KINDS:
            continue
        name = str(_table(document, "metadata", f"{path}").get("name") or f"policy {number + 1}")
        reader = _Reader(f"{path}: {kind} {shown(name, 60)}", dict(signals or {}), timing or Timing())
        spec = _table(document, "spec", reader.place)
        found.append(reader.hpa(name, spec) if kind == "HorizontalPodAutoscaler" else reader.scaled_object(name, spec))
    if not found:
        raise ConfigError(f"there is no {' or '.join(KINDS)} in it", str(path), "give the manifest of a policy")
    return found


def _documents(path: Path) -> Iterator[Mapping[str, Any]]:
    from gpusize.base.documents import read_yaml_documents

    for each in read_yaml_documents(str(path)):
        if isinstance(each, Mapping):
            yield each


class _Reader:
    """Reads one object; ``place`` is where it stands."""

    def __init__(self, place: str, signals: Mapping[str, str], timing: Timing) -> None:
        self.place, self._signals, self._timing = place, signals, timing

    def hpa(self, name: str, spec: Mapping[str, Any]) -> Autoscaler:
        metrics = spec.get("metrics")
        if not isinstance(metrics, Sequence) or not metrics:
            what = "it has no metrics, so it goes by the CPU of its pods, which is not simulated"
            raise ConfigError(what, self.place, "give it an external, object or pods metric")
        read = [self._metric(each, f"{self.place}: metrics[{k}]") for k, each in enumerate(metrics)]
        notes = []
        least = _integer(spec, "minReplicas", 1, self.place)
        if least == 0:
            notes.append(ZERO)
        return self._autoscaler(name, spec.get("behavior"), (least, spec.get("maxReplicas")), read, notes)

    def _metric(self, metric: Any, place: str) -> tuple[dict[str, Any], dict[str, Any]]:
        kind = metric.get("type") if isinstance(metric, Mapping) else None
        key = {"External": "external", "Object": "object", "Pods": "pods"}.get(str(kind))
        if key is None:
            what = f"metrics of type {kind} are not simulated"
            raise ConfigError(what, place, "take one of External, Object, Pods")
        body = _table(metric, key, place)
        name = str(_table(body, "metric", place).get("name", ""))
        target = _table(body, "target", place)
        kind = target.get("type")
        if kind not in ("Value", "AverageValue"):
            raise ConfigError(f"a target of type {kind} does not go with {metric['type']}", place, "see the HPA's docs")
        field = "value" if kind == "Value" else "averageValue"
        spec = {
            "source": key,
            "target": {"value" if kind == "Value" else "average_value": _milli(target, field, place)},
        }
        return spec, self._signal(name, name, place)

    def scaled_object(self, name: str, spec: Mapping[str, Any]) -> Autoscaler:
        triggers = spec.get("triggers")
        advanced = spec.get("advanced") or {}
        if not isinstance(triggers, Sequence) or not triggers:
            raise ConfigError("it has no triggers", self.place, "give it a trigger of type prometheus")
        if advanced.get("scalingModifiers"):
            what = "scalingModifiers are not simulated"
            raise ConfigError(what, self.place, "give the formula's metrics as triggers of their own")
        read = [self._trigger(each, k, f"{self.place}: triggers[{k}]") for k, each in enumerate(triggers)]
        least = _integer(spec, "minReplicaCount", 0, self.place)
        notes = [ZERO] if least == 0 or spec.get("idleReplicaCount") is not None else []
        notes += [FALLBACK] if spec.get("fallback") else []
        notes += [POLLING] if spec.get("pollingInterval") is not None else []
        behavior = (advanced.get("horizontalPodAutoscalerConfig") or {}).get("behavior")
        most = spec.get("maxReplicaCount", KEDA_MAX)
        return self._autoscaler(name, behavior, (least, most), read, notes)

    def _trigger(self, trigger: Any, number: int, place: str) -> tuple[dict[str, Any], dict[str, Any]]:
        kind = trigger.get("type") if isinstance(trigger, Mapping) else None
        if kind != "prometheus":
            raise ConfigError(f"triggers of type {kind} are not simulated", place, "take one of type prometheus")
        metadata = _table(trigger, "metadata", place)
        target = trigger.get("metricType", "AverageValue")
        if target not in ("AverageValue", "Value"):
            raise ConfigError(
                f"a metricType of {target} does not go with prometheus", place, "take AverageValue or Value"
            )
        wanted = {"average_value" if target == "AverageValue" else "value": _milli(metadata, "threshold", place)}
        name = str(trigger.get("name") or f"s{number}")
        return {"source": "external", "target": wanted}, self._signal(name, str(metadata.get("query", "")), place)

    def _signal(self, name: str, query: str, place: str) -> dict[str, Any]:
        told = self._signals.get(name)
        if told is None and not query:
            raise ConfigError("it has no query", place, f"say what it measures: --signal '{name}=sum(waiting)'")
        if told is None and query == name and signal_of_name(name) is None:
            what = f'what the metric "{shown(name, 80)}" measures is not known'
            raise ConfigError(what, place, f"say it: --signal '{shown(name, 80)}=sum(waiting)'")
        return signal(told if told is not None else query, place)

    def _autoscaler(
        self,
        name: str,
        behavior: Any,
        bounds: tuple[int, Any],
        read: Sequence[tuple[dict[str, Any], dict[str, Any]]],
        notes: Sequence[str],
    ) -> Autoscaler:
        least, most = bounds
        if not isinstance(most, int) or isinstance(most, bool) or most < max(1, least):
            what = f"the most replicas must be a number of at least {max(1, least)}, not {shown(str(most), 40)}"
            raise ConfigError(what, self.place, "correct it there")
        policy = {
            "min_replicas": max(1, least),
            "max_replicas": most,
            "metrics": [spec for spec, _ in read],
            "behavior": None if not behavior else self._behavior(behavior),
        }
        return Autoscaler(name, policy, tuple(each for _, each in read), self._timing, tuple(notes))

    def _behavior(self, behavior: Any) -> dict[str, Any]:
        table = behavior if isinstance(behavior, Mapping) else {}
        return {
            "up": self._rules(table.get("scaleUp") or {}, "scaleUp", 0, ((("pods", 4), ("percent", 100)))),
            "down": self._rules(table.get("scaleDown") or {}, "scaleDown", None, (("percent", 100),)),
        }

    def _rules(
        self, rules: Mapping[str, Any], way: str, window_s: int | None, limits: Sequence[tuple[str, int]]
    ) -> dict[str, Any]:
        """The rules of one direction; what is left out is as ``SetDefaults_HorizontalPodAutoscalerBehavior`` has it."""
        place = f"{self.place}: behavior.{way}"
        given = rules.get("policies")
        policies = [{"kind": kind, "value": value, "period_s": 15} for kind, value in limits]
        if given is not None:
            policies = [
                {
                    "kind": _word(each, "type", {"Pods": "pods", "Percent": "percent"}, place),
                    "value": _integer(each, "value", 0, place),
                    "period_s": _integer(each, "periodSeconds", 0, place),
                }
                for each in given
            ]
        select = {"Max": "max", "Min": "min", "Disabled": "disabled"}
        tolerance = rules.get("tolerance")
        return {
            "stabilization_s": rules.get("stabilizationWindowSeconds", window_s),
            "select": "max" if rules.get("selectPolicy") is None else _word(rules, "selectPolicy", select, place),
            "policies": policies,
            "tolerance": None if tolerance is None else _milli(rules, "tolerance", place) / 1000,
        }


def _table(values: Any, key: str, place: str) -> Mapping[str, Any]:
    found = values.get(key) if isinstance(values, Mapping) else None
    if not isinstance(found, Mapping):
        raise ConfigError(f"it has no {key}", place, "correct it there")
    return found


def _integer(values: Any, key: str, default: int, place: str) -> int:
    found = values.get(key, default) if isinstance(values, Mapping) else None
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise ConfigError(
            f"{key} must be a whole number from 0, not {shown(str(found), 40)}", place, "correct it there"
        )
    return found


def _word(values: Any, key: str, words: Mapping[str, str], place: str) -> str:
    found = values.get(key) if isinstance(values, Mapping) else None
    if not isinstance(found, str) or found not in words:
        raise ConfigError(
            f"{key} must be one of {', '.join(words)}, not {shown(str(found), 40)}", place, "correct it there"
        )
    return words[found]


def _milli(values: Mapping[str, Any], key: str, place: str) -> int:
    found = values.get(key)
    value = None if found is None else milli(found)
    if value is None or value < 0:
        raise ConfigError(
            f"{key} must be a quantity, as 500m or 16, not {shown(str(found), 40)}", place, "correct it there"
        )
    return value
