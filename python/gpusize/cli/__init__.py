"""The command line. Every module here is one command, and holds no logic: it reads options, calls, prints."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gpusize.cli.shared import spoken
from gpusize.errors import GpusizeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import NoReturn

__all__ = ["invoke", "main"]

USAGE = 2
INTERRUPTED = 130
BUG = 70


def main() -> NoReturn:
    """Entry point of ``gpusize``."""
    sys.exit(invoke(sys.argv[1:]))


def invoke(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code; every failure is one line on standard error.

    With ``--debug`` exceptions go through, with their traceback.
    """
    from typer import Abort, TyperException

    from gpusize.cli.app import app

    try:
        with _own_warnings():
            code = app(args=list(argv), prog_name="gpusize", standalone_mode=False)
        sys.stdout.flush()
    except TyperException as error:
        text = error.format_message().rstrip(".")
        # Without any argument the help has been shown, and there is nothing to add.
        return _fail(f"{text}. Try --help.", USAGE) if text else USAGE
    except (KeyboardInterrupt, Abort):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader has had enough; a second complaint at interpreter exit would be noise.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except GpusizeError as error:
        if "--debug" in argv:
            raise
        return _fail(spoken(error, argv), error.exit_code)
    except BaseException as error:  # the last line of defence; a panic of an extension is no Exception
        if "--debug" in argv or isinstance(error, SystemExit):
            raise
        return _fail(f"{type(error).__name__}: {error} (a bug in gpusize; --debug shows where)", BUG)
    return code if isinstance(code, int) else 0


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
