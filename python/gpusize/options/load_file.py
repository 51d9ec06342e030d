"""A load in a file: the options of the load, or several streams, checked with line and column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpusize.base.documents import Document, read_document
from gpusize.base.errors import ConfigError
from gpusize.base.text import did_you_mean, shown
from gpusize.base.units import as_duration_s, parse_rate
from gpusize.options.kinds import Kind, complaint
from gpusize.options.load_values import LOAD_OPTIONS, placed, stages_of, trace_of
from gpusize.workload.load import Stream

__all__ = ["LoadFile", "read_load"]

_DEFAULTS: Final[dict[str, Kind]] = {
    "dataset": "text",
    "dataset_key": "text",
    "dataset_format": "text",
    "model": "text",
}
_TOP: Final[dict[str, Kind]] = {
    **{name: kind for name, kind in LOAD_OPTIONS.items() if name != "load"},
    **_DEFAULTS,
    "streams": "any",
}
_STREAM: Final[dict[str, Kind]] = {
    "name": "text",
    "start": "duration",
    "rate": "any",
    "duration": "duration",
    "count": "whole",
    "process": "text",
    "burstiness": "number",
    "stages": "stages",
    "arrivals": "text",
    "arrivals_format": "text",
    "arrivals_from": "duration",
    "arrivals_until": "duration",
    "speed": "number",
    "rate_scale": "number",
    **_DEFAULTS,
    "priority": "whole",
    "server_priority": "whole",
}
_PATHS: Final = ("arrivals", "dataset", "plan")


@dataclass(frozen=True)
class LoadFile:
    """What a load file says.

    Args:
        document: the file, or a table from elsewhere.
        options: options of the load, ``streams`` as they are built.
    """

    document: Document
    options: dict[str, Any]

    def where(self, name: str | None) -> str:
        """File, line and column of an option; the file for None."""
        if name is None:
            return f"{self.document.source}:1"
        written = next((key for key in self.document.values if key.replace("-", "_") == name), name)
        return self.document.where(written)


def read_load(given: str | Path | Mapping[str, Any]) -> LoadFile:
    """Read a load file, or the same as a table.

    Paths in a file are relative to its folder.

    Args:
        given: a TOML, YAML or JSON file, or its contents.

    Raises:
        ConfigError: unreadable or broken, an option that a load does not have, or an invalid value; with
            line and column.
        DatasetError: a trace that cannot be read.
    """
    document = _document(given)
    if not document.values:
        raise ConfigError("the file describes no load", document.source, "write rates, stages or streams into it")
    options = _checked(document, (), document.values, _TOP)
    streams = options.pop("streams", None)
    defaults = {name: options.pop(name) for name in _DEFAULTS if name in options}
    if streams is None and defaults:
        name = next(iter(defaults))
        todo = "name it with --dataset and --model, or write it into a stream"
        raise ConfigError(f'"{name}" belongs to streams', document.where(name), todo)
    if streams is not None:
        options["streams"] = _streams(document, streams, defaults)
    return LoadFile(document, options)


def _document(given: str | Path | Mapping[str, Any]) -> Document:
    if isinstance(given, Mapping):
        return Document("load", dict(given))
    return read_document(str(given))


def _checked(
    document: Document, above: tuple[str, ...], values: Mapping[str, Any], known: Mapping[str, Kind]
) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for written, value in values.items():
        name, where = str(written).replace("-", "_"), document.where(*above, str(written))
        if name not in known:
            todo = did_you_mean(name.lower(), known, f"known are {', '.join(sorted(known))}")
            raise ConfigError(f'there is no option "{shown(written)}"', where, todo)
        if name in options:
            raise ConfigError(f'"{shown(written)}" is given twice, with - and with _', where, "give it once")
        if value is None:
            continue
        wrong = complaint(known[name], value)
        if wrong and known[name] == "stages":
            _point_at_stage(document, (*above, str(written)), value)
        if wrong:
            raise ConfigError(f'"{shown(written)}" {wrong}', where, f"it is {shown(value)} here")
        options[name] = _beside(document, value) if name in _PATHS else value
    return options


def _point_at_stage(document: Document, path: tuple[str, ...], value: Any) -> None:
    """Say which of the stages is wrong, and where in it."""
    texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    for number, text in enumerate(texts):
        where = document.where(*path) if isinstance(value, str) else document.where(*path, str(number))
        with placed(where if ":" in where else None):
            stages_of(text if isinstance(text, str) else str(text))


def _beside(document: Document, value: str) -> str:
    """A path in a file is relative to its folder; one in a table, such as run.json's, to where gpusize runs."""
    if value == "dataset" or not document.places:
        return value
    return str(Path(document.source).parent / value)


def _streams(document: Document, given: Any, defaults: Mapping[str, Any]) -> list[Stream]:
    where = document.where("streams")
    if not isinstance(given, list) or not given or not all(isinstance(each, Mapping) for each in given):
        raise ConfigError('"streams" is not a list of streams', where, "write one table for each, with its rate")
    return [_stream(document, number, table, defaults) for number, table in enumerate(given)]


def _stream(document: Document, number: int, table: Mapping[str, Any], defaults: Mapping[str, Any]) -> Stream:
    path = ("streams", str(number))
    options = {**defaults, **_checked(document, path, table, _STREAM)}
    where = document.where(*path)
    where = where if ":" in where else f"{where}, stream {number}"

    def at(name: str) -> str:
        written = next((key for key in table if key.replace("-", "_") == name), name)
        place = document.where(*path, written)
        return place if ":" in place else where

    for name in ("start", "duration", "arrivals_from", "arrivals_until"):
        if name in options:
            options[name] = as_duration_s(options[name])
    if isinstance(options.get("rate"), str):
        with placed(at("rate")):
            options["rate"] = parse_rate(options["rate"])
    if "stages" in options:
        options["stages"] = stages_of(options["stages"])
    with placed(at("arrivals")):
        trace = trace_of(options)
    if trace is not None:
        options["arrivals"] = trace
    renamed = {"start": "start_s", "duration": "duration_s"}
    with placed(where):
        return Stream(**{renamed.get(name, name): value for name, value in options.items()})
