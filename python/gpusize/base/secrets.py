"""Request headers: of a secret among them only where it comes from is kept, never what it is."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.text import read_text, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "HIDDEN",
    "check_name",
    "check_value",
    "is_secret",
    "parse_header",
    "public_value",
    "resolve",
    "secret_member",
    "secret_words",
    "without_secrets",
]

HIDDEN: Final = "(hidden)"
"""What stands for a secret value that was given literally."""

_LEAST_SECRET: Final = 4
"""Characters from which a secret is looked for in a text: a shorter one would hit innocent words."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_REFERENCE: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9-]* +)?(?P<kind>env|file):(?P<name>.+)")
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET: Final = re.compile(r"auth|token|secret|passw|key|cookie|credential|session|signature", re.IGNORECASE)
_SECRET_MEMBER: Final = re.compile(
    r"key|token|(?:.*[-_.])?(?:api[-_]?key|access[-_]?(?:key|token)|auth[-_]?token|secret(?:[-_]?key)?|password|passwd|"
    r"authorization|credentials?|bearer|private[-_]?key)",
    re.IGNORECASE,
)
_ENGINE: Final = frozenset({"host", "content-length", "connection", "transfer-encoding"})
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def secret_member(body: Any, above: str = "") -> str | None:
    """The first member of a JSON value, at any depth, that by its name and form holds a secret; None for none.

    ``max_tokens`` and ``prompt_cache_key`` are none: names that end in ``key`` or ``token`` alone say too little.
    """
    if isinstance(body, Mapping):
        for name, value in body.items():
            if isinstance(value, str) and len(value) >= _LEAST_SECRET and _SECRET_MEMBER.fullmatch(str(name)):
                return f"{above}/{name}"
            found = secret_member(value, f"{above}/{name}")
            if found is not None:
                return found
    if isinstance(body, list | tuple):
        return next((found for each in body if (found := secret_member(each, above)) is not None), None)
    return None


def is_secret(name: str) -> bool:
    """Whether a header of this name usually holds a secret."""
    return _SECRET.search(name) is not None


def check_name(name: str) -> str:
    """The name of a header that a user may set.

    Raises:
        UsageError: not a header's name, or one that the engine sets itself.
    """
    if not _TOKEN.fullmatch(name):
        raise UsageError(f'"{shown(name)}" is not a header name', "header", 'write it as "Name: value"')
    if name.lower() in _ENGINE:
        raise UsageError(f"{name} is set for every request already", "header", "leave it out")
    return name


def check_value(name: str, value: object) -> str:
    """A header's value as a user may write it: one line of text, or a reference.

    Raises:
        UsageError: neither. The value is never part of the message.
    """
    if not isinstance(value, str) or _CONTROL.search(value):
        raise UsageError("the value is not one line of text", f"header {name}", "give one line of text")
    match = _REFERENCE.fullmatch(value)
    if match and match["kind"] == "env" and not _ENV_NAME.fullmatch(match["name"]):
        # Not shown: someone may have put the secret itself here.
        what = "what follows env: is not the name of an environment variable"
        raise UsageError(what, f"header {name}", "name the variable")
    return value


def parse_header(text: str) -> tuple[str, str]:
    """Name and value of ``Name: value``.

    The value may be ``env:VARIABLE`` or ``file:PATH``, also after a scheme, as in ``Bearer env:TOKEN``.

    Raises:
        UsageError: not a header, or a secret written out, which others could read in the list of processes.
    """
    name, colon, value = text.partition(":")
    if not colon:
        raise UsageError(f'"{shown(name)}" has no colon', "header", 'write it as "Name: value"')
    name, value = check_name(name.strip()), value.strip()
    if is_secret(name) and value and value != HIDDEN and not _REFERENCE.fullmatch(value):
        raise UsageError(
            f"the value of {name} is written out, where others can read it",
            "header",
            f'name a variable or a file: "{name}: env:VARIABLE", "{name}: Bearer env:VARIABLE" or "{name}: file:PATH"',
        )
    return name, value


def public_value(name: str, value: str) -> str:
    """What may be shown and stored: a reference as it is, a secret written out as `HIDDEN`, anything else as it is."""
    return value if _REFERENCE.fullmatch(value) or not is_secret(name) else HIDDEN


def resolve(name: str, value: str) -> str:
    """The value that is sent: references replaced by what they refer to.

    Raises:
        UsageError: the variable is not set, the file cannot be read, or the result cannot stand in a header. The
            value is never part of the message.
    """
    if value == HIDDEN:
        raise UsageError(f"the value of {name} was not kept", "header", f'give it again: "{name}: env:VARIABLE"')
    match = _REFERENCE.fullmatch(check_value(name, value))
    scheme, found = "", value
    if match:
        scheme = match["scheme"] or ""
        found = _environment(name, match["name"]) if match["kind"] == "env" else read_text(match["name"]).strip()
        if not found:
            raise UsageError(
                f"{match['kind']}:{shown(match['name'])} is empty", f"header {name}", "put the value there"
            )
    full = f"{scheme}{found}"
    if _CONTROL.search(full):
        raise UsageError(
            "the value holds a line break or another control character", f"header {name}", "give one line of text"
        )
    if not full.isascii():
        raise UsageError(
            "the value holds characters beyond ASCII", f"header {name}", "encode them, as the server expects it"
        )
    return full


def secret_words(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets that these headers send, the longest first: each value, and what follows its scheme.

    Raises:
        UsageError: as ``resolve``.
    """
    words: set[str] = set()
    for name, value in headers.items():
        if is_secret(name) or _REFERENCE.fullmatch(value):
            full = resolve(name, value)
            words |= {full, full.rpartition(" ")[2]}
    return tuple(sorted((word for word in words if len(word) >= _LEAST_SECRET), key=len, reverse=True))


def without_secrets(text: str, words: Sequence[str]) -> str:
    """A server's text with every one of the words hidden: some servers repeat the key that they refuse."""
    for word in words:
        text = text.replace(word, HIDDEN)
    return text


def _environment(name: str, variable: str) -> str:
    value = os.environ.get(variable)
    if value is None:
        raise UsageError(
            f"the environment variable {variable} is not set", f"header {name}", f"export {variable} first"
        )
    return value.strip()
