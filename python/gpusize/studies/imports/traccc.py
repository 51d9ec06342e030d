"""Logs of traccc's own programs, on CPU and GPU, in their newer and older spellings.

    throughput    ``Event processing  41.1944 ms/event, 24.2752 events/s``: one level for each such line
    its log file  ``"directory",threads,events,cold,processed,...,warm-up ns,processing ns``: one level for each line
    per stage     ``==>Elapsed times...`` and a line for each stage: one level, one event at a time

A level's load is the number of CPU threads: so many events are worked on at once. The programs print averages over all
events, so there are rates and means, and no percentiles. A stage's time is a figure of the server, ``stage_time`` with
the labels ``stage`` and ``device``, per event where the number of events is known.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpusize.analysis.level import LevelData
from gpusize.base.errors import ConfigError, PathMissing, UsageError
from gpusize.base.files import storing
from gpusize.base.text import shown
from gpusize.records.schema import SCHEMA_VERSION
from gpusize.studies.imports.run_folder import Imported, run_of, write_run
from gpusize.studies.imports.whole_file import read_whole

__all__ = ["TracccImport", "import_traccc", "looks_like", "read_traccc"]

_NUMBER: Final = r"([0-9.eE+-]+|-?nan|-?inf)"
_RATE: Final = re.compile(rf"Event processing\s+{_NUMBER} ms/event, {_NUMBER} events/s")
_ELAPSED: Final = re.compile(r"==> ?(?:Elapsed times?|Elpased time) ?\.\.\.")
_STAGE: Final = re.compile(r"(?:^|\s)([A-Za-z][\w ]*?)(?:\s+\((\w+)\))?\s+(\d[0-9.eE+-]*)(?: (ms|us|ns|s))?$")
_CSV: Final = re.compile(r'"[^"]*"(?:,\d+){6,8}$')
_THREADS: Final = re.compile(r"\bthreads?\b[^:]*:\s*(\d+)$", re.IGNORECASE)
_PROCESSED: Final = re.compile(r"processed event(?:s|\(s\))?\s*:\s*(\d+)$", re.IGNORECASE)
_EVENTS: Final = re.compile(r"(?:number of (?:input )?events|loaded event\(s\)|events)\s*:\s*(\d+)$", re.IGNORECASE)
_PROGRAM: Final = re.compile(r"traccc_(?:throughput|seq)\w*?_(cuda|sycl|alpaka|kokkos)\b")
_KNOWN: Final = re.compile(
    rf"{_RATE.pattern}|{_ELAPSED.pattern}|traccc_throughput_|traccc_seq_example|Reconstructed track parameters: |"
    r'^"[^"\n]*"(?:,\d+){6,8}$',
    re.MULTILINE,
)
_TAIL: Final = 8192
_UNITS_S: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, None: 1.0}
_NOT_RECONSTRUCTION: Final = ("file reading", "hit reading", "wall time")
_AGREE: Final = 1e-3
"""Relative difference of two figures with six digits of the same thing."""
_COARSE: Final = 0.05
"""Half a unit in the last digit over a stage's whole time, from which it is too coarse to go by."""
_MOST_DIGITS: Final = 18
_DAMAGED: Final = "the file is damaged"


class TracccImport(NamedTuple):
    """What was read.

    Attributes:
        levels: in the order of the file.
        device: ``cpu``, ``cuda`` or what the log names; None where nothing tells.
        sha256: digest of the file.
        warnings: what is missing or odd, and where.
    """

    levels: list[LevelData]
    device: str | None
    sha256: str
    warnings: list[str]


@dataclass(slots=True)
class _Found:
    """What one result of a log says; times in seconds."""

    line: int
    rate: float | None = None
    each_s: float | None = None
    threads: int | None = None
    events: int | None = None
    stages: list[tuple[str, str | None, float, float]] = field(default_factory=list)
    alerts: list[str] = field(default_factory=list)
    cut: bool = False


def looks_like(path: Path, head: bytes) -> bool:
    """Whether it is a log of traccc, by a line of its results at the beginning or the end."""
    if path.is_dir():
        return False
    with storing(path), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        tail = file.read()
    return any(_KNOWN.search(part.decode("utf-8", "replace").replace("\r", "\n")) for part in (head, tail))


def read_traccc(path: Path, *, gpus: int = 0, threads: int | None = None, events: int | None = None) -> TracccImport:
    """Read one log.

    Args:
        path: the file.
        gpus: GPUs that were used; 0 for unknown, and for a CPU's.
        threads: CPU threads, where the log does not say.
        events: events that the stages' times are of, where the log does not say.

    Raises:
        StoreError: the file cannot be read.
        ConfigError: there is no result in it, no number of threads, or a number is none; with the line.
        UsageError: threads or events below 1, or other threads than the log says.
    """
    for name, given in (("threads", threads), ("events", events)):
        if given is not None and given < 1:
            raise UsageError(f"{name} must be 1 or more, not {given}", name, f"give the number of {name}")
    if not path.exists():
        raise PathMissing("not found", str(path), "give a log of traccc")
    content = read_whole(path, "give the lines of its results")
    text = content.decode("utf-8", "replace")
    lines = text.splitlines()
    cut = bool(lines) and not text.endswith(("\n", "\r"))
    if cut and not lines[-1].endswith("events/s"):
        lines.pop()  # it may be cut short within a number
    found = _results(lines, str(path), threads, events)
    if not found:
        todo = "give the output of traccc_throughput_* or traccc_seq_example*, to its end"
        raise ConfigError("no result of traccc in it", str(path), todo)
    device = _device(lines, found, path.name)
    warnings = []
    levels = []
    for visit, each in enumerate(found):
        if each.threads is None:
            todo = "give gpusize import traccc --threads N"
            raise ConfigError("nothing says how many threads there were", f"{path}, line {each.line}", todo)
        if each.stages and each.events is None:
            warnings.append(f"{path}, line {each.line}: nothing says how many events there were; give --events")
        if cut and each is found[-1] and each.stages:
            each.cut = True
        levels.append(_level(each, visit, device, gpus))
    return TracccImport(levels, device, hashlib.sha256(content).hexdigest(), warnings)


def import_traccc(
    path: Path, out_dir: Path, gpus: int = 0, *, threads: int | None = None, events: int | None = None
) -> Imported:
    """Take a log over as a run folder below ``out_dir``; the same log and arguments give the same folder.

    The run carries the labels ``device``, and ``mu`` where the file's name has one, as ``gpu_mu200.log``.

    Raises:
        StoreError, ConfigError, UsageError: as ``read_traccc``; or the folder cannot be written.
    """
    found = read_traccc(path, gpus=gpus, threads=threads, events=events)
    mu = re.search(r"mu_?(\d+)", path.name)
    labels = {"device": found.device, "mu": None if mu is None else mu[1]}
    same = hashlib.sha256(repr((found.sha256, threads, events, labels)).encode()).hexdigest()
    source = {"tool": "traccc", "files": [path.name], "sha256": found.sha256, "warnings": found.warnings}
    run = f"traccc-{same[:12]}-{gpus}gpu"
    about = run_of(run, found.levels, source, api="traccc", gpus=gpus)
    about["labels"] = {name: value for name, value in labels.items() if value is not None}
    return Imported(write_run(out_dir, about, found.levels), found.warnings)


def _results(lines: list[str], path: str, threads: int | None, events: int | None) -> list[_Found]:
    """Every result, with what the options printed before it say."""
    found: list[_Found] = []
    told: dict[str, int] = {}
    stages: _Found | None = None
    for number, raw in enumerate(lines, 1):
        line = raw.strip()
        for name, pattern in (("threads", _THREADS), ("processed", _PROCESSED), ("events", _EVENTS)):
            if option := pattern.search(line):
                told[name] = _whole(option[1], number, path)
        if "traccc_throughput_st" in line:
            told["threads"] = 1
        if rate := _RATE.search(line):
            if threads and told.get("threads", threads) != threads:
                where = f"{path}, line {number}"
                raise UsageError(f"--threads {threads} and the log's {told['threads']} are two", where, "leave it out")
            found.append(_throughput(rate, number, path, told.get("threads", threads)))
        elif _CSV.match(line):
            found.append(_csv_line(line, number, path))
        elif _ELAPSED.search(line):
            stages = _Found(number, threads=1, events=events or told.get("events"))
        elif stages is not None and (stage := _STAGE.search(line)):
            if not stages.stages:
                found.append(stages)
            stages.stages.append(_stage(stage, number, path))
        elif stages is not None and stages.stages:
            stages = None
    return found


def _throughput(line: re.Match[str], number: int, path: str, threads: int | None) -> _Found:
    each_ms, rate = (_positive(text, number, path) for text in line.groups()[:2])
    found = _Found(number, rate, each_ms * 1e-3, threads)
    if abs(each_ms * rate / 1e3 - 1) > _AGREE:
        found.alerts.append(f"{each_ms:g} ms/event and {rate:g} events/s are not the same")
    return found


def _csv_line(line: str, number: int, path: str) -> _Found:
    fields = line.rpartition('"')[2].split(",")[1:]
    threads, processed = (_whole(fields[k], number, path) for k in (0, 3))
    length_s = _positive(fields[-1], number, path) * 1e-9
    if not threads or not processed:
        raise ConfigError("no threads or no events", f"{path}, line {number}", _DAMAGED)
    return _Found(number, processed / length_s, length_s / processed, threads, processed)


def _stage(stage: re.Match[str], number: int, path: str) -> tuple[str, str | None, float, float]:
    """Name, device, time and half a unit of its last digit, in seconds."""
    text, unit_s = stage[3], _UNITS_S[stage[4]]
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f'"{shown(text, 40)}" is not a number', f"{path}, line {number}", _DAMAGED)
    digits = len(text.partition(".")[2]) if "e" not in text.lower() else 6
    return " ".join(stage[1].split()), stage[2], value * unit_s, 0.5 * unit_s * 10.0**-digits


def _whole(text: str, number: int, path: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ConfigError(f'"{shown(text, 40)}" is not a count', f"{path}, line {number}", _DAMAGED)
    return int(text)


def _positive(text: str, number: int, path: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise ConfigError(f'"{shown(text, 40)}" is not a number above 0', f"{path}, line {number}", _DAMAGED)
    return value


def _device(lines: list[str], found: list[_Found], name: str) -> str | None:
    """By the stages, else by the program's name in the log, else by ``cpu`` or ``gpu`` in the file's name."""
    for each in found:
        devices = [device for stage, device, _, _ in each.stages if not _aside(stage) and device]
        if devices:
            return next((device for device in devices if device != "cpu"), "cpu")
        if each.stages:
            return "cpu"
    for line in lines:
        if program := _PROGRAM.search(line):
            return program[1]
        if re.search(r"traccc_(?:throughput_[ms]t|seq_example)\b", line):
            return "cpu"
    word = re.search(r"(?<![a-z])(cpu|gpu|cuda)(?![a-z])", name.lower())
    return None if word is None else "cpu" if word[1] == "cpu" else "cuda"


def _aside(stage: str) -> bool:
    return stage.lower() in _NOT_RECONSTRUCTION


def _level(found: _Found, visit: int, device: str | None, gpus: int) -> LevelData:
    rate, each_s, alerts = found.rate, found.each_s, list(found.alerts)
    mine = [s for s in found.stages if not _aside(s[0]) and (s[1] or "cpu") == device]
    if found.cut or (found.stages and not any(name.lower() == "wall time" for name, *_ in found.stages)):
        alerts.append("the log was cut short: stages are missing, so no rate follows from the others")
    elif found.stages and found.events and (total_s := math.fsum(s[2] for s in mine)) > 0:
        each_s = total_s / found.events
        rate = 1 / each_s
        alerts.append("one event after the other; the rate counts the stages, not the reading of files")
        coarse = [name for name, _, time_s, half_s in mine if half_s > _COARSE * time_s]
        if coarse:
            alerts.append(f"printed in whole units, so too coarse to go by: {', '.join(coarse)}")
    one = found.threads == 1 and each_s is not None
    percentiles = {"runtime_mean_s": each_s} if one and each_s is not None else {}
    setting = {"kind": "closed", "concurrency": found.threads}
    meta: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "visit": visit,
        "imported": True,
        "setting": setting,
        "state": "done" if rate is not None else "interrupted",
        "stop_reason": None,
        "intervals": [],
        "alerts": alerts,
        "flags": ["little"] if found.alerts else [],
        "percentiles": percentiles,
        "items": {},
        "achieved_rate": rate,
        "residence_ns": round(percentiles["runtime_mean_s"] * 1e9) if percentiles else None,
        "server": [_fact(each, found.events) for each in found.stages if found.events],
        "traccc": {
            "events": found.events,
            "stages": [{"stage": name, "device": dev, "total_s": time_s} for name, dev, time_s, _ in found.stages],
        },
    }
    return LevelData(
        visit=visit,
        setting=setting,
        state=meta["state"],
        intervals=(),
        gpus=gpus,
        run="",
        meta=meta,
        percentiles=percentiles,
    )


def _fact(stage: tuple[str, str | None, float, float], events: int) -> dict[str, Any]:
    name, device, time_s, _ = stage
    row: dict[str, Any] = dict.fromkeys(("min", "max", "first", "last", "delta", "rate", "over_s", "n"))
    labels = f'stage="{name}"' + ("" if device is None else f',device="{device}"')
    return row | {"metric": "stage_time", "labels": labels, "unit": "s", "mean": time_s / events, "source": "traccc"}
