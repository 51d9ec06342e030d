"""Whether a document is valid against a JSON schema, for the words that the schemas here use; others are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_SAYS_NOTHING = {"title", "description", "default", "discriminator", "$defs", "examples", "ge"}
_CHECKED = {
    *("$ref", "anyOf", "oneOf", "const", "enum", "type", "required", "properties", "additionalProperties", "items"),
    *("minimum", "exclusiveMinimum", "format"),
}
_TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def problems(  # noqa: C901, PLR0912 -- a branch for each word of schemas
    value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], at: str = "$"
) -> Iterator[str]:
    """What is wrong, and where."""
    unknown = set(schema) - _CHECKED - _SAYS_NOTHING
    assert not unknown, f"{at}: the schema says {unknown}, which nobody checks"
    if "$ref" in schema:
        yield from problems(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root, at)
    for word in ("anyOf", "oneOf"):
        if word in schema:
            tried = [list(problems(value, each, root, at)) for each in schema[word]]
            fitting = sum(not each for each in tried)
            if not fitting or (word == "oneOf" and fitting > 1):
                yield f"{at}: {fitting} of {word} fit: {tried}"
    if "const" in schema and value != schema["const"]:
        yield f"{at}: {value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    if "type" in schema and not _is(value, schema["type"]):
        yield f"{at}: {value!r} is no {schema['type']}"
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and (value < schema.get("minimum", value) or value <= schema.get("exclusiveMinimum", value - 1)):
        yield f"{at}: {value} is too small"
    if isinstance(value, list) and "items" in schema:
        for number, each in enumerate(value):
            yield from problems(each, schema["items"], root, f"{at}[{number}]")
    if isinstance(value, dict):
        known = schema.get("properties", {})
        yield from (f"{at}: {name} is missing" for name in schema.get("required", ()) if name not in value)
        for name, each in value.items():
            if name in known:
                yield from problems(each, known[name], root, f"{at}.{name}")
            elif schema.get("additionalProperties", True) is False:
                yield f"{at}: {name} is not allowed"
    json.dumps(value, allow_nan=False)


def _is(value: Any, name: str) -> bool:
    if name in ("integer", "number"):
        plain = isinstance(value, int) or (name == "number" and isinstance(value, float))
        return plain and not isinstance(value, bool)
    return isinstance(value, _TYPES[name])
