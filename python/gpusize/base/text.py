"""Reading the text files that users hand over: what cannot be read is said with line and column, both from 1."""

from __future__ import annotations

import bisect
import codecs
import json
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "LineIndex",
    "decode",
    "did_you_mean",
    "is_file",
    "read_bytes",
    "read_text",
    "said",
    "shown",
    "well_formed",
    "without_trailing_commas",
]

_WIDE: Final = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
_JSON_SPACE: Final = " \t\n\r"
_SUSPECT: Final = re.compile(rf",[{_JSON_SPACE}]*[\]}}]")
_JSON_STRING_OR_COMMA: Final = re.compile(rf'"(?:[^"\\]|\\.)*"|,(?=[{_JSON_SPACE}]*[\]}}])', re.DOTALL)
_SHOWN: Final = 40


class LineIndex:
    """Turns offsets into a text into line and column, both from 1, in O(log lines)."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer(r"\r\n|\n|\r", text))]

    def line(self, offset: int) -> int:
        """The line that holds ``offset``."""
        return bisect.bisect_right(self._starts, offset)

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of ``offset``."""
        line = self.line(offset)
        return line, offset - self._starts[line - 1] + 1


def is_file(path: str | Path) -> bool:
    """Whether there is a file of this name; False also for what cannot be a name."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def read_bytes(
    path: str | Path,
    *,
    error: Callable[[str, str | None, str | None], UsageError] = UsageError,
    most_bytes: int | None = None,
) -> bytes:
    """All of a file; of one with more than ``most_bytes``, one byte more than these.

    Raises:
        UsageError: missing, a folder, a device or a pipe, or not readable; as the class ``error``.
    """
    try:
        data, kind = _regular(path, most_bytes)
    except FileNotFoundError:
        raise error("there is no such file", str(path), "check the path") from None
    except IsADirectoryError:
        raise error("this is a folder, not a file", str(path), "name a file in it") from None
    except PermissionError:
        raise error("no permission to read this file", str(path), "check its permissions") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise error(f"this file cannot be read: {reason}", shown(str(path), 200), None) from None
    if data is None:
        raise error(f"this is a {kind}, which may never end", str(path), "write it into a file first")
    return data


def _regular(path: str | Path, most_bytes: int | None) -> tuple[bytes | None, str]:
    """A regular file's bytes; None and what it is where it is a device, a pipe or a socket."""
    # Without O_NONBLOCK opening a pipe waits for its writer.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError
        if not stat.S_ISREG(mode):
            return None, "pipe" if stat.S_ISFIFO(mode) else "device"
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read() if most_bytes is None else file.read(most_bytes + 1), "file"
    finally:
        os.close(fd)


def read_text(path: str | Path, *, error: Callable[[str, str | None, str | None], UsageError] = UsageError) -> str:
    """All of a UTF-8 text file, line ends as they are, a byte order mark dropped.

    Raises:
        UsageError: as `read_bytes`, or not UTF-8; as the class ``error``.
    """
    return decode(read_bytes(path, error=error), str(path), error=error)


def decode(data: bytes, source: str, *, error: Callable[[str, str | None, str | None], UsageError] = UsageError) -> str:
    """``data`` as UTF-8 text without its byte order mark.

    Raises:
        UsageError: not UTF-8, with line and column of the first bad byte; as the class ``error``.
    """
    for mark, name in _WIDE:
        if data.startswith(mark):
            raise error(f"this file is {name}, not UTF-8", source, f"convert it: iconv -f {name} -t UTF-8")
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as problem:
        good = data.removeprefix(codecs.BOM_UTF8)[: problem.start].decode("utf-8")
        line, column = LineIndex(good).place(len(good))
        byte = problem.object[problem.start]
        raise error(
            f"byte 0x{byte:02x} is not UTF-8",
            f"{source}:{line}:{column}",
            "save the file as UTF-8, or convert it with iconv",
        ) from None


def without_trailing_commas(text: str) -> tuple[str, list[int]]:
    """JSON text with each comma before a closing bracket blanked out, and the offsets of those commas.

    Other offsets stay. A comma that follows no value (``[,]``, ``[1,,]``) stays, for the parser to refuse.
    """
    if not _SUSPECT.search(text):  # the walk below costs twice what parsing costs
        return text, []
    offsets = []
    for match in _JSON_STRING_OR_COMMA.finditer(text):
        if match[0] == ",":
            before = match.start() - 1
            while before >= 0 and text[before] in _JSON_SPACE:
                before -= 1
            if before >= 0 and text[before] not in "[{,:":
                offsets.append(match.start())
    if not offsets:
        return text, []
    characters = list(text)
    for offset in offsets:
        characters[offset] = " "
    return "".join(characters), offsets


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """What to do about a name that is not known: the known one that is most alike, else ``otherwise``."""
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1)
    return f'did you mean "{close[0]}"?' if close else otherwise


def well_formed(text: str) -> str:
    """A text that can be written as UTF-8: lone halves of characters become question marks."""
    return str.encode(text, "utf-8", "replace").decode("utf-8")


def said(error: BaseException) -> str:
    """Kind and text of an exception of other people's code, whose own methods may fail too."""
    try:
        kind = well_formed(type(error).__name__)
    except BaseException:  # noqa: BLE001 -- a metaclass may do anything
        kind = "an exception without a name"
    try:
        return f"{kind}: {well_formed(str(error))}"
    except BaseException:  # noqa: BLE001 -- the exception before it is the one to be told
        return f"{kind}: no message, as its __str__ fails"


def shown(value: Any, length: int = _SHOWN) -> str:
    """A value for a message: as JSON, cut to ``length`` characters, control characters escaped."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text[: length + 1])
    return text if len(text) <= length else f"{text[: length - 1]}…"
