"""The YAML of the NeMo Agent Toolkit's sizing calculator: its dataset is read, everything else is named as ignored.

The dataset stands under ``eval.general.dataset``: ``_type``, ``file_path``, ``id_key`` and ``structure.question_key``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from gpusize.base.documents import Document, KeyPath
from gpusize.base.errors import ConfigError
from gpusize.base.text import shown

__all__ = ["calculator_options", "is_calculator"]

_PATH: Final[KeyPath] = ("eval", "general", "dataset")
_FORMATS: Final = ("json", "jsonl", "csv", "parquet")
_READ: Final = frozenset(
    (*_PATH, *rest)
    for rest in (("_type",), ("file_path",), ("id_key",), ("structure", "question_key"), ("structure", "disable"))
)
_VARIABLE: Final = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")


def is_calculator(document: Document) -> bool:
    """Whether a file is a configuration of that calculator."""
    evaluation = document.values.get("eval")
    return isinstance(evaluation, dict) and isinstance(evaluation.get("general"), dict)


def calculator_options(document: Document) -> tuple[dict[str, Any], list[str]]:
    """The options for the dataset, and what is ignored.

    Raises:
        ConfigError: no dataset, one of a kind that cannot be read, or a file that is not there.
    """
    dataset = document.values["eval"]["general"].get("dataset")
    if not isinstance(dataset, dict) or not isinstance(dataset.get("file_path"), str):
        keys = _PATH if isinstance(dataset, dict) else _PATH[:2]
        raise ConfigError("eval.general.dataset names no file", document.where(*keys), "add its file_path")
    kind = dataset.get("_type", "json")
    if kind not in _FORMATS:
        todo = f"convert the dataset to one of {', '.join(_FORMATS)}"
        raise ConfigError(f'a dataset of type "{shown(kind)}" cannot be read', document.where(*_PATH, "_type"), todo)
    found = dataset.get("structure")
    structure = found if isinstance(found, dict) else {}
    options = {
        "dataset": _existing(document, dataset["file_path"]),
        "dataset_format": kind,
        "dataset_key": "." if structure.get("disable") is True else str(structure.get("question_key", "question")),
        "dataset_id_key": str(dataset.get("id_key", "id")),
    }
    ignored = ", ".join(".".join(path) for path in _ignored(document.values, ()))
    notes = [f"{document.source}: a sizing calculator's configuration; its dataset is read"]
    if ignored:
        notes.append(f"{document.source}: ignored: {ignored}")
    return options, notes


def _existing(document: Document, written: str) -> str:
    """The file, looked for as the calculator does, from the working directory, and then beside the YAML."""
    name = Path(_expanded(document, written)).expanduser()
    beside = Path(document.source).parent / name
    for candidate in (name, beside):
        if candidate.exists():
            return str(candidate)
    where = document.where(*_PATH, "file_path")
    looked = f"{name} and {beside}" if str(name) != str(beside) else str(name)
    raise ConfigError(f"there is no such dataset; looked for {looked}", where, "correct file_path, or give --dataset")


def _expanded(document: Document, written: str) -> str:
    def value(match: re.Match[str]) -> str:
        found = os.environ.get(match["name"]) or match["default"]
        if found is None:
            where = document.where(*_PATH, "file_path")
            raise ConfigError(f"the environment variable {match['name']} is not set", where, "export it first")
        return found

    return _VARIABLE.sub(value, written)


def _ignored(values: Mapping[str, Any], above: KeyPath) -> Iterator[KeyPath]:
    """The topmost keys that lead to nothing that is read."""
    for key, value in values.items():
        path = (*above, key)
        if path in _READ:
            continue
        if isinstance(value, dict) and any(read[: len(path)] == path for read in _READ):
            yield from _ignored(value, path)
        else:
            yield path
