"""A policy's manifest with other settings: what is not changed stays as it was written, comments too."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import ConfigError
from gpusize.base.files import write_atomic
from gpusize.base.text import read_text
from gpusize.estimate.plan.autoscale.manifest import KINDS

if TYPE_CHECKING:
    from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler

__all__ = ["rewritten", "write_policy"]

_INDENTED: Final = re.compile(r"^( *)[^ #\n-][^\n]*:[ ]*\n\1 +- ", re.MULTILINE)
"""A list that stands further in than its key."""


def write_policy(source: Path, autoscaler: Autoscaler, out: Path) -> Path:
    """Write the manifest of ``source`` with the targets, window and least replicas of a policy.

    Raises:
        ConfigError: the manifest has several policies, or cannot be read.
        StoreError: the file cannot be written.
    """
    write_atomic(out, rewritten(read_text(str(source), error=ConfigError), autoscaler, str(source)).encode())
    return out


def rewritten(text: str, autoscaler: Autoscaler, source: str) -> str:
    """The text of a manifest with the settings of a policy; all its documents, in their order."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 1 << 16
    if _INDENTED.search(text):
        yaml.indent(mapping=2, sequence=4, offset=2)
    documents = list(yaml.load_all(text))
    policies = [each for each in documents if isinstance(each, dict) and each.get("kind") in KINDS]
    if len(policies) != 1:
        raise ConfigError(f"it has {len(policies)} policies, and one is to be written", source, "give a file with one")
    _HOW[policies[0]["kind"]](policies[0]["spec"], autoscaler)
    out = io.StringIO()
    yaml.dump_all(documents, out)
    return out.getvalue()


def _hpa(spec: Any, autoscaler: Autoscaler) -> None:
    policy = autoscaler.policy
    spec["minReplicas"] = policy["min_replicas"]
    for metric, wanted in zip(spec["metrics"], policy["metrics"], strict=True):
        [(kind, milli)] = wanted["target"].items()
        metric[wanted["source"]]["target"]["value" if kind == "value" else "averageValue"] = _quantity(milli)
    _window(spec, policy)


def _scaled_object(spec: Any, autoscaler: Autoscaler) -> None:
    keda: Any = autoscaler.keda
    spec["minReplicaCount"] = keda["min_replicas"]
    for trigger, wanted in zip(spec["triggers"], keda["triggers"], strict=True):
        [milli] = wanted["target"].values()
        trigger["metadata"]["threshold"] = f"{milli / 1000:.15g}"
    if keda["modifiers"] is not None:
        spec["advanced"]["scalingModifiers"]["target"] = keda["modifiers"]["target"]
    _window(_within(_within(spec, "advanced"), "horizontalPodAutoscalerConfig"), autoscaler.policy)


def _window(place: Any, policy: Any) -> None:
    down = _within(_within(place, "behavior"), "scaleDown")
    down["stabilizationWindowSeconds"] = policy["behavior"]["down"]["stabilization_s"]


def _within(table: Any, key: str) -> Any:
    if table.get(key) is None:
        table[key] = {}
    return table[key]


def _quantity(milli: int) -> str:
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


_HOW = {"HorizontalPodAutoscaler": _hpa, "ScaledObject": _scaled_object}
