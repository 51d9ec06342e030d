"""The command line: one file per command, which reads options, calls and prints."""

from __future__ import annotations

import errno
import gc
import os
import sys
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gpusize.base.errors import GpusizeError, UsageError
from gpusize.base.text import shown
from gpusize.cli.outputs import outputs
from gpusize.cli.shared import spoken

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import NoReturn

__all__ = ["invoke", "main"]

USAGE = 2
INTERRUPTED = 130
UNWRITTEN = 3
BUG = 70
MEASURING = ("run", "duet", "study", "sample", "pipeline")
"""Commands whose exit code says what was measured, even where nobody could read it."""
NAME_CHARS = 80


def main() -> NoReturn:
    """Entry point of ``gpusize``."""
    if sys.argv[1:2] and sys.argv[1] not in MEASURING:
        # What is made for a report lives to its end: looking for circles again and again took a twentieth of the time.
        gc.set_threshold(50_000, 20, 50)
    sys.exit(invoke(sys.argv[1:]))


def invoke(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code; every failure is one line on standard error.

    With ``--debug`` the traceback of an error is shown besides; the exit codes are the same.
    """
    _fill_standard_files()
    with outputs() as (out, _):
        code = _invoke(argv)
        out.flush()
        if out.lost is None or out.left:
            return code
        sys.stderr.write(f"gpusize: standard output cannot be written ({out.lost}): its text is lost\n")
        # What measures keeps its figures in files; what else was asked for was that text.
        return code or (0 if argv[:1] and argv[0] in MEASURING else UNWRITTEN)


def _invoke(argv: Sequence[str]) -> int:
    from typer import Abort, TyperException

    from gpusize.cli.app import application

    try:
        _refuse_bytes(argv)
        with _own_warnings():
            code = application(argv[0] if argv else "")(args=list(argv), prog_name="gpusize", standalone_mode=False)
    except TyperException as error:
        from gpusize.cli.mistakes import mistake

        return _fail(mistake(error, argv), USAGE)
    except (KeyboardInterrupt, Abort):
        return _fail("interrupted", INTERRUPTED)
    except GpusizeError as error:
        _trace(argv)
        return _fail(spoken(error, argv), error.exit_code)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 -- the last line of defence; a panic is no Exception
        _trace(argv)
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            return _fail(f"{shown(str(error.filename), NAME_CHARS)}: the name is too long for the file system", USAGE)
        return _fail(f"{type(error).__name__}: {_words(error)} (a bug in gpusize; --debug shows where)", BUG)
    return code if isinstance(code, int) else 0


def _trace(argv: Sequence[str]) -> None:
    if "--debug" in argv:
        import traceback

        sys.stderr.write(traceback.format_exc())


def _words(error: BaseException) -> str:
    """What an error says; one whose words fail has none."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 -- whatever it is, the error before it is the one to be told
        return "it cannot be put into words"


def _fill_standard_files() -> None:
    """Give 0, 1 and 2 to the null device where they are closed: a file of a run could get their numbers."""
    filled = os.open(os.devnull, os.O_RDWR)
    while filled <= 2:
        filled = os.open(os.devnull, os.O_RDWR)
    os.close(filled)


def _refuse_bytes(argv: Sequence[str]) -> None:
    """Refuse arguments that are no text: no file that a run keeps could hold them.

    Raises:
        UsageError: one that is not UTF-8.
    """
    for number, word in enumerate(argv, 1):
        if any("\udc80" <= character <= "\udcff" for character in word):
            text = word.encode(errors="backslashreplace").decode()
            what = f'argument {number}, "{shown(text, NAME_CHARS)}", is not UTF-8'
            raise UsageError(what, None, "write it in UTF-8; a file with such a name has to be renamed")


@contextmanager
def _own_warnings() -> Iterator[None]:
    """Warnings of ours as lines of ours; those of others as Python has them."""
    others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if category.__module__.startswith("gpusize."):
            sys.stderr.write(f"gpusize: {message}\n")
        else:
            others(message, category, *where, **more)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = others


def _fail(text: str, code: int) -> int:
    sys.stderr.write(f"gpusize: {text}\n")
    return code
