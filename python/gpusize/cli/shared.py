"""What several commands print."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpusize.base.errors import GpusizeError

if TYPE_CHECKING:
    from gpusize.cli.exit_code import ExitStatus
    from gpusize.estimate.methods import Estimate
    from gpusize.result import Result

__all__ = [
    "conclude",
    "keep_lost",
    "note",
    "print_json",
    "print_result",
    "progress_line",
    "spoken",
    "tell_damaged",
    "tell_read",
]

MOST_CHARS: Final = 600
"""Of one line that is told."""
_PLACE: Final = re.compile(r"^[a-z][a-z_0-9]*(?=, |$)")
"""Where an error names an option, perhaps with a column in it."""
_NAME: Final = re.compile(r"(?<![-\w/.])[a-z]+_[a-z_]+\b")
"""An option in prose: a name of one word may be just that word."""


def note(text: str) -> None:
    """One line on standard error, harmless whatever a server or a file has put into it."""
    from gpusize.base.text import shown

    sys.stderr.write(f"gpusize: {shown(text, MOST_CHARS)}\n")


def spoken(error: GpusizeError, argv: Sequence[str]) -> str:
    """The text of an error, with options that stand on the command line as they are written there.

    Checks are shared with Python and with files, where an option is ``max_connections``.
    """
    given = {word.partition("=")[0] for word in argv if word.startswith("--")}

    def written(name: str) -> str:
        option = f"--{name.replace('_', '-')}"
        return option if option in given else name

    where = error.where and _PLACE.sub(lambda found: written(found[0]), error.where)
    what, todo = (text and _NAME.sub(lambda found: written(found[0]), text) for text in (error.what, error.todo))
    # Classes of errors differ in what they are made of, not in how they read.
    return str(GpusizeError(what or "", where, todo))


def print_json(result: Result, estimates: Sequence[Estimate], *, truth: bool = True) -> None:
    """The one document of ``--json`` on standard output; with ``truth`` where it is one about the estimates."""
    from gpusize.report.export import dumps, result_document

    sys.stdout.write(dumps(result_document(result, estimates, result.truth if truth else None)))


def print_result(
    result: Result, estimates: Sequence[Estimate], written: Sequence[Path] = (), *, truth: bool = True
) -> None:
    """Summary, estimates (beside the truth of a simulated cluster, where it is one about them), and where all lies."""
    from gpusize.report.summary.terminal import make_console, print_estimates, print_sections, print_summary

    console = make_console()
    print_summary(result, console, estimates)
    if result.search is not None:
        from gpusize.report.summary.search_text import print_search

        console.print()
        print_search(result.search, console, str(result.path))
    print_sections(result, console)
    if result.certificate is not None:
        from gpusize.report.proof import print_certificate

        console.print()
        print_certificate(result.certificate, console)
    if estimates:
        console.print()
        print_estimates(estimates, console, result.truth if truth else None)
    if written:
        console.print()
    for path in written:
        console.print(str(path), soft_wrap=True)


@contextlib.contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """Shows a text on a terminal's standard error in place of the one before, and none after the block."""

    def say(text: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    try:
        yield say
    finally:
        say("")


def tell_damaged(result: Result) -> None:
    """Name what was left out of earlier runs because it is damaged."""
    for text in result.damaged:
        note(f"left out: {text}")


def tell_read(slos: Sequence[str] | None) -> None:
    """Say which metrics SLOs with names of other tools were taken for."""
    from gpusize.analysis.slo import readings

    for text in readings(slos):
        note(text)


def keep_lost(run: Path) -> None:
    """Say in ``run.json`` what could not be written to standard output or standard error; no more than a note."""
    from gpusize.cli.outputs import lost_outputs
    from gpusize.records.store import RunStore

    lost = lost_outputs()
    if lost:
        with contextlib.suppress(GpusizeError), RunStore.reopen(run) as store:
            store.add({"lost_output": lost})


def conclude(status: ExitStatus) -> int:
    """Say why the exit code is not 0, and return it."""
    if status.why:
        from gpusize.base.text import shown

        why, *reasons = status.why.split("\n")
        note(why)
        for reason in reasons:
            sys.stderr.write(f"{shown(reason, MOST_CHARS)}\n")
    return status.code
