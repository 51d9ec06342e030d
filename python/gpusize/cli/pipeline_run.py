"""A run of a pipeline from the words of the command line to what is printed and kept."""

from __future__ import annotations

import select
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import StoreError
from gpusize.base.interrupt import StopSwitch, on_interrupt
from gpusize.containers.pipeline.runner import Events
from gpusize.options.pipeline import PipelineOptions
from gpusize.report.containers.cpost import title
from gpusize.report.containers.pipeline_text import after_operator, all_operators, rows_text
from gpusize.report.text import clean

if TYPE_CHECKING:
    from gpusize.containers.pipeline.model import Operator
    from gpusize.containers.pipeline.outcome import OperatorResult, PipelineResult
    from gpusize.report.containers.pipeline_files import PipelineFiles

__all__ = ["run_and_report"]

_POLL_S: Final = 0.1
_LACKS: Final = 3


class _Shown(Events):
    """Prints a run as it goes, and writes what is measured at once."""

    def __init__(
        self, out: Callable[[str], None], err: Callable[[str], None], files: PipelineFiles | None, stop: StopSwitch
    ) -> None:
        self._out = out
        self._err = err
        self._files = files
        self._stop = stop
        self._pulling: dict[str, str] = {}
        self.verbose = False
        self.problems: list[str] = []

    def pulling(self, image: str, state: str) -> None:
        if self._pulling.get(image) != state:
            self._pulling[image] = state
            self._err(f"gpusize: pulling {clean(image)}: {state}")

    def note(self, text: str) -> None:
        self._err(f"gpusize: {clean(text)}")

    def executing(self, operator: Operator) -> None:
        self._out(f"\n{title(f'Executing Operator {operator.name}')}\nRunning operator ...")

    def command(self, name: str, line: str) -> None:  # noqa: ARG002 - the line says which it is
        if self.verbose:
            sys.stderr.write(f"{line}\n")

    def began(self, container_id: str) -> None:
        self._out(f"The container id is: {container_id}")

    def ended(self, result: OperatorResult) -> None:
        if self._files is None:
            text = rows_text(result)
            if text:
                self._out(text)
        else:
            try:
                stored = self._files.operator(result)
            except OSError as problem:
                # The run goes on: what is measured next is not given up for a disk that is full.
                self.problems.append(str(problem))
                self.note(str(problem))
            else:
                if stored is not None:
                    self._out(f"Results are stored in {stored.absolute()}")
        self._out(after_operator(result))

    def go_on(self, result: OperatorResult) -> bool:
        """Asks on the terminal; Ctrl-C and the end of the input mean no."""
        if sys.stdin is None or not sys.stdin.isatty():
            # Said with --quiet as well: it is a reason, not progress.
            why = "there is no terminal to ask on, so the run stops; --force cont goes on"
            sys.stderr.write(f"gpusize: operator {clean(result.name)} failed: {why}\n")
            return False
        while True:
            sys.stderr.write(f"Operator {clean(result.name)} failed. Go on with the other operators? [y/n] ")
            sys.stderr.flush()
            while not select.select([sys.stdin], [], [], _POLL_S)[0]:
                if self._stop.asked:
                    return False
            answer = sys.stdin.readline()
            if not answer or answer.strip().lower()[:1] in {"y", "n"}:
                return answer.strip().lower()[:1] == "y"


def run_and_report(*, command: Sequence[str], **given: Any) -> int:
    """Run a pipeline as ``gpusize pipeline run`` was asked to, print and keep what it came to.

    Args:
        command: the command line.
        **given: the command's options by name.

    Returns:
        The exit code.

    Raises:
        GpusizeError: what prevents the run.
    """
    from gpusize.base.host import host_facts
    from gpusize.containers.pipeline import read_pipeline, run_pipeline
    from gpusize.report.containers.pipeline_files import PipelineFiles, pipeline_document
    from gpusize.report.export import dumps

    options = PipelineOptions(given)
    pipeline = read_pipeline(options.definition, options.parameters)
    quiet, as_json = bool(given["quiet"]), bool(given["json"])
    metrics_dir: Path | None = given["metrics_dir"]
    options.check()
    files = None if metrics_dir is None else PipelineFiles(metrics_dir)
    stop = StopSwitch()
    silent = quiet or as_json
    events = _Shown(_nothing if silent else _to_stdout, _nothing if quiet else _to_stderr, files, stop)
    events.verbose = bool(given["verbose"])
    for note in pipeline.notes:
        events.note(note)
    try:
        with on_interrupt(stop):
            result = run_pipeline(
                pipeline,
                given["input_dir"],
                force=options.force,
                options=options.run_options(),
                servers=options.servers(),
                make_reader=options.make_reader(),
                sizing=options.sizing(),
                events=events,
                stop=stop,
            )
    except BaseException:
        if files is not None:
            files.forget()
        raise
    about = {"command": _without_values(command), "host": host_facts()}
    # Shown first: a disk that is full then takes nothing away.
    if as_json:
        sys.stdout.write(dumps(pipeline_document(result, about)))
    else:
        _to_stdout(f"{'' if quiet else chr(10)}{all_operators(result)}")
    if files is not None:
        files.finish(result, about)
        if given["plots"]:
            try:
                files.draw(result)
            except StoreError as problem:
                events.note(str(problem))
        if not silent:
            _to_stdout(f"\n{files.path}")
    return _concluded(result) or (_LACKS if events.problems else 0)


def _concluded(result: PipelineResult) -> int:
    failed = [each.name for each in result.failed]
    unheld = [each.name for each in result.operators if each.sized is not None and each.sized.verified is False]
    if result.interrupted:
        sys.stderr.write("gpusize: interrupted\n")
    elif failed:
        sys.stderr.write(f"gpusize: {len(failed)} of {len(result.operators)} operators failed: {', '.join(failed)}\n")
    elif unheld:
        sys.stderr.write(f"gpusize: no recommendation was seen to hold: {', '.join(unheld)}\n")
    return result.exit_code


def _without_values(command: Sequence[str]) -> list[str]:
    """The command line without the values of parameters, which may be secrets."""
    kept: list[str] = []
    for word in command:
        name, equals, _ = word.removeprefix("--parameter=").partition("=")
        if equals and (word.startswith("--parameter=") or (kept and kept[-1] == "--parameter")):
            kept.append(f"{word[: word.index(name)]}{name}=…")
        else:
            kept.append(word)
    return kept


def _to_stdout(text: str) -> None:
    if text:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _nothing(_: str) -> None:
    """Says nothing."""
