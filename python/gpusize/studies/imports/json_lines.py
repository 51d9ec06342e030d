"""Files of one JSON object per line, of any length, with the line of whatever is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any, Final

from gpusize.base.errors import ConfigError

__all__ = ["json_lines"]

MOST_BYTES: Final = 1 << 26
"""Of one line."""


def json_lines(file: IO[bytes], path: str, todo: str, warnings: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number of each line, from 1, and its object; empty lines are passed over.

    Args:
        file: open for reading bytes, at its start; UTF-8, with or without a mark for that.
        path: how the file is called in errors.
        todo: what its errors say is to be done.
        warnings: where it is said that the last line was cut short, and left out.

    Raises:
        ConfigError: a line is no JSON object, is not UTF-8, or has more than ``MOST_BYTES``.
    """
    number = 0
    while data := file.readline(MOST_BYTES + 1):
        number += 1
        where = f"{path}, line {number}"
        if len(data) > MOST_BYTES:
            raise ConfigError(f"a line of more than {MOST_BYTES >> 20} MiB", where, todo)
        try:
            text = data.decode("utf-8-sig" if number == 1 else "utf-8")
            found = json.loads(text) if text.strip() else None
        except UnicodeDecodeError as error:
            raise ConfigError(f"not UTF-8 at byte {error.start} of the line", where, todo) from None
        except RecursionError:
            raise ConfigError("broken JSON: nested too deeply", where, todo) from None
        except ValueError as error:
            if number > 1 and not data.endswith(b"\n"):
                warnings.append(f"{where}: the file breaks off in this line, which is left out")
                return
            raise ConfigError(f"broken JSON: {str(error)[:200]}", where, todo) from None
        if found is None:
            continue
        if not isinstance(found, dict):
            raise ConfigError("this is no JSON object", where, todo)
        yield number, found
