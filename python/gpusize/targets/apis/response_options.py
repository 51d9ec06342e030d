"""``--response field=value``: texts of the command line as fields of a `gpusize.targets.apis.ResponseSpec`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.text import shown
from gpusize.targets.apis.server_times import times_from_text

__all__ = ["response_from_texts"]

_LISTS: Final = frozenset({"content", "reasoning"})
_PLACES: Final = frozenset({"tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning", "error"})
_TIMES: Final = frozenset({"server_queue", "server_service"})
_WRITE: Final = "write it as content=/text"


def response_from_texts(texts: Any) -> dict[str, Any]:
    """Fields of a ResponseSpec from texts; a table (of a configuration file) is taken as it is.

    ``content=/a,/b`` is a list of pointers, ``success=200-204`` a range of statuses, ``end=[DONE]`` a text,
    ``end=/type:response.completed`` and ``success_if=/status:ok`` conditions; several values of a condition are
    separated by commas, without any the value has to be there. ``success_if=content`` wants some content.
    ``server_queue=/metrics/queue_time_ms:ms`` is a time with its unit (`targets.apis.server_times.times_from_text`).
    ``error=`` switches a field off.

    Raises:
        UsageError: a text without ``=``, or an invalid one.
    """
    if isinstance(texts, Mapping):
        return dict(texts)
    if not isinstance(texts, str | Sequence) or not all(isinstance(item, str) for item in texts):
        raise UsageError(f"{shown(texts)} says nothing about a response", "response", _WRITE)
    result: dict[str, Any] = {}
    for item in [texts] if isinstance(texts, str) else texts:
        name, equals, text = item.partition("=")
        if not equals:
            raise UsageError(f'"{shown(item)}" has no =', "response", _WRITE)
        result[name.strip()] = _value(name.strip(), text.strip())
    return result


def _value(name: str, text: str) -> Any:
    if name in _LISTS:
        return [pointer.strip() for pointer in text.split(",") if pointer.strip()]
    if not text:
        return None
    if name in _PLACES:
        pointers = [pointer.strip() for pointer in text.split(",") if pointer.strip()]
        return pointers[0] if len(pointers) == 1 else pointers
    if name in _TIMES:
        return times_from_text(text, f"response {name}")
    if name == "success":
        return _statuses(text)
    if name == "calls":
        raise UsageError("calls has several parts", "response", "write it as a table in a configuration file")
    if name == "success_if" and text == "content":
        return text
    if name == "success_if" or (name == "end" and text.startswith("/")):
        return _condition(text)
    return text


def _statuses(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    if not low.isdecimal() or not (high or low).isdecimal():
        raise UsageError(f'"{shown(text)}" is not a range of statuses', "response", "write it as success=200-299")
    return int(low), int(high or low)


def _condition(text: str) -> dict[str, Any]:
    pointer, colon, wanted = text.partition(":")
    if not colon:
        return {"at": pointer, "is": None}
    values = [value for each in wanted.split(",") for value in _meanings(each.strip())]
    return {"at": pointer, "is": values}


def _meanings(text: str) -> list[Any]:
    """What a word may be in JSON: the text, and also the number or truth value that it spells."""
    if text in {"true", "false"}:
        return [text, text == "true"]
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return [text, number] if number - number == 0 else [text]
    return [text]
