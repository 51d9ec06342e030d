"""Files of other tools that are read whole, within a bound."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gpusize.base.errors import ConfigError
from gpusize.base.text import read_bytes

__all__ = ["MOST_BYTES", "read_whole"]

MOST_BYTES: Final = 1 << 29
"""Of one file: its content takes several times as much memory."""


def read_whole(path: Path, todo: str, most_bytes: int | None = None) -> bytes:
    """All of a file.

    Args:
        path: the file.
        todo: what the error says is to be done about a file that is too large.
        most_bytes: bytes that it may have; None for ``MOST_BYTES``.

    Raises:
        ConfigError: it is missing, no regular file, cannot be read, or has more bytes.
    """
    most = MOST_BYTES if most_bytes is None else most_bytes
    data = read_bytes(path, error=ConfigError, most_bytes=most)
    if len(data) > most:
        raise ConfigError(f"it has more than {most / (1 << 20):.3g} MiB", str(path), todo)
    return data
