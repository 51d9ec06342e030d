"""Placeholders in templates: ``${name}`` becomes a value in the tree that was read, never in its text.

So a value can bring no YAML with it, and a number stays one: a scalar that is one placeholder and nothing else, without
quotes, takes the value's own type; in quotes, or inside a longer text, it becomes text. ``$${`` stands for ``${``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.text import did_you_mean, shown

__all__ = ["NAMES", "Quoted", "fill", "modernised", "placeholders"]

NAMES: Final = ("name", "index", "run", "prefix", "project", "namespace", "gpus", "workers", "queue", "rank")
"""What a template may ask for; ``rank`` is the number of a document that is repeated."""

_NAME: Final = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_OLD: Final = {
    "JOB_NAME_PLACEHOLDER": "name",
    "PROJECT_PLACEHOLDER": "project",
    "NUM_WORKERS_PLACEHOLDER": "workers",
    "NUM_GPUS": "gpus",
}
"""Words of the Run:ai scale test tool's templates."""
_OLD_WORD: Final = re.compile("|".join(_OLD))


class Quoted(str):
    """A text that stood in quotes: what is put into it stays text."""

    __slots__ = ()


def fill(tree: Any, values: Mapping[str, str | int | float], source: str) -> Any:
    """A copy of ``tree`` with its placeholders filled in, keys among them.

    Args:
        tree: of mappings, lists and scalars.
        values: what the placeholders stand for.
        source: the template, for errors.

    Raises:
        UsageError: a placeholder without a value.
    """
    if isinstance(tree, str):
        return _filled(tree, values, source)
    if isinstance(tree, Mapping):
        return {str(_filled(Quoted(key), values, source)): fill(item, values, source) for key, item in tree.items()}
    if isinstance(tree, list):
        return [fill(item, values, source) for item in tree]
    return tree


def _filled(text: str, values: Mapping[str, str | int | float], source: str) -> str | int | float:
    if "${" not in text:
        return str(text)

    def value(found: re.Match[str]) -> str | int | float:
        if found[1] is None:
            return "${"
        if found[1] not in values:
            todo = did_you_mean(found[1], values, f"there are {', '.join(values)}")
            raise UsageError(
                f"there is no placeholder ${{{shown(found[1])}}}", source, f"{todo}; for the text write $${{"
            )
        return values[found[1]]

    whole = None if isinstance(text, Quoted) else _NAME.fullmatch(text)
    return value(whole) if whole else _NAME.sub(lambda found: str(value(found)), text)


def placeholders(tree: Any) -> set[str]:
    """The names that a tree asks for."""
    return {found[1] for text in _texts(tree) for found in _NAME.finditer(text) if found[1] is not None}


def modernised(documents: list[Any]) -> list[Any]:
    """A template of the Run:ai scale test tool with placeholders of ours; any other one as it is."""
    if not any("JOB_NAME_PLACEHOLDER" in text for text in _texts(documents)):
        return documents

    def put(tree: Any) -> Any:
        if isinstance(tree, str):
            kind = Quoted if isinstance(tree, Quoted) else str
            return kind(_OLD_WORD.sub(lambda found: f"${{{_OLD[found[0]]}}}", tree.replace("${", "$${")))
        if isinstance(tree, Mapping):
            return {put(key): put(item) for key, item in tree.items()}
        return [put(item) for item in tree] if isinstance(tree, list) else tree

    return [put(each) for each in documents]


def _texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, Mapping):
        for key, item in tree.items():
            yield str(key)
            yield from _texts(item)
    elif isinstance(tree, list):
        for item in tree:
            yield from _texts(item)
