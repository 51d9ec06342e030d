"""What is changed of a policy: its targets, its window and its least number of replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler

__all__ = ["DEFAULTS", "Setting"]


@dataclass(frozen=True, slots=True)
class Setting:
    """What is changed of a policy.

    Attributes:
        factor: on the target of each metric.
        window_s: stabilization window of ``scaleDown``.
        min_replicas: the least number of replicas.
    """

    factor: float
    window_s: int
    min_replicas: int

    def on(self, autoscaler: Autoscaler) -> Autoscaler:
        """The policy with this setting."""
        policy, keda = autoscaler.policy, autoscaler.keda
        metrics = [{**each, "target": _scaled(each["target"], self.factor)} for each in policy["metrics"]]
        behavior = policy["behavior"] or DEFAULTS
        behavior = {**behavior, "down": {**behavior["down"], "stabilization_s": self.window_s}}
        least = self.min_replicas
        if keda is not None:
            keda = self._on_keda(keda, metrics)
            if keda["modifiers"] is not None:
                [kind] = metrics[0]["target"]
                metrics = [{**metrics[0], "target": {kind: int(float(keda["modifiers"]["target"]) * 1000)}}]
            least = max(1, least)
        changed = {"metrics": metrics, "behavior": behavior, "min_replicas": least}
        return replace(autoscaler, policy={**policy, **changed}, keda=keda)

    def _on_keda(self, keda: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """KEDA's own part: thresholds are what its fallback goes by, and the target of a formula is the HPA's."""
        changed: dict[str, Any] = {"min_replicas": self.min_replicas}
        modifiers = keda["modifiers"]
        if modifiers is None:
            pairs = zip(keda["triggers"], metrics, strict=True)
            changed["triggers"] = [{**trigger, "target": metric["target"]} for trigger, metric in pairs]
        else:
            changed["modifiers"] = {**modifiers, "target": self._target(keda)}
        return {**keda, **changed}

    def _target(self, keda: Mapping[str, Any]) -> str:
        text = keda["modifiers"]["target"]
        scaled = float(text) * self.factor
        # Beside a fallback KEDA wants a whole number, and would leave the fallback out for another.
        if keda["fallback"] is not None and text.isdecimal():
            return str(max(1, round(scaled)))
        return f"{max(0.001, round(scaled, 3)):.15g}"


DEFAULTS: Final[dict[str, Any]] = {
    "up": {
        "stabilization_s": 0,
        "select": "max",
        "policies": [{"kind": "pods", "value": 4, "period_s": 15}, {"kind": "percent", "value": 100, "period_s": 15}],
        "tolerance": None,
    },
    "down": {
        "stabilization_s": 300,
        "select": "max",
        "policies": [{"kind": "percent", "value": 100, "period_s": 15}],
        "tolerance": None,
    },
}
"""``behavior`` as Kubernetes fills it in, for a policy that has none."""


def _scaled(target: dict[str, Any], factor: float) -> dict[str, int]:
    return {kind: max(1, round(value * factor)) for kind, value in target.items()}
