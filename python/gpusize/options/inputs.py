"""Options, from the command line or a file, as target, dataset and load. The inverse of their ``options()``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.secrets import parse_header
from gpusize.base.text import decode, read_bytes, shown
from gpusize.base.units import as_duration_s
from gpusize.options.kinds import Kind, texts_of
from gpusize.options.load_values import LOAD_OPTIONS
from gpusize.options.table import kinds_of
from gpusize.targets.apis import response_from_texts
from gpusize.targets.apis.generic import BODILESS
from gpusize.targets.server import Target
from gpusize.workload.dataset import Dataset

__all__ = [
    "INPUT_OPTIONS",
    "addresses_of",
    "dataset_from_options",
    "target_from_options",
]

_TARGET: Final = kinds_of("target")
_DATASET: Final = kinds_of("dataset")
INPUT_OPTIONS: Final[dict[str, Kind]] = {**_TARGET, **_DATASET, **LOAD_OPTIONS}
"""All options that this module reads, with the kind of value of each."""

_SECONDS: Final = {"timeout", "connect_timeout", "resolve_every", "duration", "warmup", "wait_between", "drain"}


def target_from_options(options: Mapping[str, Any]) -> Target | None:
    """The target that options name; None when there is no ``url``.

    ``headers`` is a table, ``header`` a list of ``Name: value``; ``response`` is a table or a list of
    ``field=pointer``; ``success`` is ``any`` where an answer need not hold what its API always has.

    Raises:
        UsageError: invalid options.
    """
    given = _given(options, _TARGET)
    urls = addresses_of(given.pop("url", []))
    if not urls:
        return None
    given |= {"url": urls[0], "replicas": tuple(urls[1:])}
    if "extra_body" in given:
        given["extra_body"] = _table(given["extra_body"], "extra_body")
    if "response" in given:
        given["response"] = response_from_texts(given["response"])
    if "success" in given:
        given["response"] = _without_rule(given.pop("success"), given.get("response", {}))
    lines = _headers(given.pop("headers", {})) + texts_of(given.pop("header", []))
    if lines:
        parsed = [parse_header(line) for line in lines]
        names = [name.lower() for name, _ in parsed]
        if len(set(names)) < len(names):
            raise UsageError("a header is given twice", "header", "give each once")
        given["headers"] = dict(parsed)
    return Target(**given)


def _without_rule(success: str, response: dict[str, Any]) -> dict[str, Any]:
    """The fields of a response without a rule of what a success holds."""
    if success != "any":
        todo = "give any, or statuses as --response success=200-204"
        raise UsageError(f'"{shown(success)}" is not a success rule', "success", todo)
    if "success_if" in response:
        raise UsageError(
            "--success any and a response rule success_if contradict each other", "success", "leave one out"
        )
    return {**response, "success_if": None}


def dataset_from_options(options: Mapping[str, Any]) -> Dataset | None:
    """The dataset that options name, a file or a single prompt; None when there is neither.

    Where a template names the fields, or a method sends no body, rows need not have one of the usual keys.

    Raises:
        UsageError: both are given.
        DatasetError: the dataset cannot be read.
    """
    given = _given(options, _DATASET)
    sources = [name for name in ("prompt", "synthetic", "dataset") if name in given]
    if len(sources) > 1:
        what = " and a ".join("synthetic dataset" if name == "synthetic" else name for name in reversed(sources))
        raise UsageError(f"a {what} are both given", sources[0], "give one of them")
    if "prompt" in given:
        return Dataset.from_prompt(given["prompt"])
    if "synthetic" in given:
        return Dataset.from_synthetic(given["synthetic"], given.get("tokenizer"))
    if "dataset" not in given:
        return None
    keyless = (
        options.get("body_template") or options.get("command") or str(options.get("method", "")).upper() in BODILESS
    )
    key, fmt = given.get("dataset_key", "." if keyless else None), given.get("dataset_format")
    id_key = given.get("dataset_id_key", "id")
    return Dataset.read(given["dataset"], key, fmt, id_key=id_key, tokenizer=given.get("tokenizer"))


def _given(options: Mapping[str, Any], names: Mapping[str, Kind]) -> dict[str, Any]:
    """The options among ``names`` that have a value, durations as seconds under the name of the Python argument."""
    given = {name: options[name] for name in names if options.get(name) is not None}
    for name in _SECONDS & given.keys():
        try:
            given[f"{name}_s"] = as_duration_s(given.pop(name))
        except UsageError as problem:
            raise UsageError(problem.what, name, problem.todo) from None
    return given


def addresses_of(value: str | Sequence[str]) -> list[str]:
    """All addresses that ``url`` names, in order.

    Raises:
        UsageError: a file of addresses cannot be read, or is empty.
    """
    return [url for item in texts_of(value) for url in _addresses(item)]


def _addresses(item: str) -> list[str]:
    """One address, or those in a file that is named as ``@FILE``, one on a line; ``#`` begins a comment."""
    if not item.startswith("@"):
        return [item]
    text = decode(read_bytes(item[1:], error=UsageError), item[1:], error=UsageError)
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    found = [line for line in lines if line]
    if not found:
        raise UsageError("the file holds no address", item[1:], "write one on each line")
    return found


def _headers(value: Mapping[str, Any] | str | Sequence[str]) -> list[str]:
    return [f"{name}: {text}" for name, text in value.items()] if isinstance(value, Mapping) else texts_of(value)


def _table(value: Any, name: str) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    try:
        parsed = json.loads(value)
    except json.JSONDecodeError as problem:
        where = f"{name}, line {problem.lineno}, column {problem.colno}"
        raise UsageError(f"broken JSON: {problem.msg}", where, 'write it as {"top_k": 20}') from None
    except (TypeError, ValueError, RecursionError) as problem:
        raise UsageError(f"broken JSON: {problem}", name, 'write it as {"top_k": 20}') from None
    if not isinstance(parsed, dict):
        raise UsageError(f"{shown(parsed)} is not an object", name, 'write it as {"top_k": 20}')
    return parsed
