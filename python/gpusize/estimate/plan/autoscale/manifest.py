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
from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler, Surroundings, Timing
from gpusize.estimate.plan.autoscale.fields import integer, quantity, table, word
from gpusize.estimate.plan.autoscale.keda import read_keda
from gpusize.estimate.plan.autoscale.signals import signal, signal_of_name

__all__ = ["read_policies"]

KINDS: Final = ("HorizontalPodAutoscaler", "ScaledObject")


def read_policies(
    path: str | Path,
    signals: Mapping[str, str] | None = None,
    timing: Timing | None = None,
    surroundings: Surroundings | None = None,
) -> list[Autoscaler]:
    """Every HorizontalPodAutoscaler and ScaledObject of a YAML file, in its order.

    Args:
        path: the file; other objects in it are passed over.
        signals: what a metric measures, by its name (of a trigger: its ``name``, or ``s0``, ``s1`` by its place), as a
            query; needed where the name alone does not tell.
        timing: how often is looked.
        surroundings: what becomes of requests while there is no replica, and when there are no metrics.

    Raises:
        ConfigError: no such file or no YAML, no policy in it, or one that cannot be simulated, with its place.
    """
    found = []
    for number, document in enumerate(_documents(Path(path))):
        kind = document.get("kind")
        if kind not in KINDS:
            continue
        name = str(table(document, "metadata", f"{path}").get("name") or f"policy {number + 1}")
        place = f"{path}: {kind} {shown(name, 60)}"
        reader = _Reader(place, dict(signals or {}), timing or Timing(), surroundings or Surroundings())
        read = reader.hpa if kind == "HorizontalPodAutoscaler" else reader.scaled_object
        found.append(read(name, document))
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

    def __init__(self, place: str, signals: Mapping[str, str], timing: Timing, surroundings: Surroundings) -> None:
        self.place, self._signals, self._timing, self._surroundings = place, signals, timing, surroundings

    def hpa(self, name: str, document: Mapping[str, Any]) -> Autoscaler:
        spec = table(document, "spec", self.place)
        metrics = spec.get("metrics")
        if not isinstance(metrics, Sequence) or not metrics:
            what = "it has no metrics, so it goes by the CPU of its pods, which is not simulated"
            raise ConfigError(what, self.place, "give it an external, object or pods metric")
        read = [self._metric(each, f"{self.place}: metrics[{k}]") for k, each in enumerate(metrics)]
        least = integer(spec, "minReplicas", 1, self.place)
        if least == 0 and all(metric["source"] == "pods" for metric, _ in read):
            what = "minReplicas of 0 needs an external or object metric: without pods none of theirs is there"
            raise ConfigError(what, self.place, "give it one, or minReplicas of 1")
        policy = self._policy(spec.get("behavior"), (least, spec.get("maxReplicas")), [metric for metric, _ in read])
        signals = tuple(each for _, each in read)
        return Autoscaler(name, policy, signals, self._timing, surroundings=self._surroundings)

    def _metric(self, metric: Any, place: str) -> tuple[dict[str, Any], dict[str, Any]]:
        kind = metric.get("type") if isinstance(metric, Mapping) else None
        key = {"External": "external", "Object": "object", "Pods": "pods"}.get(str(kind))
        if key is None:
            what = f"metrics of type {kind} are not simulated"
            raise ConfigError(what, place, "take one of External, Object, Pods")
        body = table(metric, key, place)
        name = str(table(body, "metric", place).get("name", ""))
        target = table(body, "target", place)
        kind = target.get("type")
        if kind not in ("Value", "AverageValue"):
            raise ConfigError(f"a target of type {kind} does not go with {metric['type']}", place, "see the HPA's docs")
        field = "value" if kind == "Value" else "averageValue"
        spec = {
            "source": key,
            "target": {"value" if kind == "Value" else "average_value": quantity(target, field, place)},
        }
        return spec, self._signal(name, name, place)

    def scaled_object(self, name: str, document: Mapping[str, Any]) -> Autoscaler:
        def read_signal(name: str, query: str, place: str) -> dict[str, Any]:
            return self._signal(name, query, place, single=True)

        part = read_keda(document, self.place, read_signal)
        policy = self._policy(part.behavior, part.bounds, part.metrics)
        return Autoscaler(name, policy, part.signals, self._timing, part.notes, part.keda, self._surroundings)

    def _signal(self, name: str, query: str, place: str, *, single: bool = False) -> dict[str, Any]:
        told = self._signals.get(name)
        if told is None and not query:
            raise ConfigError("it has no query", place, f"say what it measures: --signal '{name}=sum(waiting)'")
        if told is None and query == name and signal_of_name(name) is None:
            what = f'what the metric "{shown(name, 80)}" measures is not known'
            raise ConfigError(what, place, f"say it: --signal '{shown(name, 80)}=sum(waiting)'")
        return signal(told if told is not None else query, place, single=single and told is None)

    def _policy(self, behavior: Any, bounds: tuple[int, Any], metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        least, most = bounds
        if not isinstance(most, int) or isinstance(most, bool) or most < max(1, least):
            what = f"the most replicas must be a number of at least {max(1, least)}, not {shown(str(most), 40)}"
            raise ConfigError(what, self.place, "correct it there")
        return {
            "min_replicas": least,
            "max_replicas": most,
            "metrics": list(metrics),
            "behavior": None if not behavior else self._behavior(behavior),
        }

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
                    "kind": word(each, "type", {"Pods": "pods", "Percent": "percent"}, place),
                    "value": integer(each, "value", 0, place),
                    "period_s": integer(each, "periodSeconds", 0, place),
                }
                for each in given
            ]
        select = {"Max": "max", "Min": "min", "Disabled": "disabled"}
        tolerance = rules.get("tolerance")
        return {
            "stabilization_s": rules.get("stabilizationWindowSeconds", window_s),
            "select": "max" if rules.get("selectPolicy") is None else word(rules, "selectPolicy", select, place),
            "policies": policies,
            "tolerance": None if tolerance is None else quantity(rules, "tolerance", place) / 1000,
        }
