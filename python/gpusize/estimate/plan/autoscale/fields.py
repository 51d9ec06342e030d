"""Fields of manifests, with errors that say where."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gpusize.base.errors import ConfigError
from gpusize.base.text import shown
from gpusize.estimate.plan.autoscale.quantity import milli

__all__ = ["integer", "quantity", "real", "real_milli", "table", "truth", "word"]


def table(values: Any, key: str, place: str) -> Mapping[str, Any]:
    """A table that has to be there."""
    found = values.get(key) if isinstance(values, Mapping) else None
    if not isinstance(found, Mapping):
        raise ConfigError(f"it has no {key}", place, "correct it there")
    return found


def integer(values: Any, key: str, default: int, place: str) -> int:
    """A whole number from 0."""
    found = values.get(key, default) if isinstance(values, Mapping) else None
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise _wrong(f"{key} must be a whole number from 0, not {shown(str(found), 40)}", place)
    return found


def word(values: Any, key: str, words: Mapping[str, str], place: str) -> str:
    """One of some words, as ours."""
    found = values.get(key) if isinstance(values, Mapping) else None
    if not isinstance(found, str) or found not in words:
        raise _wrong(f"{key} must be one of {', '.join(words)}, not {shown(str(found), 40)}", place)
    return words[found]


def quantity(values: Mapping[str, Any], key: str, place: str) -> int:
    """A quantity of Kubernetes that is not below 0, in thousandths."""
    found = values.get(key)
    value = None if found is None else milli(found)
    if value is None or value < 0:
        raise _wrong(f"{key} must be a quantity, as 500m or 16, not {shown(str(found), 40)}", place)
    return value


def real(values: Mapping[str, Any], key: str, default: float | None, place: str) -> float:
    """A number as KEDA reads one: without a suffix, also in quotes."""
    found = values.get(key, default)
    try:
        value = math.nan if isinstance(found, bool) or found is None else float(found)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise _wrong(f"{key} must be a number, as 16 or 0.7, not {shown(str(found), 40)}", place)
    return value


def real_milli(values: Mapping[str, Any], key: str, place: str) -> int:
    """A number from 0 in thousandths, rounded as KEDA does (``GetMetricTargetMili``)."""
    value = real(values, key, None, place)
    if value < 0:
        raise _wrong(f"{key} must be 0 or more, not {value:g}", place)
    return int(f"{value:.3f}".replace(".", ""))


def truth(values: Mapping[str, Any], key: str, place: str, *, default: bool) -> bool:
    """True or false, also in quotes and as Go spells them."""
    found = str(values.get(key, default)).lower()
    if found not in ("true", "t", "1", "false", "f", "0"):
        raise _wrong(f"{key} must be true or false, not {shown(found, 40)}", place)
    return found in ("true", "t", "1")


def _wrong(what: str, place: str) -> ConfigError:
    return ConfigError(what, place, "correct it there")
