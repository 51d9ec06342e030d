"""Profile exports of Triton's perf_analyzer (``--profile-export-file FILE.json``): every request, in bounded memory.

``experiments`` has one entry per concurrency or rate: ``requests`` with the wall time of the write and of each response
in nanoseconds, and ``window_boundaries``, which begin and end what perf_analyzer measured. There are no failed requests
in it, and no times at which requests were due: at a rate, what a request waited before it was sent is not known.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from gpusize.analysis.slo import Slo
from gpusize.base.errors import ConfigError, PathMissing, UsageError
from gpusize.base.files import storing
from gpusize.base.regular_files import check_regular
from gpusize.base.text import shown
from gpusize.studies.imports.json_stream import JsonStream
from gpusize.studies.imports.perf_analyzer import missing_levels
from gpusize.studies.imports.request_rows import RequestLevel, Told
from gpusize.studies.imports.run_folder import Imported, RunDraft, imported_before, run_of

if TYPE_CHECKING:
    import polars as pl

__all__ = ["import_perf_analyzer_json", "looks_like"]

_BATCH: Final = 1 << 16
_FAR_NS: Final = 1 << 61
_TODO: Final = "is it the file that perf_analyzer wrote with --profile-export-file?"
_NATURES: Final = {
    "triton": "inference",
    "triton_c_api": "inference",
    "tfserving": "inference",
    "openai": "language_model",
}
_NO_ANSWER: Final = "no response is in the file"


def looks_like(path: Path, head: bytes) -> bool:
    """Whether it is a profile export: JSON that begins with experiments and their requests."""
    if path.is_dir() or not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return False
    return all(f'"{key}"'.encode() in head for key in ("experiments", "experiment", "requests"))


def import_perf_analyzer_json(
    path: Path,
    out_dir: Path,
    gpus: int = 0,
    *,
    slos: Sequence[str] = (),
    batch: int = 1,
    expected: Sequence[int] = (),
) -> Imported:
    """Take a profile export over as a run folder below ``out_dir``, one level per experiment, in their order.

    The run's id follows from the content and the arguments, so that importing the same twice gives the same folder.

    Args:
        path: the file; of any size, as it is read piece by piece.
        out_dir: the folder of runs; made when it is missing.
        gpus: GPUs that were measured; the file does not say. 0 for unknown.
        slos: SLOs that later estimates ask for, unless told otherwise.
        batch: samples in one request, perf_analyzer's ``-b``; the file does not say.
        expected: the concurrencies that were asked for, to name those that are missing.

    Raises:
        StoreError: it cannot be read, or the run cannot be written.
        ConfigError: it is broken, with line and byte, or has no request.
        UsageError: a batch below 1.
        SloError: an SLO that does not parse.
    """
    if batch < 1:
        raise UsageError(f"a batch must be 1 or more, not {batch}", "batch", "give the samples of one request")
    texts = [str(Slo.parse(each)) for each in slos]
    if not path.exists():
        raise PathMissing("not found", str(path), "give the file that perf_analyzer wrote with --profile-export-file")
    check_regular(path)
    with storing(path), path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        same = hashlib.sha256(repr((digest, texts, batch, list(expected))).encode()).hexdigest()
        run = f"perf_analyzer-{same[:12]}-{gpus}gpu"
        if (before := imported_before(out_dir, run)) is not None:
            return before
        file.seek(0)
        export = _Export(file, str(path))
        with RunDraft(out_dir, run) as draft:
            levels = []
            for level in export.levels():
                draft.add(level)
                levels.append(level)
            if not levels:
                raise ConfigError("no request in it", str(path), "perf_analyzer's first level did not settle")
            users = [level.setting["concurrency"] for level in levels if level.setting["kind"] == "closed"]
            warnings = [*export.warnings, *missing_levels(str(path), users, expected)]
            source = {
                "tool": "perf_analyzer",
                "files": [path.name],
                "sha256": digest,
                "batch": batch,
                "warnings": warnings,
                **export.facts,
            }
            options = {"slo": texts} if texts else {}
            nature = _NATURES.get(str(export.facts.get("service_kind")))
            about = run_of(run, levels, source, api="perf_analyzer", gpus=gpus, options=options, nature=nature)
            return Imported(draft.publish(about, batch=batch), warnings)


class _Export:
    """A profile export while it is read.

    Attributes:
        warnings: what was left out, and why.
        facts: what stands beside the experiments.
    """

    def __init__(self, file: IO[bytes], path: str) -> None:
        self.warnings: list[str] = []
        self.facts: dict[str, str] = {}
        self._path = path
        self._stream = JsonStream(file, path, _TODO)

    def levels(self) -> Iterator[RequestLevel]:
        """Level by level; of each the frames have to be read before the next is asked for."""
        found = False
        for key in self._stream.members():
            if key == "experiments":
                found = True
                for number, _ in enumerate(self._stream.entries(), 1):
                    level = self._level(number)
                    if level is not None:
                        yield level
                continue
            value = self._stream.value()
            if key in ("version", "service_kind", "endpoint") and isinstance(value, str):
                self.facts[key] = shown(value, 300)
        self._stream.end()
        if not found:
            raise ConfigError("experiments is missing", self._path, _TODO)

    def _level(self, number: int) -> RequestLevel | None:
        """One experiment; None where there is nothing in it to take."""
        experiment = _Experiment(self._stream)
        setting = experiment.begin()
        frames = experiment.frames()
        first = next(frames, None)
        where = f"{self._path}, experiment {number}"
        if first is None:
            self.warnings.append(f"{where}: no request in it; it is left out")
            return None
        if setting is None:
            for _ in frames:
                pass
            self.warnings.append(f"{where}: {experiment.strange}; it is left out")
            return None
        return RequestLevel(setting, itertools.chain([first], frames), where, experiment.told)


class _Experiment:
    """One load: its setting first, then its requests, then its windows."""

    def __init__(self, stream: JsonStream) -> None:
        self.strange = ""
        self._stream = stream
        self._members = stream.members()
        self._setting: dict[str, Any] | None = None
        self._requests = False
        self._window: tuple[int, int] | None = None
        self._alerts: list[str] = []
        self._unanswered = 0
        self._streams = False

    def begin(self) -> dict[str, Any] | None:
        """Read up to the requests; the setting, None where it is of no kind that is known."""
        for key in self._members:
            if key == "requests":
                self._requests = True
                if not self.strange and self._setting is None:
                    self._stream.fail("experiment, with mode and value, must stand before requests")
                break
            self._take(key)
        return self._setting

    def frames(self) -> Iterator[pl.DataFrame]:
        """The requests, and then what stands behind them."""
        if self._requests:
            yield from self._batches()
        for key in self._members:
            self._take(key)

    def told(self) -> Told:
        """What was measured, once all has been read."""
        alerts = [*self._alerts]
        if self._unanswered:
            alerts.append(f"{self._unanswered:,} requests have no response in the file: they count as truncated")
        if self._window is None:
            return Told(alerts=alerts)
        return Told(self._window, "perf_analyzer's windows", alerts=alerts)

    def _take(self, key: str) -> None:
        value = self._stream.value()
        if key == "experiment":
            self._setting = self._load(value)
        elif key == "window_boundaries":
            if not isinstance(value, list) or not all(_is_stamp(each) for each in value):
                self._stream.fail("window_boundaries should be times in nanoseconds")
            if value and min(value) < max(value):
                self._window = (min(value), max(value))

    def _load(self, value: Any) -> dict[str, Any] | None:
        mode, load = (value.get("mode"), value.get("value")) if isinstance(value, dict) else (None, None)
        if not isinstance(load, int | float) or isinstance(load, bool) or not 0 < load < 1e9:
            self._stream.fail("experiment should have mode, and a value above 0")
        if mode == "concurrency" and load == int(load):
            return {"kind": "closed", "concurrency": int(load)}
        if mode == "request_rate":
            return {"kind": "open", "rate": float(load)}
        self.strange = f"a load of mode {shown(str(mode), 40)} and value {load:g} is not known here"
        return None

    def _batches(self) -> Iterator[pl.DataFrame]:
        sent: list[int] = []
        answers: list[list[int]] = []
        contents: list[list[int] | None] = []
        for request in self._stream.elements():
            try:
                begun, came = request["timestamp"], request["response_timestamps"]
            except (KeyError, TypeError):
                self._stream.fail("a request should have timestamp and response_timestamps")
            if type(came) is not list or not _is_stamp(begun) or not all(map(_is_stamp, came)):
                self._stream.fail("timestamp and response_timestamps should be times in nanoseconds")
            if len(came) > 1:
                self._streams = True
                if sorted(came) != came:
                    self._stream.fail("response_timestamps are not in order")
            if came and came[0] < begun:
                self._stream.fail("a response came before its request was sent")
            sent.append(begun)
            answers.append(came)
            contents.append(_with_content(came, request.get("response_outputs")) if self._streams else None)
            if len(sent) >= _BATCH:
                yield self._frame(sent, answers, contents)
                sent, answers, contents = [], [], []
        if sent:
            yield self._frame(sent, answers, contents)

    def _frame(self, sent: list[int], answers: list[list[int]], contents: list[list[int] | None]) -> pl.DataFrame:
        import polars as pl

        unanswered = sum(not came for came in answers)
        self._unanswered += unanswered
        times = pl.Int64()
        columns = {
            "sent_ns": pl.Series(sent, dtype=times),
            "first_byte_ns": pl.Series([came[0] if came else None for came in answers], dtype=times),
            "end_ns": pl.Series([came[-1] if came else None for came in answers], dtype=times),
        }
        if self._streams:
            columns["events_ns"] = pl.Series(contents, dtype=pl.List(times))
        frame = pl.DataFrame(columns)
        if not unanswered:
            return frame
        silent = pl.col("end_ns").is_null()
        return frame.with_columns(
            pl.when(silent).then(pl.lit("truncated")).otherwise(pl.lit("ok")).alias("outcome"),
            pl.when(silent).then(pl.lit(_NO_ANSWER)).alias("error"),
        )


def _is_stamp(value: Any) -> bool:
    return type(value) is int and 0 < value < _FAR_NS


def _with_content(came: list[int], outputs: Any) -> list[int] | None:
    """Times of the responses with a content; None where the file does not tell which those are.

    The last response of a decoupled model is often empty. What an LLM's API sends is cut into responses as it came from
    the wire, with events that hold no token among them: of these only the first byte and the end are known.
    """
    if not isinstance(outputs, list) or len(outputs) != len(came):
        return None
    if any(isinstance(each, dict) and isinstance(each.get("response"), str) for each in outputs):
        return None
    return [at for at, each in zip(came, outputs, strict=True) if each] or None
