"""What ``run.json`` and ``level.json`` may hold: one schema for all who read them.

Fields that are not known here may hold any JSON, so that files of newer versions with the same schema number are read.
The fields are described in ``docs/reference/run-folder.md``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final, NoReturn

from gpusize.base.errors import StoreError
from gpusize.base.regular_files import read_regular
from gpusize.base.shapes import (
    Check,
    Wrong,
    anything,
    fields,
    flag,
    items,
    mapping,
    number,
    one_of,
    optional,
    text,
    whole,
)
from gpusize.records.schema import OUTCOMES

__all__ = ["SCHEMA", "STATES", "read_checked"]

SCHEMA: Final = 1
"""Version of the run folder, ``run.json`` and ``level.json`` that this version writes; it reads this one and older."""

STATES: Final = ("open", "done", "interrupted", "cancelled", "partial")

_MOST_GPUS: Final = 1_000_000
_MOST_USERS: Final = 100_000_000
_RATE: Final = number(0)
_NAME: Final = optional(text())


def _slos(value: Any, place: str) -> None:
    (text() if isinstance(value, str) else items(text()))(value, place)


def _part(value: Any, place: str) -> None:
    """The name of a part, relative to the level's folder and inside it."""
    text()(value, place)
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in value:
        raise Wrong(place, "this is not the name of a file inside the level's folder")


def _digests(value: Any, place: str) -> None:
    mapping(text())(value, place)
    for name in value:
        _part(name, place)


def _process(value: Any, place: str) -> None:
    optional(text())(value, place)


_SHAPE: Final = {
    "process": _process,
    "shape": optional(number(0)),
    "from_rate": optional(_RATE),
    "to_rate": optional(_RATE),
    "start_s": optional(number(0)),
}
_BURSTS: Final = fields({"rate": _RATE}, {"every_s": number(0), "length_s": number(0)})
_STREAM: Final = fields(
    {},
    {
        **_SHAPE,
        "id": whole(0, 65535),
        "name": _NAME,
        "rate": optional(_RATE),
        "bursts": optional(_BURSTS),
        "phases": optional(items(mapping(optional(number(0))))),
    },
)
_SETTING_KNOWN: Final[Mapping[str, Check]] = {
    **_SHAPE,
    "concurrency": optional(whole(1, _MOST_USERS)),
    "rate": optional(_RATE),
    "from": optional(whole(0, _MOST_USERS)),
    "think_s": optional(number(0)),
    "think": _NAME,
    "unit": _NAME,
    "passes": optional(whole(0)),
    "count": optional(whole(0)),
    "duration_s": optional(number(0)),
    "expected": optional(whole(0)),
    "expected_about": optional(whole(0)),
    "bursts": optional(_BURSTS),
    "streams": optional(items(_STREAM)),
    "overload": _NAME,
    "queue": optional(whole(0)),
    "connections": optional(whole(0)),
    "stage": optional(whole(0)),
    "at_s": optional(number(0)),
}


def _setting(value: Any, place: str) -> None:
    """A setting; empty only in a level that was recovered without its note."""
    fields({}, {**_SETTING_KNOWN, "kind": one_of("closed", "open")})(value, place)
    needed = {"closed": "concurrency", "open": "rate"}.get(value.get("kind", ""))
    if needed is not None and value.get(needed) is None:
        raise Wrong(f"{place}.{needed}", "this field is missing")


_TARGET: Final = fields(
    {},
    {
        "url": _NAME,
        "api": _NAME,
        "nature": _NAME,
        "model": _NAME,
        "gpus": optional(whole(0, _MOST_GPUS)),
        "tls_verified": optional(flag),
        "simulated": optional(mapping(anything)),
    },
)
_ADDRESS: Final = fields({"target": whole(0), "address": text(), "connections": whole(0)}, {})
_RUN: Final = fields(
    {"schema": whole(0)},
    {
        "gpusize": _NAME,
        "run": text(),
        "created": _NAME,
        "command": optional(items(text())),
        "options": optional(
            fields({}, {"slo": optional(_slos), "slos": optional(_slos), "users": optional(number(0))})
        ),
        "targets": optional(items(_TARGET)),
        "models": optional(items(_NAME)),
        "hosts": optional(items(mapping(anything))),
        "dataset": optional(fields({}, {"source": _NAME, "rows": optional(whole(0)), "sha256": _NAME})),
        "seed": optional(whole(0, 2**64 - 1)),
        "labels": optional(mapping(text())),
        "addresses": optional(items(_ADDRESS)),
        "levels": optional(items(_setting)),
        "adaptive": optional(mapping(anything)),
        "source": optional(mapping(anything)),
        "lost_output": optional(mapping(text())),
    },
)

_NS: Final = optional(whole(-(2**62), 2**62))
_INTERVAL: Final = fields(
    {"name": one_of("warmup", "steady", "drain"), "start_ns": whole(-(2**62)), "end_ns": whole(-(2**62))},
    {"method": _NAME},
)
_ERROR: Final = fields(
    {}, {"id": whole(0), "outcome": text(), "status": optional(whole(0)), "message": _NAME, "count": whole(0)}
)
_NUMBERS: Final = mapping(optional(number()))
_FIGURES: Final = ("mean", "min", "max", "first", "last", "delta", "rate", "over_s")
_SERVER: Final = fields(
    {"metric": text(), "labels": _NAME, "unit": _NAME, "source": _NAME},
    {**{name: optional(number()) for name in _FIGURES}, "n": optional(whole(0))},
)


_SAMPLING: Final = fields(
    {"source": text(), **dict.fromkeys(("readings", "failures", "missed"), whole(0))}, {"last_failure": _NAME}
)
_MODEL: Final = fields(
    {},
    {
        **dict.fromkeys(("model", "version"), _NAME),
        **dict.fromkeys(("requests", "failed", "inferences", "executions"), optional(whole(0))),
        **dict.fromkeys(("cache_hits", "cache_misses"), optional(whole(0))),
        **dict.fromkeys(("mean_batch", "request_s", "queue_s", "execution_s", "busy_s"), optional(number())),
        **dict.fromkeys(("compute_input_s", "compute_infer_s", "compute_output_s"), optional(number())),
        "restarted": optional(flag),
    },
)


def _resource(value: Any, place: str) -> None:
    """A row of numbers, but for what names it."""
    names = ("source", "kind", "mem_peak_from")
    fields({}, dict.fromkeys(names, _NAME))(value, place)
    _NUMBERS({key: each for key, each in value.items() if key not in names}, place)


def _outcomes(value: Any, place: str) -> None:
    mapping(whole(0))(value, place)
    for name in value:
        one_of(*OUTCOMES)(name, place)


_LEVEL: Final = fields(
    {"schema": whole(0), "visit": whole(0, 2**32 - 1), "state": one_of(*STATES), "setting": _setting},
    {
        "step": whole(0),
        "search": optional(fields({}, {"why": text(), "part": optional(whole(0)), "of": _NAME})),
        "stop_reason": _NAME,
        "intervals": optional(items(_INTERVAL)),
        "alerts": items(text()),
        "flags": optional(items(text())),
        **dict.fromkeys(("start_ns", "close_ns", "end_ns", "residence_ns"), _NS),
        **dict.fromkeys(("due", "sent", "asked_again", "rows", "connects", "reconnects", "cpu_ns"), optional(whole(0))),
        **dict.fromkeys(("stalled_ns", "longest_stall_ns"), optional(whole(0))),
        "machine": optional(mapping(whole(0))),
        "hosts": optional(items(mapping(anything))),
        "addresses": optional(items(_ADDRESS)),
        "sampled": optional(whole(1)),
        "workers": optional(whole(0)),
        "outcomes": optional(_outcomes),
        **dict.fromkeys(("parts", "second_parts", "histogram_parts", "span_parts"), optional(items(_part))),
        "checksums": optional(_digests),
        "write_error": _NAME,
        "errors": items(_ERROR),
        "spans": optional(whole(0)),
        "resources": optional(items(_resource)),
        "server": optional(items(_SERVER)),
        "sampling": optional(items(_SAMPLING)),
        "models": optional(items(_MODEL)),
        "generator": optional(mapping(anything)),
        "cluster_lateness_p99_s": optional(number()),
        "imported": flag,
        "due_known": flag,
        "percentiles": optional(_NUMBERS),
        "items": optional(mapping(_NUMBERS)),
        "counts": optional(mapping(optional(number(0)))),
        **dict.fromkeys(("total_runtime_s", "achieved_rate", "inferences_rate"), optional(number(0))),
    },
)
_KINDS: Final[Mapping[str, Check]] = {"run.json": _RUN, "level.json": _LEVEL}
_TODO: Final = {
    "run.json": "restore it from a copy, or leave this run out",
    "level.json": "restore it from a copy; gpusize estimate, plan and report leave the level out with --skip-damaged",
}


def read_checked(file: Path) -> dict[str, Any]:
    """The contents of a ``run.json`` or ``level.json``, each field what the schema says.

    Raises:
        StoreError: no regular file, unreadable, no JSON, written by a newer gpusize, or a wrong field, which is named.
    """
    data = read_regular(file, todo=_TODO[file.name])
    try:
        content = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError:
        raise _damaged(file, "broken JSON: nested too deeply") from None
    except ValueError as error:
        raise _damaged(file, f"not valid JSON: {str(error)[:200]}") from None
    schema = content.get("schema") if isinstance(content, dict) else None
    if isinstance(schema, bool) or not isinstance(schema, int):
        raise _damaged(file, "not a file of a run folder: it names no schema version")
    if schema > SCHEMA:
        what = f"written with schema {schema} by a newer gpusize; this one reads up to {SCHEMA}"
        raise StoreError(what, str(file), "update gpusize")
    try:
        _KINDS[file.name](content, "")
    except Wrong as wrong:
        raise _damaged(file, str(wrong)) from None
    return dict(content)


def _damaged(file: Path, what: str) -> StoreError:
    return StoreError(what, str(file), _TODO[file.name])


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
