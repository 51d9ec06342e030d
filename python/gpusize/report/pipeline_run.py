"""A run of a pipeline from the words of the command line to what is printed and kept."""

from __future__ import annotations

import contextlib
import select
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from gpusize.errors import UsageError
from gpusize.interrupt import StopSwitch, on_interrupt
from gpusize.pipeline.runner import Events, Force
from gpusize.report.cpost import title
from gpusize.report.pipeline_text import after_operator, all_operators, rows_text
from gpusize.report.text import clean
from gpusize.textio import shown

if TYPE_CHECKING:
    from gpusize.pipeline.model import Operator
    from gpusize.pipeline.outcome import OperatorResult, PipelineResult
    from gpusize.report.pipeline_files import PipelineFiles

__all__ = ["run_and_report"]

_FORCE: Final = ("none", "cont", "stop")
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
        if not sys.stdin.isatty():
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
    from gpusize.pipeline import read_pipeline, run_pipeline
    from gpusize.report.export import dumps
    from gpusize.report.pipeline_files import PipelineFiles, pipeline_document

    asked = _Asked(given)
    pipeline = read_pipeline(asked.definition, asked.parameters)
    quiet, as_json = bool(given["quiet"]), bool(given["json"])
    metrics_dir: Path | None = given["metrics_dir"]
    asked.check()
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
                force=asked.force,
                options=asked.run_options(),
                servers=asked.servers(),
                watch=asked.watch(),
                sizing=asked.sizing(),
                events=events,
                stop=stop,
            )
    except BaseException:
        if files is not None:
            files.forget()
        raise
    about = {"command": _without_values(command), **_about()}
    # Shown first: a disk that is full then takes nothing away.
    if as_json:
        sys.stdout.write(dumps(pipeline_document(result, about)))
    else:
        _to_stdout(f"{'' if quiet else chr(10)}{all_operators(result)}")
    if files is not None:
        files.finish(result, about)
        for problem in [] if given["no_plots"] else files.draw(result):
            events.note(problem)
        if not silent:
            _to_stdout(f"\n{files.path}")
    return _concluded(result) or (_LACKS if events.problems else 0)


def _concluded(result: PipelineResult) -> int:
    """The exit code, after saying why it is not 0."""
    failed = [each.name for each in result.failed]
    unheld = [each.name for each in result.operators if each.sized is not None and each.sized.verified is False]
    if result.interrupted:
        sys.stderr.write("gpusize: interrupted\n")
    elif failed:
        sys.stderr.write(f"gpusize: {len(failed)} of {len(result.operators)} operators failed: {', '.join(failed)}\n")
    elif unheld:
        sys.stderr.write(f"gpusize: no recommendation was seen to hold: {', '.join(unheld)}\n")
    return result.exit_code


class _Asked:
    """The options of the command, as the pipeline's functions take them."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self.definition: Path = given["definition"]
        if given["force"] not in _FORCE:
            raise UsageError(f'"{shown(given["force"])}" is no way to go on', "force", "give none, cont or stop")
        # Without anybody to ask, asking means stopping.
        self.force = cast("Force", given["force"])
        self.parameters = dict(_pair(text) for text in given["parameter"] or ())

    def check(self) -> None:
        """Refuse what cannot be meant before any folder is made."""
        from gpusize.resources.recommend import check_policy

        check_policy(self._given["policy"])
        self.run_options(), self.servers(), self.watch(), self.sizing()

    def run_options(self) -> Any:
        from gpusize.pipeline import RunOptions
        from gpusize.pipeline.fields import as_bytes
        from gpusize.units import as_duration_s

        given = self._given
        shm = None if given["shm_size"] is None else as_bytes(given["shm_size"])
        if given["shm_size"] is not None and not shm:
            raise UsageError(f'"{shown(given["shm_size"])}" is no size', "shm_size", "write it as 64m or 2g")
        return RunOptions(
            user=given["user"],
            gpus=given["gpus"],
            shm_bytes=shm,
            network=given["network"],
            writable_inputs=given["writable_inputs"],
            start_timeout_s=as_duration_s(given["start_timeout"], "start_timeout"),
            timeout_s=None if given["timeout"] is None else as_duration_s(given["timeout"], "timeout"),
            repeat=given["repeat"],
            work_dir=given["work_dir"],
            keep=given["keep"],
        )

    def servers(self) -> Any:
        from gpusize.pipeline import ServerOptions
        from gpusize.pipeline.serving import TRITON_IMAGE
        from gpusize.units import as_duration_s

        given = self._given
        return ServerOptions(
            models_dir=given["models_dir"],
            image=given["triton_image"] or TRITON_IMAGE,
            gpus=given["triton_gpus"],
            url=given["triton_url"],
            grpc=given["triton_grpc"],
            timeout_s=as_duration_s(given["triton_timeout"], "triton_timeout"),
        )

    def sizing(self) -> Any:
        from gpusize.pipeline import SizingOptions

        given = self._given
        return SizingOptions(
            policy=given["policy"],
            whole_cores=given["whole_cores"],
            cpu_limit=given["cpu_limit"],
            verify=given["verify"],
            cpu_curve=_cores(given["cpu_curve"]),
        )

    def watch(self) -> Any:
        from gpusize.resources.sampler import ResourceWatch, check_interval
        from gpusize.units import as_duration_s

        usual_ns = round(check_interval(as_duration_s(self._given["interval"], "interval")) * 1e9)

        def make(name: str, interval_ns: int | None = None) -> ResourceWatch:
            return ResourceWatch(name, usual_ns if interval_ns is None else interval_ns)

        return make


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f'"{shown(text)}" is no parameter', "parameter", "write it as NAME=VALUE")
    return name, value


def _cores(text: str | None) -> tuple[float, ...] | None:
    """CPU limits to try: empty for some that follow from the estimate."""
    if text is None:
        return None
    if text.strip() == "auto":
        return ()
    cores: list[float] = []
    for item in text.split(","):
        with contextlib.suppress(ValueError):
            cores.append(float(item))
    if len(cores) != len(text.split(",")) or not all(0.01 <= each <= 4096 for each in cores):
        raise UsageError(f'"{shown(text)}" are no CPU limits', "cpu_curve", "write auto, or cores such as 1,2,4")
    return tuple(cores)


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


def _about() -> dict[str, Any]:
    from gpusize.host import host_facts

    return {"host": host_facts()}


def _to_stdout(text: str) -> None:
    if text:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _nothing(_: str) -> None:
    """Says nothing."""
