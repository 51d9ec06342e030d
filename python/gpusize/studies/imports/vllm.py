"""Result files of ``vllm bench serve`` (``--save-result``, ``--append-result``, ``--save-detailed``).

A file has one object per benchmark; a folder of such files is one run, a level per object. Times are in ms in the
summary and in s per request; the shape is that of vLLM's vllm/benchmarks/serve.py. All count from the send, behind the
limit on concurrency: at a rate that is ``service``, not ``runtime``. Newer versions write what a request waited for its
place (``queue_times``, the client queue time): at a rate it was due so long before its send. Its TTFT is ``ttft_sent``;
its TPOT, (last token - first token) / (tokens - 1), is ``itl_mean``; its ITL, pooled gaps between events, is ``itl``;
its E2EL ends at the last token. Where nothing was streamed, and of a request that failed, it writes 0, which is null.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.level import LevelData
from gpusize.base.errors import ConfigError
from gpusize.base.files import storing
from gpusize.studies.imports.figure_levels import KEPT_UP, Remarks, both, figure_level
from gpusize.studies.imports.json_file import count, is_json_with, nanoseconds, number, numbers, read_documents, text
from gpusize.studies.imports.request_rows import RequestLevel, Told
from gpusize.studies.imports.run_folder import Imported, run_of, write_run

if TYPE_CHECKING:
    import polars as pl

__all__ = ["import_vllm", "looks_like"]

ROUNDED: Final = 0.02
"""By which a rate times its time may differ from a count, relative to it."""
_TOOL: Final = "vllm bench serve"
_KEYS: Final = ("num_prompts", "request_rate", "request_throughput")
_HEAD: Final = 65_536
_FIGURE: Final = re.compile(
    r"(mean|median|p[\d.]+)_(ttft|tpot|itl|e2el|client_queue_time|e2el_including_client_queue)_ms"
)
_METRIC: Final = {
    "ttft": "ttft_sent",
    "tpot": "itl_mean",
    "itl": "itl",
    "e2el": "service",
    "client_queue_time": "lateness",
    "e2el_including_client_queue": "runtime",
}
_DUE: Final = {"ttft_sent": "ttft", "service": "runtime"}
"""In a closed loop a request is due when it is sent."""
_LISTS: Final = ("start_times", "ttfts", "itls", "output_lens", "input_lens", "errors")
_KINDS: Final = (
    ("timeout", r"Timeout"),
    ("connect_error", r"ClientConnector|Connection(Refused|Reset)|Cannot connect"),
    ("truncated", r"ServerDisconnected|ClientPayload|IncompleteRead"),
)
_ROUNDING_NS: Final = 1000
_PROBS: Final = (50, 90, 95, 99, 100)


def looks_like(path: Path, head: bytes) -> bool:
    """Whether it is a result of ``vllm bench serve``, or a folder with nothing but such results as its JSON."""
    if not path.is_dir():
        return is_json_with(path, head, *_KEYS)
    files = _files(path)
    return bool(files) and all(is_json_with(file, _head(file), *_KEYS) for file in files)


def _files(folder: Path) -> list[Path]:
    """Its results; of each it may also have written a copy of figures for PyTorch's dashboards."""
    return sorted(file for file in folder.glob("*.json") if not file.name.endswith(".pytorch.json"))


def _head(file: Path) -> bytes:
    if not file.is_file():
        return b""
    with storing(file), file.open("rb") as opened:
        return opened.read(_HEAD)


def import_vllm(path: Path, out_dir: Path, gpus: int = 0) -> Imported:
    """Take a result, or a folder of results, over as a run folder below ``out_dir``.

    With ``--save-detailed`` every request becomes a record, else the level has figures. The run's id follows from the
    content, so that importing the same twice gives the same folder.

    Raises:
        StoreError: the folder cannot be written.
        ConfigError: a file is missing or broken, with its place.
    """
    files = _files(path) if path.is_dir() else [path]
    if not files:
        raise ConfigError("no *.json in it", str(path), f"give a result of {_TOOL}, or a folder of results")
    digest = hashlib.sha256()
    levels: list[LevelData | RequestLevel] = []
    models: set[str | None] = set()
    for file in files:
        found = read_documents(file, _TOOL)
        digest.update(found.sha256.encode())
        for at, each in enumerate(found.objects, 1):
            where = str(file) if len(found.objects) == 1 else f"{file}, result {at}"
            levels.append(_level(each, where, gpus))
            models.add(text(each, "model_id"))
    levels.sort(key=lambda level: float(level.setting.get("concurrency") or level.setting.get("rate") or 0))
    warnings = [] if len(models) == 1 else ["its results are of several models; they stand in one run"]
    source = {
        "tool": _TOOL,
        "files": [file.name for file in files],
        "sha256": digest.hexdigest(),
        "warnings": warnings,
    }
    run = f"vllm-{digest.hexdigest()[:12]}-{gpus}gpu"
    model = models.pop() if len(models) == 1 else None
    about = run_of(run, levels, source, api="vllm", gpus=gpus, model=model, nature="language_model")
    return Imported(write_run(out_dir, about, levels), warnings)


def _level(result: Mapping[str, Any], where: str, gpus: int) -> LevelData | RequestLevel:
    completed = count(result, "completed", where)
    if completed is None:
        raise ConfigError("completed is missing", where, f"is it a result of {_TOOL}?")
    failed = count(result, "failed", where)
    total = completed + (failed or 0) if failed is not None else count(result, "num_prompts", where) or completed
    if not total:
        raise ConfigError("no request in it", where, "leave it out")
    failed = total - completed
    remarks = Remarks()
    setting = _setting(result, total, where, remarks)
    figures = _figures(result, where)
    if all(isinstance(result.get(name), list) for name in _LISTS):
        return _with_requests(result, setting, remarks, (completed, failed), where)
    figures |= _from_lists(result, completed, where, figures)
    remarks.failures(failed, total)
    rate = number(result, "request_throughput", where)
    seconds = number(result, "duration", where)
    _add_up(completed, rate, seconds, remarks)
    if setting["kind"] == "closed":
        # All requests are handed out at once, and a wait for a place is the loop itself.
        figures = {name: value for name, value in figures.items() if not name.startswith(("lateness_", "runtime_"))}
        figures |= {
            f"{_DUE[name]}{rest}": value
            for key, value in figures.items()
            for name, rest in [(each, key.removeprefix(each)) for each in _DUE if key.startswith(f"{each}_")]
        }
        if not remarks.flags:
            mean_s, longest_s = figures.get("service_mean_s"), _longest(figures)
            users = setting["concurrency"]
            remarks.little(rate, mean_s, users, longest_s=longest_s, seconds=seconds, others=failed)
    else:
        _slow(result, setting["rate"], total, figures, remarks, where)
    tokens_in = count(result, "total_input_tokens", where)
    facts = {
        "counts": {
            "n": total,
            "errors": failed,
            "tokens_out_per_s": number(result, "output_throughput", where),
            "tokens_in_per_s": tokens_in / seconds if tokens_in is not None and seconds else None,
        },
        "total_runtime_s": seconds,
        "achieved_rate": rate,
        "vllm": _scalars(result),
    }
    return figure_level(setting, figures, remarks, facts, gpus=gpus, where=where)


def _add_up(completed: int, rate: float | None, seconds: float | None, remarks: Remarks) -> None:
    """Note counts, throughput and time that are not of one measurement."""
    if rate is None or seconds is None:
        return
    told = rate * seconds
    if seconds <= 0 or abs(told - completed) > ROUNDED * max(1, completed):
        what = f"request_throughput of {rate:.4g}/s over duration of {seconds:.4g} s are {told:.4g} answers"
        remarks.add(f"{what}, and completed is {completed:,}", "inconsistent")


def _setting(result: Mapping[str, Any], total: int, where: str, remarks: Remarks) -> dict[str, Any]:
    limit = count(result, "max_concurrency", where)
    if result.get("request_rate") not in ("inf", float("inf")):
        rate = number(result, "request_rate", where)
        if not rate:
            raise ConfigError("request_rate is neither a rate nor inf", where, "the file is damaged")
        if result.get("ramp_up_strategy"):
            low, high = (number(result, f"ramp_up_{end}_rps", where) for end in ("start", "end"))
            remarks.add(f"the rate rose from {low} to {high} requests/s: its figures are of no one load", "ramp")
        if limit:
            what = f"at most {limit} were in flight"
            waits = isinstance(result.get("queue_times"), list)
            counted = "the wait for a place counts in the runtime, and not in the service time"
            remarks.add(f"{what}: {counted if waits else 'no time in it counts the wait for one of these places'}")
        # Gaps are of a gamma distribution, of which a shape of 1 is a Poisson process.
        process = {"process": "poisson"} if number(result, "burstiness", where) == 1 else {}
        return {"kind": "open", "rate": rate, **process}
    if not limit or limit >= total:
        what = f"all {total:,} requests were sent at once: in flight fell from {total:,} to 0"
        remarks.add(f"{what}, and its figures are of no steady load", "burst")
    return {"kind": "closed", "concurrency": min(limit or total, total)}


def _figures(result: Mapping[str, Any], where: str) -> dict[str, float | None]:
    """The summary's percentiles and means, s, by the names of a level's."""
    found: dict[str, float | None] = {}
    for key in result:
        match = _FIGURE.fullmatch(key)
        if match is not None:
            value = number(result, key, where)
            what = "p50" if match[1] == "median" else match[1]
            found[f"{_METRIC[match[2]]}_{what}_s"] = None if value is None else value / 1e3
    return found


def _from_lists(
    result: Mapping[str, Any], completed: int, where: str, figures: Mapping[str, float | None]
) -> dict[str, float | None]:
    """Figures from the lists of latencies and waits that newer versions keep; the summary's own win."""
    latencies = numbers(result, "latencies", where)
    waits = numbers(result, "queue_times", where)
    if latencies is None:
        return {}
    # The latency of a request that failed is 0.
    good = [at for at, latency in enumerate(latencies) if latency > 0]
    if len(good) != completed or not good:
        return {}
    made = both(["service"], _told([latencies[at] for at in good]))
    if waits is not None and len(waits) == len(latencies):
        made |= both(["lateness"], _told([waits[at] for at in good]))
        made |= both(["runtime"], _told([latencies[at] + waits[at] for at in good]))
    return {name: value for name, value in made.items() if name not in figures}


def _told(values: Sequence[float]) -> dict[str, float | None]:
    import numpy as np

    made: dict[str, float | None] = {f"p{percent}": float(np.percentile(values, percent)) for percent in _PROBS}
    return made | {"mean": float(np.mean(values))}


def _longest(figures: Mapping[str, float | None]) -> float | None:
    """The highest percentile of the service time that is known."""
    return max((value or 0 for name, value in figures.items() if name.startswith("service_p")), default=None)


def _slow(
    result: Mapping[str, Any],
    rate: float,
    total: int,
    figures: Mapping[str, float | None],
    remarks: Remarks,
    where: str,
) -> None:
    """Note a run that took longer than its requests at their rate and the last answer."""
    seconds = number(result, "duration", where)
    if seconds is None:
        return
    longest = _longest(figures) or 0.0
    if seconds > total / rate / KEPT_UP + longest:
        what = f"{total:,} requests at {rate:g}/s are {total / rate:.4g} s, and it took {seconds:.4g} s"
        counted = any(name.startswith("runtime_p") for name in figures)
        why = "the rest waited before it was sent" + ("" if counted else ", which no time of this file counts")
        remarks.add(
            f"{what}: {why}" if longest else f"{what}, the last answers included", "not-delivered" if longest else None
        )


def _scalars(result: Mapping[str, Any]) -> dict[str, Any]:
    """Its other fields; without numbers that JSON has none of, as a figure of nothing may be NaN."""
    kept = {key: value for key, value in result.items() if value is None or isinstance(value, str | int | float)}
    return {key: value for key, value in kept.items() if not isinstance(value, float) or math.isfinite(value)}


def _with_requests(
    result: Mapping[str, Any], setting: Mapping[str, Any], remarks: Remarks, counts: tuple[int, int], where: str
) -> RequestLevel:
    frame = _rows(result, where, closed=setting["kind"] == "closed")
    completed, failed = counts
    more = _without_token(frame)
    if more:
        what = f"{more:,} of {completed:,} answers have more events than tokens: the server ends them with an empty one"
        remarks.add(f"{what}, and the gap before it counts in itl, as in its ITL")
    ok = int((frame["outcome"] == "ok").sum())
    if (ok, frame.height - ok) != (completed, failed):
        what = f"{ok:,} of its {frame.height:,} requests have no error, and completed is {completed:,}"
        remarks.add(what, "inconsistent")
    told = Told(alerts=remarks.alerts, flags=remarks.flags, facts={"vllm": _scalars(result)})
    return RequestLevel(setting, [frame], where, told)


def _without_token(frame: pl.DataFrame) -> int:
    """Answers that have more events than tokens."""
    import polars as pl

    return int(frame.filter(pl.col("events_ns").list.len() > pl.col("tokens_out")).height)


def _rows(result: Mapping[str, Any], where: str, *, closed: bool) -> pl.DataFrame:
    """The requests as columns of records, in ns on the client's clock."""
    import polars as pl

    starts, ttfts, sent, got = (
        numbers(result, name, where) or [] for name in ("start_times", "ttfts", "input_lens", "output_lens")
    )
    latencies, waits = (numbers(result, name, where) for name in ("latencies", "queue_times"))
    lengths = {name: len(result[name]) for name in _LISTS}
    if latencies is not None:
        lengths["latencies"] = len(latencies)
    if waits is not None:
        lengths["queue_times"] = len(waits)
    odd = next((name for name, n in lengths.items() if n != len(starts)), None)
    if odd is not None:
        what = f"{lengths[odd]:,} {odd} for {len(starts):,} requests"
        raise ConfigError(what, where, "the file is damaged")
    rows = []
    for at, start in enumerate(starts):
        gaps = numbers({"itls": result["itls"][at]}, "itls", f"{where}, request {at + 1:,}") or []
        error = result["errors"][at]
        took = ttfts[at] + sum(gaps) if latencies is None else latencies[at]
        row = _row(start, ttfts[at], gaps, took, error or None, f"{where}, request {at + 1:,}")
        if waits is not None and not closed:
            row["due_ns"] = row["sent_ns"] - nanoseconds(waits[at], f"{where}, request {at + 1:,}")
        rows.append(row | {"tokens_in": round(sent[at]) or None, "tokens_out": round(got[at]) or None})
    return pl.DataFrame(
        rows,
        schema={
            **dict.fromkeys(("due_ns", "sent_ns", "end_ns"), pl.Int64),
            "events_ns": pl.List(pl.Int64),
            **dict.fromkeys(("outcome", "error"), pl.String),
            **dict.fromkeys(("tokens_in", "tokens_out"), pl.Int64),
        },
    )


def _row(start: float, ttft: float, gaps: Sequence[float], took: float, error: Any, where: str) -> dict[str, Any]:
    sent = nanoseconds(start, where)
    end = sent + nanoseconds(took, where)
    events: list[int] | None = None
    if ttft:
        at = ttft
        events = [sent + nanoseconds(at, where)]
        for gap in gaps:
            at += gap
            events.append(sent + nanoseconds(at, where))
        if 0 < events[-1] - end <= _ROUNDING_NS:
            events = [min(each, end) for each in events]
    if error is None:
        return {"sent_ns": sent, "end_ns": end, "events_ns": events, "outcome": "ok", "error": None}
    # It broke off at a time that the file does not say.
    said = str(error)
    return {"sent_ns": sent, "end_ns": None, "events_ns": None, "outcome": _outcome(said), "error": said}


def _outcome(error: str) -> str:
    """The kind of a failure by its text, which is an exception's, or the reason of a status."""
    return next((kind for kind, pattern in _KINDS if re.search(pattern, error)), "http_error")
