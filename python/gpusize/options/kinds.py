"""What kind of value an option takes, whatever file it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from gpusize.base.errors import UsageError
from gpusize.base.units import as_duration_s, parse_concurrencies, parse_rate, parse_rates, parse_sample

__all__ = ["Kind", "complaint", "texts_of"]

Kind = Literal[
    "text",
    "whole",
    "number",
    "flag",
    "duration",
    "concurrencies",
    "rates",
    "stages",
    "think",
    "sample",
    "load",
    "texts",
    "table",
    "plain",
    "pairs",
    "any",
]
"""Kinds of options.

``texts`` is a text or a list of texts, ``plain`` a text or a number, ``table`` a table or its JSON as text, ``pairs`` a
table of plain values or texts such as ``name=value``; ``duration`` is a text such as ``10s`` or a number of seconds,
``think`` that or a distribution of them; ``stages`` is a text or a list of texts, ``sample`` a text such as ``1/100``,
``load`` a file's path or its contents.
"""


def complaint(kind: Kind, value: Any) -> str | None:
    """What is wrong with ``value`` as an option of this kind, None when nothing is."""
    expected, fits = _KINDS[kind]
    try:
        return None if fits(value) else f"is not {expected}"
    except UsageError as problem:
        return f"is not {expected}: {problem.what}"


def texts_of(value: str | Sequence[str] | None) -> list[str]:
    """A value of the kind ``texts`` as a list; empty for None."""
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _are_stages(value: Any) -> bool:
    from gpusize.workload.load.grammar import parse_stages

    return _is_texts(value) and all(parse_stages(text) for text in ([value] if isinstance(value, str) else value))


def _is_think(value: Any) -> bool:
    from gpusize.workload.load.grammar import parse_think

    return parse_think(value) is not None if isinstance(value, str) else _is_duration(value)


def _is_sample(value: Any) -> bool:
    return parse_sample(value) > 0


def _is_duration(value: Any) -> bool:
    return as_duration_s(value) >= 0


def _is_texts(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, Sequence) and all(isinstance(item, str) for item in value))


def _is_pairs(value: Any) -> bool:
    return _is_texts(value) or (isinstance(value, Mapping) and all(_is_plain(item) for item in value.values()))


def _are_concurrencies(value: Any) -> bool:
    if isinstance(value, str):
        return bool(parse_concurrencies(value))
    return _is_whole(value) or (isinstance(value, list) and bool(value) and all(_is_whole(item) for item in value))


def _is_rate(value: Any) -> bool:
    return parse_rate(value) > 0 if isinstance(value, str) else _is_number(value)


def _are_rates(value: Any) -> bool:
    if isinstance(value, str):
        return bool(parse_rates(value))
    return _is_rate(value) or (isinstance(value, list) and bool(value) and all(_is_rate(item) for item in value))


_KINDS: Final[dict[Kind, tuple[str, Callable[[Any], bool]]]] = {
    "text": ("a text; put it into quotes", lambda value: isinstance(value, str)),
    "whole": ("a whole number", _is_whole),
    "number": ("a number", _is_number),
    "flag": ("true or false", lambda value: isinstance(value, bool)),
    "duration": ("a duration", _is_duration),
    "concurrencies": ("a list of whole numbers", _are_concurrencies),
    "rates": ("a list of rates", _are_rates),
    "stages": ("a list of stages", _are_stages),
    "think": ("a think time", _is_think),
    "sample": ("a share such as 1/100", _is_sample),
    "load": ("the path of a file, or a table", lambda value: isinstance(value, Mapping | str)),
    "texts": ("a text or a list of texts", _is_texts),
    "table": ("a table", lambda value: isinstance(value, Mapping | str)),
    "plain": ("a text or a number", lambda value: _is_plain(value) and not isinstance(value, bool)),
    "pairs": ("a table of plain values", _is_pairs),
    "any": ("a value", lambda _: True),
}
