"""A command as a workflow: its words are made from a row's fields, and no shell ever sees them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import string
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import DatasetError, UsageError
from gpusize.base.text import shown

if TYPE_CHECKING:
    from gpusize.targets.workflow.record import RecordedRequest
    from gpusize.workload.dataset import Dataset, Row

__all__ = ["CommandTemplate", "run_command"]

TAIL_BYTES: Final = 2000
LINE_CHARS: Final = 280
SHOWN_CHARS: Final = 140
"""What is kept of standard error, from its end."""
READ_BYTES: Final = 1 << 16
_FIELD: Final = re.compile(r"[^{}!:\[\]]+")


class CommandTemplate:
    """A command line whose words may hold ``{field}``; ``{{`` and ``}}`` stand for braces.

    Args:
        text: the command line, cut into words as a POSIX shell does; nothing else of a shell is understood.

    Raises:
        UsageError: it cannot be cut into words, or a placeholder is not a field's plain name.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UsageError(
                f"the command cannot be split into words: {error}", "command", "close the quotes"
            ) from None
        if not words:
            raise UsageError("the command is empty", "command", "write it as in: prog {question}")
        self._words = [self._parse(word) for word in words]
        if any(field is not None for _, field in self._words[0]):
            raise UsageError("the program itself is a placeholder", "command", "name the program")

    def _parse(self, word: str) -> list[tuple[str, str | None]]:
        try:
            pieces = [
                (text, field, spec, conversion) for text, field, spec, conversion in string.Formatter().parse(word)
            ]
        except ValueError as error:
            raise UsageError(
                f'"{shown(word)}" is not a template: {error}', "command", "write {field}, and {{ for a brace"
            ) from None
        for _, field, spec, conversion in pieces:
            if field is not None and (spec or conversion or not _FIELD.fullmatch(field)):
                raise UsageError(
                    f'"{shown(word)}" holds no plain field', "command", "write {field}, and {{ for a brace"
                )
        return [(text, field) for text, field, _, _ in pieces]

    @property
    def fields(self) -> list[str]:
        """The fields that are asked for, in order, each once."""
        return list(dict.fromkeys(field for word in self._words for _, field in word if field is not None))

    def check(self, dataset: Dataset) -> None:
        """See to it that every row has every field.

        Raises:
            DatasetError: one has not; with its line.
        """
        for row in dataset:
            missing = next((name for name in self.fields if name not in row.fields), None)
            if missing is not None:
                known = ", ".join(shown(name) for name in row.fields) or "none"
                raise DatasetError(
                    f'row {row.index} has no field "{shown(missing)}"', row.where, f"its fields are {known}"
                )

    def words(self, row: Row) -> list[str]:
        """The words for one row. Texts stand as they are, everything else as JSON."""
        return ["".join(text + _text(row.fields, field) for text, field in word) for word in self._words]


def _text(fields: Mapping[str, Any], name: str | None) -> str:
    if name is None:
        return ""
    value = fields[name]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


async def run_command(words: list[str], request: RecordedRequest, environment: Mapping[str, str]) -> None:
    """Run one command to its end; a status other than 0 is an ``api_error`` with the tail of standard error.

    Cancelled, it kills the command's whole process group.

    Args:
        words: program and arguments.
        request: takes the stamps; ``bytes_in`` counts standard output, which is read and dropped.
        environment: variables on top of this process's own.
    """
    try:
        child = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **environment},
            # A group of its own, so that what it starts can be ended with it, and Ctrl-C is for this process only.
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        request.fail("api_error", f"{words[0]}: {reason}")
        return
    readers = [asyncio.ensure_future(each) for each in (_count(child.stdout, request), _tail(child.stderr))]
    try:
        status = await child.wait()
        # What the command left running in its group would go on as load, and hold its output open.
        _kill(child.pid)
        tail = (await asyncio.gather(*readers))[1] or b""
    except asyncio.CancelledError:
        _kill(child.pid)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(child.wait(), *readers, return_exceptions=True)
        raise
    if status:
        how = f"exit status {status}" if status > 0 else f"killed by signal {-status}"
        said = _last_lines(tail.decode("utf-8", "replace"))
        request.fail("api_error", f"{how}: {said}" if said else how)


def _last_lines(text: str) -> str:
    """The last line, with the whole lines before it that fit: messages are cut at their end where they are shown."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = lines.pop()[-LINE_CHARS:] if lines else ""
    while lines and len(lines[-1]) + 1 + len(said) <= SHOWN_CHARS:
        said = f"{lines.pop()} {said}"
    return said


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


async def _count(stream: asyncio.StreamReader | None, request: RecordedRequest) -> bytes | None:
    while stream is not None and (piece := await stream.read(READ_BYTES)):
        request.first_byte()
        request.values["bytes_in"] += len(piece)
    return None


async def _tail(stream: asyncio.StreamReader | None) -> bytes:
    kept = b""
    while stream is not None and (piece := await stream.read(READ_BYTES)):
        kept = (kept + piece)[-TAIL_BYTES:]
    return kept
