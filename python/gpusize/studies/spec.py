"""What a study file says, checked before anything is started."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpusize.base.documents import Document, read_document
from gpusize.base.errors import ConfigError, UsageError
from gpusize.base.text import shown
from gpusize.base.units import as_duration_s
from gpusize.studies.placeholders import Scalar, split_command, unknown_names

__all__ = ["BUILT_IN", "Combination", "Study", "read_study"]

Command = tuple[str, ...]

BUILT_IN: Final = ("study", "work", "combination", "python")
"""Placeholders beside the settings: the study's folder, the combination's own folder in it, the combination's name,
and the Python that gpusize runs on."""

_KEYS: Final = ("name", "out", "settings", "exclude", "setup", "serve", "ready", "warmup", "run", "teardown")
_TIMEOUTS_S: Final = {"setup": 600.0, "ready": 600.0, "warmup": math.inf, "run": math.inf, "teardown": 120.0}
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST: Final = 10_000


@dataclass(frozen=True)
class Combination:
    """One value for each setting."""

    settings: Mapping[str, Scalar]

    @property
    def name(self) -> str:
        """Such as ``instances=2,gpus=4``; fit for the name of a folder."""
        text = ",".join(f"{key}={value}" for key, value in self.settings.items()) or "all"
        return re.sub(r"[^A-Za-z0-9=.,_+-]", "_", text)[:200]


@dataclass(frozen=True)
class Study:
    """A study file.

    Args:
        source: the file's path.
        name: the study's name.
        out: its folder.
        combinations: in the order in which they are measured.
        setup: commands that prepare a combination, one after the other.
        serve: a command that is kept running while the combination is measured, or None.
        ready: an address that answers 200 when all is ready, or the words of a command that then ends with 0, or None.
        warmup: options of a run that is thrown away, over those of ``run``; None for no such run.
        run: options of ``gpusize run``, with placeholders.
        teardown: commands that undo ``setup``; they run always.
        timeouts_s: longest time of each step.
        document: the file, for the places of its keys.
    """

    source: str
    name: str
    out: Path
    combinations: tuple[Combination, ...]
    setup: tuple[Command, ...] = ()
    serve: Command | None = None
    ready: str | Command | None = None
    warmup: Mapping[str, Any] | None = None
    run: Mapping[str, Any] = field(default_factory=dict)
    teardown: tuple[Command, ...] = ()
    timeouts_s: Mapping[str, float] = field(default_factory=lambda: dict(_TIMEOUTS_S))
    document: Document = field(default_factory=lambda: Document("study", {}), compare=False)

    @property
    def fingerprint(self) -> str:
        """Equal for studies whose combinations are measured in the same way."""
        parts = [self.setup, self.serve, self.ready, self.warmup, self.run]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def read_study(path: str | Path, out: str | Path | None = None) -> Study:
    """Read a study file: YAML, TOML or JSON.

    Args:
        path: the file.
        out: the study's folder; None for what the file says, else ``studies/<name of the file>``.

    Raises:
        ConfigError: unreadable, broken or invalid, with line and column.
    """
    file = Path(path)
    document = read_document(str(path))
    values = {str(key).replace("-", "_"): value for key, value in document.values.items()}
    known = {*_KEYS, *(f"{step}_timeout" for step in _TIMEOUTS_S)}
    for key in document.values:
        if key.replace("-", "_") not in known:
            raise ConfigError(
                f'a study has no "{shown(key)}"', document.where(key), f"known are {', '.join(sorted(known))}"
            )
    name = _text(values.get("name", file.stem), "name", document)
    named_out = out if out is not None else values.get("out", f"studies/{file.stem}")
    combinations = _combinations(values, document)
    for key in ("run", "warmup"):
        if not isinstance(values.get(key, {}), Mapping):
            raise ConfigError(
                f'"{key}" is {shown(values[key])}, not a table', document.where(key), "write option: value"
            )
    if not values.get("run"):
        raise ConfigError("there is nothing to run", document.where("run"), "give the options of gpusize run in run:")
    _check_names(values, set(combinations[0].settings) | set(BUILT_IN), document)
    return Study(
        source=str(path),
        name=name,
        out=Path(_text(named_out, "out", document) if out is None else out),
        combinations=combinations,
        setup=_commands(values.get("setup"), "setup", document),
        serve=next(iter(_commands(values.get("serve"), "serve", document, most=1)), None),
        ready=_ready(values.get("ready"), document),
        warmup=values.get("warmup"),
        run=values["run"],
        teardown=_commands(values.get("teardown"), "teardown", document),
        timeouts_s=_timeouts(values, document),
        document=document,
    )


def _combinations(values: Mapping[str, Any], document: Document) -> tuple[Combination, ...]:
    """The product of a table of lists, or a list of tables, without what is excluded."""
    given = values.get("settings", {})
    where = document.where("settings")
    if isinstance(given, Mapping):
        lists = {str(key): item if isinstance(item, list) else [item] for key, item in given.items()}
        if math.prod(len(items) for items in lists.values()) > _MOST:
            raise ConfigError(f"more than {_MOST} combinations", where, "give fewer values")
        tables = [dict(zip(lists, chosen, strict=True)) for chosen in itertools.product(*lists.values())]
    elif isinstance(given, list) and given and all(isinstance(item, Mapping) for item in given):
        tables = [{str(key): value for key, value in item.items()} for item in given]
    else:
        raise ConfigError(f'"settings" is {shown(given)}', where, "write a table of lists, or a list of tables")
    for table in tables:
        _check_table(table, tables[0], where)
    excluded = values.get("exclude", [])
    rules = [excluded] if isinstance(excluded, Mapping) else excluded
    if not isinstance(rules, list) or not all(isinstance(rule, Mapping) and rule for rule in rules):
        raise ConfigError('"exclude" is not a list of tables', document.where("exclude"), "write - {instances: 4}")
    for rule in rules:
        if not set(rule) <= set(tables[0] if tables else ()):
            raise ConfigError(f"{shown(rule)} names no setting", document.where("exclude"), "use the settings' names")
    kept = [table for table in tables if not any(_matches(table, rule) for rule in rules)]
    if not kept:
        raise ConfigError("no combination is left", where, "give values for every setting, and exclude fewer")
    made = [Combination(table) for table in kept]
    names = [each.name for each in made]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ConfigError(f"the combination {name} is given twice", where, "give each value once")
    return tuple(made)


def _matches(table: Mapping[str, Any], rule: Mapping[str, Any]) -> bool:
    return all(table[key] in (value if isinstance(value, list) else [value]) for key, value in rule.items())


def _check_table(table: Mapping[str, Any], first: Mapping[str, Any], where: str) -> None:
    if set(table) != set(first):
        raise ConfigError(f"{shown(table)} has other settings than {shown(first)}", where, "give all of them in each")
    for key, value in table.items():
        if not _IDENTIFIER.fullmatch(key) or key in BUILT_IN:
            todo = f"use letters, digits and _, and none of {', '.join(BUILT_IN)}"
            raise ConfigError(f'"{shown(key)}" cannot be the name of a setting', where, todo)
        if not isinstance(value, Scalar) or (isinstance(value, float) and not math.isfinite(value)):
            raise ConfigError(f'"{key}" is {shown(value)}', where, "a setting is a text, a number, true or false")


def _commands(value: Any, key: str, document: Document, most: int | None = None) -> tuple[Command, ...]:
    """A text is one command, a list one for each text."""
    if value is None:
        return ()
    where = document.where(key)
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(f'"{key}" is {shown(value)}', where, "write a command, or a list of commands")
    if most is not None and len(texts) > most:
        raise ConfigError(f'"{key}" is one command', where, "start the others in setup")
    return tuple(split_command(text, where) for text in texts)


def _ready(value: Any, document: Document) -> str | Command | None:
    if value is None:
        return None
    text = _text(value, "ready", document)
    return text if text.startswith(("http://", "https://")) else split_command(text, document.where("ready"))


def _timeouts(values: Mapping[str, Any], document: Document) -> dict[str, float]:
    found = dict(_TIMEOUTS_S)
    for step in _TIMEOUTS_S:
        key = f"{step}_timeout"
        if values.get(key) is not None:
            written = key if key in document.values else key.replace("_", "-")
            try:
                found[step] = as_duration_s(values[key])
            except UsageError as problem:
                raise ConfigError(problem.what, document.where(written), problem.todo) from None
    return found


def _text(value: Any, key: str, document: Document) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f'"{key}" is {shown(value)}, not a text', document.where(key), "put it into quotes")
    return value


def _check_names(values: Mapping[str, Any], names: set[str], document: Document) -> None:
    for key in ("setup", "serve", "ready", "warmup", "run", "teardown"):
        unknown = unknown_names(values.get(key), names)
        if unknown:
            raise ConfigError(
                f'"{key}" has {{{unknown[0]}}}, which is not a setting',
                document.where(key),
                f"known are {', '.join(sorted(names))}; {{{{ and }}}} stand for braces",
            )
