"""Bodies that are forms: ``application/x-www-form-urlencoded`` and ``multipart/form-data``.

A form's values are texts. Numbers and truth values go as JSON writes them, lists as the field repeated, null as no
field at all, objects as their JSON. In a multipart form a value may also be a file:

    {"file": "speech.wav"}                                  the file's bytes under its own name
    {"file": "speech.wav", "content_type": "audio/wav"}     and with its type
    {"base64": "UklGRg==", "filename": "a.wav"}             bytes written out
"""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from gpusize.base.text import read_bytes, shown
from gpusize.targets.apis.base import encode_json

__all__ = ["BOUNDARY", "FORM", "MULTIPART", "encode_form", "encode_multipart"]

FORM: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"
BOUNDARY: Final = "gpusize-part-5b3f0c8e9d2a47c6a1e4f7d08b96c35a"
"""One for all rows, because headers are the same for all requests; a row that contains it is refused."""

_FILE_KEYS: Final = frozenset({"file", "base64", "filename", "content_type"})
_OCTETS: Final = "application/octet-stream"


def encode_form(body: Mapping[str, Any]) -> bytes:
    """A body of type `FORM`.

    Raises:
        TypeError: a value that JSON cannot hold.
        ValueError: not a finite number.
    """
    return urlencode([(name, _text(value)) for name, value in _fields(body)]).encode()


def encode_multipart(body: Mapping[str, Any]) -> bytes:
    """A body of type `MULTIPART` with the boundary `BOUNDARY`.

    Raises:
        TypeError: a value that JSON cannot hold.
        ValueError: not a finite number, not base64, or a value that contains the boundary.
        UsageError: a file that cannot be read.
    """
    pieces: list[bytes] = []
    for name, value in _fields(body):
        head, data = _part(name, value)
        if BOUNDARY.encode() in data:
            raise ValueError(f'"{shown(name)}" contains the boundary between the parts')
        pieces += [f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode(), data, b"\r\n"]
    return b"".join([*pieces, f"--{BOUNDARY}--\r\n".encode()])


def _fields(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in body.items():
        for one in value if isinstance(value, list | tuple) else [value]:
            if one is not None:
                yield name, one


def _text(value: Any) -> str:
    return value if isinstance(value, str) else encode_json(value).decode()


def _quoted(name: str) -> str:
    """A name between quotes as browsers write it."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _part(name: str, value: Any) -> tuple[str, bytes]:
    head = f'Content-Disposition: form-data; name="{_quoted(name)}"'
    if isinstance(value, bytes):
        return f'{head}; filename="{_quoted(name)}"\r\nContent-Type: {_OCTETS}', value
    if isinstance(value, Mapping) and value.keys() <= _FILE_KEYS and ("file" in value) != ("base64" in value):
        return _file_part(head, value)
    return head, _text(value).encode()


def _file_part(head: str, value: Mapping[str, Any]) -> tuple[str, bytes]:
    if "file" in value:
        path = Path(str(value["file"]))
        data, filename = read_bytes(path), path.name
    else:
        data, filename = base64.b64decode(str(value["base64"]), validate=True), "file"
    filename = str(value.get("filename", filename))
    kind = str(value.get("content_type") or mimetypes.guess_type(filename)[0] or _OCTETS)
    kind = quote(kind, safe='/;=+-._ "')
    return f'{head}; filename="{_quoted(filename)}"\r\nContent-Type: {kind}', data
