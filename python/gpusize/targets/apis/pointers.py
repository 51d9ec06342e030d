"""JSON pointers (RFC 6901) that users and APIs write."""

from __future__ import annotations

import re
from typing import Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.text import shown

__all__ = ["pointer"]

_POINTER: Final = re.compile(r"(?:/(?:[^~/]|~[01])*)+")


def pointer(value: Any, where: str) -> str:
    """``value``, if it is a pointer.

    Raises:
        UsageError: it is none; ``where`` says of what.
    """
    if not isinstance(value, str) or not _POINTER.fullmatch(value):
        raise UsageError(f'"{shown(value)}" is not a JSON pointer', where, "begin it with /, as /choices/0/text")
    return value
