"""``--set PATH=VALUE``: parts of a template by their path, before placeholders are filled in."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpusize.base.documents import parse_yaml_documents
from gpusize.base.errors import ConfigError, UsageError
from gpusize.base.text import shown
from gpusize.cluster.submit.placeholders import Quoted

__all__ = ["Override", "overridden", "parse_override"]

WHERE: Final = "--set"
_KIND: Final = re.compile(r"([A-Z][A-Za-z0-9]*):(.+)", re.DOTALL)
_PART: Final = re.compile(r"((?:[^.\[\]\\]|\\.)+)((?:\[[0-9]+\])*)(\.|\Z)")


@dataclass(frozen=True, slots=True)
class Override:
    """A value for a part of a document.

    Attributes:
        text: as it was given.
        kind: of the document; None for the last one, which is the workload.
        path: keys, and numbers of items of lists.
        value: what is put there.
    """

    text: str
    kind: str | None
    path: tuple[str | int, ...]
    value: Any


def parse_override(text: str) -> Override:
    r"""An override as it is written: ``[Kind:]path=value``.

    Parts of the path are separated by dots; a dot in a key is written ``\.``. An item of a list is its number, from 0,
    as ``containers.0`` or ``containers[0]``. The value is YAML.

    Raises:
        UsageError: it is not of this form.
    """
    path, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f'"{shown(text)}" has no value', WHERE, "write PATH=VALUE, as spec.suspend=true")
    named = _KIND.fullmatch(path)
    kind, path = (named[1], named[2]) if named else (None, path)
    try:
        documents = parse_yaml_documents(value, f"{WHERE} {shown(path)}", Quoted)
    except ConfigError as problem:
        raise UsageError(problem.what, problem.where, "give the value as YAML") from None
    if len(documents) > 1:
        raise UsageError("the value is several documents", f"{WHERE} {shown(path)}", "give one value")
    return Override(text, kind, _parts(path), documents[0] if documents else None)


def _parts(path: str) -> tuple[str | int, ...]:
    found: list[str | int] = []
    at = 0
    while at < len(path):
        match = _PART.match(path, at)
        if match is None:
            raise UsageError(
                f'"{shown(path)}" is no path', WHERE, r"write keys and numbers with dots between, a dot in a key as \."
            )
        found.append(re.sub(r"\\(.)", r"\1", match[1]))
        found += [int(number) for number in re.findall(r"[0-9]+", match[2])]
        at = match.end()
    if not path or (path.endswith(".") and not path.endswith(r"\.")):
        raise UsageError(f'"{shown(path)}" is no path', WHERE, "write PATH=VALUE, as spec.suspend=true")
    return tuple(found)


def overridden(documents: Sequence[Any], override: Override) -> list[Any]:
    """Copies of the documents of which one has the value.

    Raises:
        UsageError: no document of its kind, or a path that leads through a value that has no parts.
    """
    copies = [copy.deepcopy(each) for each in documents]
    fitting = [each for each in copies if override.kind is None or each.get("kind") == override.kind]
    if not fitting:
        kinds = ", ".join(dict.fromkeys(str(each.get("kind")) for each in copies))
        raise UsageError(f"the template has no {override.kind}", f"{WHERE} {override.text}", f"it has {kinds}")
    for target in fitting if override.kind is not None else fitting[-1:]:
        _put(target, override)
    return copies


def _put(document: Any, override: Override) -> None:
    here = document
    where = f"{WHERE} {shown(override.text, 80)}"
    for number, part in enumerate(override.path):
        led = "".join(f".{each}" for each in override.path[:number]).lstrip(".") or "the document"
        last = number == len(override.path) - 1
        at: Any
        if isinstance(here, list):
            at = _item(part, len(here), led, where)
            if at == len(here):
                here.append(None)
        elif isinstance(here, dict):
            if isinstance(part, int):
                raise UsageError(f"{led} is a table, and has no item {part}", where, "name a key")
            at = part
        else:
            raise UsageError(f"{led} is {shown(here)}, which has no parts", where, f"set {led} itself")
        if last:
            here[at] = override.value
        else:
            inner = here[at] if isinstance(here, list) else here.get(at)
            if inner is None:
                inner = here[at] = [] if isinstance(override.path[number + 1], int) else {}
            here = inner


def _item(part: str | int, length: int, led: str, where: str) -> int:
    if isinstance(part, str) and not part.isdecimal():
        raise UsageError(f'{led} is a list, and has no "{shown(part)}"', where, "name an item by its number, from 0")
    at = int(part)
    if at > length:
        raise UsageError(f"{led} has {length} items, and none of number {at}", where, f"give up to {length}")
    return at
