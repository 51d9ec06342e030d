"""JSON files that are larger than memory: read value by value, with the byte and line of whatever is wrong."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import IO, Any, Final, NoReturn

from gpusize.base.errors import ConfigError
from gpusize.base.text import shown

__all__ = ["JsonStream"]

_CHUNK: Final = 1 << 22
MOST_CHARS: Final = 1 << 26
"""Of one value that is read whole; a longer one is an error, so that memory stays bounded."""
_BLANKS: Final = " \t\n\r"
_TAIL: Final = 16
"""So near the end of what was read, a value may be cut off: a number as 1 of 1.5, a word as tru of true."""


class JsonStream:
    """A JSON text with a place in it.

    Each method takes what begins at the place and goes on behind it. ``members`` and ``entries`` stop in front of a
    value: the caller takes it by one of the methods before it asks for the next.

    Args:
        file: open for reading bytes, at its start; UTF-8, with or without a mark for that.
        path: how the file is called in errors.
        todo: what its errors say is to be done.

    Every method raises ConfigError with byte and line: the text is no JSON, breaks off, is not UTF-8, has another kind
    of value here, or one value of more than ``MOST_CHARS`` characters.
    """

    def __init__(self, file: IO[bytes], path: str, todo: str) -> None:
        self._file = file
        self._path = path
        self._todo = todo
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._scan = json.JSONDecoder().raw_decode
        self._text = ""
        self._at = 0
        self._ended = False
        self._read = self._bytes_before = self._lines_before = 0
        self._value_at = 0

    def value(self) -> Any:
        """The value here, whole."""
        self._peek()
        self._value_at = self._at
        while True:
            try:
                found, end = self._scan(self._text, self._at)
            except json.JSONDecodeError as error:
                self._more_or_fail(error)
            except RecursionError:
                self.fail("broken JSON: nested too deeply")
            except ValueError as error:
                self.fail(f"broken JSON: {error}")
            else:
                if self._ended or end < len(self._text) - _TAIL or self._text[end - 1] in '"}]':
                    self._at = end
                    return found
                self._more()
            self._value_at = self._at

    def elements(self) -> Iterator[Any]:
        """The values of the array here, one by one and each whole."""
        for _ in self.entries():
            yield self.value()

    def entries(self) -> Iterator[None]:
        """Stops in front of each value of the array here."""
        self._open("[", "a list")
        if self._close("]"):
            return
        while True:
            yield None
            if self._next("]"):
                return

    def members(self) -> Iterator[str]:
        """The keys of the object here, each in front of its value."""
        self._open("{", "an object")
        seen: set[str] = set()
        if self._close("}"):
            return
        while True:
            if self._peek() != '"':
                self._fail_at("broken JSON: a key in quotes is missing", self._at)
            key = self.value()
            if key in seen:
                self.fail(f"the key {shown(key, 60)} is there twice")
            seen.add(key)
            if self._peek() != ":":
                self._fail_at("broken JSON: a colon is missing", self._at)
            self._at += 1
            yield key
            if self._next("}"):
                return

    def end(self) -> None:
        """Make sure that nothing follows."""
        if self._peek():
            self._fail_at("something follows where the file should end", self._at)

    def fail(self, what: str) -> NoReturn:
        """Raise that something is wrong with the value that was taken last.

        Raises:
            ConfigError: always; it names file, line and byte.
        """
        self._fail_at(what, self._value_at)

    def _open(self, mark: str, kind: str) -> None:
        if self._peek() != mark:
            self._fail_at(f"{kind} should be here", self._at)
        self._at += 1

    def _close(self, mark: str) -> bool:
        """Whether the array or object is over here."""
        if self._peek() != mark:
            return False
        self._at += 1
        return True

    def _next(self, mark: str) -> bool:
        """Go on to the next value; whether there is none, as the array or object is over."""
        if self._close(mark):
            return True
        if self._peek() != ",":
            what = "the file breaks off" if not self._peek() else "broken JSON: a comma is missing"
            self._fail_at(what, self._at)
        self._at += 1
        return False

    def _peek(self) -> str:
        """The next character that is not blank; empty at the end."""
        while True:
            text, at = self._text, self._at
            while at < len(text) and text[at] in _BLANKS:
                at += 1
            self._at = at
            if at < len(text):
                return text[at]
            if self._ended:
                return ""
            self._more()

    def _more_or_fail(self, error: json.JSONDecodeError) -> None:
        """Read on where a value may go on in what was not read yet."""
        left = len(self._text.rstrip(_BLANKS)) - error.pos
        open_string = error.msg.startswith("Unterminated string")
        if self._ended and (left <= 0 or open_string):
            self._fail_at("the file breaks off", len(self._text))
        if self._ended or (left > _TAIL and not open_string):
            self._fail_at(f"broken JSON: {error.msg}", error.pos)
        if len(self._text) - self._at > MOST_CHARS:
            self.fail(f"broken JSON, or a value of more than {MOST_CHARS >> 20} MiB")
        self._more()

    def _more(self) -> None:
        """Read on; what was taken is let go of."""
        gone, rest = self._text[: self._at], self._text[self._at :]
        self._bytes_before += len(gone) if gone.isascii() else len(gone.encode("utf-8", "surrogatepass"))
        self._lines_before += gone.count("\n")
        # As much again as there is: however long a value is, it is not looked through often.
        data = self._file.read(max(_CHUNK, len(rest)))
        waiting = len(self._decoder.getstate()[0])
        try:
            new = self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            what = f"not UTF-8 at byte {self._read - waiting + error.start:,}"
            raise ConfigError(what, self._path, self._todo) from None
        if not self._read and data.startswith(codecs.BOM_UTF8):
            self._bytes_before += len(codecs.BOM_UTF8)
        self._read += len(data)
        self._ended = not data
        self._text, self._at = rest + new, 0

    def _fail_at(self, what: str, at: int) -> NoReturn:
        before = self._text[:at]
        line = self._lines_before + before.count("\n") + 1
        byte = self._bytes_before + len(before.encode("utf-8", "surrogatepass"))
        raise ConfigError(what, f"{self._path}, line {line}, byte {byte:,}", self._todo) from None
