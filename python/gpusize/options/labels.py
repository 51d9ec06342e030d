"""Labels of runs as texts name them. What reads runs needs nothing else of the options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpusize.base.errors import UsageError
from gpusize.base.text import shown

__all__ = ["labels_of"]


def labels_of(value: Mapping[str, Any] | str | Sequence[str] | None) -> dict[str, str]:
    """Labels from a table or from texts such as ``gpu=H200``.

    Raises:
        UsageError: a text without a key or without ``=``.
    """
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return {str(key): str(text) for key, text in value.items()}
    labels = {}
    for each in [value] if isinstance(value, str) else value:
        key, equals, text = each.partition("=")
        if not equals or not key.strip():
            raise UsageError(f'"{shown(each)}" is not a label', "label", "write it as key=value")
        labels[key.strip()] = text.strip()
    return labels
