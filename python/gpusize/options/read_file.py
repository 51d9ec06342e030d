"""Reads a configuration file and holds it against the options that a command has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpusize.base.documents import Document, read_document
from gpusize.base.errors import ConfigError
from gpusize.base.text import did_you_mean, is_file, shown
from gpusize.options.calculator_file import calculator_options, is_calculator
from gpusize.options.kinds import Kind, complaint

__all__ = ["Config", "load_config"]


@dataclass(frozen=True)
class Config:
    """Options from a file.

    Args:
        source: the file's path.
        options: values by option name, with underscores; checked for their kind, not converted.
        notes: what the user should know, such as what was ignored.
        places: file, line and column of each option.
        names_target: whether the file is of a kind that may name what is measured; the sizing calculator's does not.
    """

    source: str
    options: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    places: Mapping[str, str] = field(default_factory=dict)
    names_target: bool = True

    def where(self, option: str) -> str:
        """File, line and column of an option; the file when it has no place of its own."""
        return self.places.get(option, self.source)


def load_config(path: str | Path, known: Mapping[str, Kind]) -> Config:
    """Read options from a TOML, YAML or JSON file.

    A run's ``run.json``, or its folder, gives that run's options. The sizing calculator's YAML gives its dataset. An
    option with the value null counts as not given. Names may be written with dashes or underscores.

    Args:
        path: the file.
        known: the command's options, with underscores, and the kind of value of each.

    Raises:
        ConfigError: unreadable or broken, an option that the command does not have, or a value of the wrong kind;
            with line and column.
    """
    file = Path(path)
    if is_file(file / "run.json"):
        file /= "run.json"
    document = read_document(str(file))
    if is_calculator(document) and "eval" not in known:
        options, notes = calculator_options(document)
        mine = {name: value for name, value in options.items() if name in known}
        return Config(document.source, mine, notes, names_target=False)
    if _is_run(document):
        return _from_run(document, known)
    return _from_options(document, known)


def _is_run(document: Document) -> bool:
    return "schema" in document.values and isinstance(document.values.get("options"), dict)


def _from_run(document: Document, known: Mapping[str, Kind]) -> Config:
    stored = Document(document.source, document.values["options"], document.places)
    mine = {name: value for name, value in stored.values.items() if name in known}
    left = [name for name in stored.values if name not in known]
    notes = [f"{document.source}: repeats run {shown(document.values.get('run', '?'))}"]
    if left:
        notes.append(f"{document.source}: ignored, as this version has no such option: {', '.join(left)}")
    checked = _from_options(Document(stored.source, mine, stored.places), known)
    return Config(checked.source, checked.options, notes, checked.places)


def _from_options(document: Document, known: Mapping[str, Kind]) -> Config:
    options: dict[str, Any] = {}
    places: dict[str, str] = {}
    for written, value in document.values.items():
        name, where = written.replace("-", "_"), document.where(written)
        if name not in known:
            raise _unknown(written, value, where, known)
        if name in places:
            raise ConfigError(f'"{shown(written)}" is given twice, with - and with _', where, "give it once")
        places[name] = where
        if value is None:
            continue
        wrong = complaint(known[name], value)
        if wrong:
            raise ConfigError(f'"{shown(written)}" {wrong}', where, f"it is {shown(value)} here")
        options[name] = value
    return Config(document.source, options, [], places)


def _unknown(written: str, value: Any, where: str, known: Mapping[str, Kind]) -> ConfigError:
    if isinstance(value, Mapping) and any(key.replace("-", "_") in known for key in value):
        todo = "options stand at the top level of the file, not in tables"
    else:
        name = written.replace("-", "_").lower()
        todo = did_you_mean(name, known, f"known are {', '.join(sorted(known))}")
    return ConfigError(f'there is no option "{shown(written)}"', where, todo)
