"""Run folders with records, servers' figures, calls and rows whose truth is known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gpusize.records.calls import write_spans
from gpusize.records.dataset_rows import keep_rows
from gpusize.records.samples import FIELDS
from gpusize.records.schema import OUTCOMES
from tests.analysis.synthetic import MS, closed, frame

OK, HTTP_ERROR = OUTCOMES.index("ok"), OUTCOMES.index("http_error")
SERVICE_MS = 100


def server_row(metric: str, unit: str, labels: str | None = None, source: str | None = "a", **figures: Any) -> Any:
    """One row of ``level.json``'s ``server``; figures that are not named are null."""
    named = {"metric": metric, "labels": labels, "unit": unit, "source": source}
    return {**dict.fromkeys(FIELDS), **named, **figures}


def gpus(busy: Sequence[float], power_w: Sequence[float], used: Sequence[float], total: Sequence[float]) -> list[Any]:
    """Rows of several GPUs and of all together; no row without figures."""
    gib = 2**30
    rows = []
    for metric, unit, values, together in (
        ("gpu_utilization", "share", busy, sum(busy) / max(len(busy), 1)),
        ("gpu_power", "W", power_w, sum(power_w)),
        ("gpu_memory_used", "bytes", [each * gib for each in used], sum(used) * gib),
        ("gpu_memory_total", "bytes", [each * gib for each in total], sum(total) * gib),
    ):
        single = [
            server_row(metric, unit, f'gpu="{k}"', mean=value, min=value, max=value) for k, value in enumerate(values)
        ]
        if single:
            rows += [server_row(metric, unit, mean=together, min=together, max=together), *single]
    return rows


def level_columns(concurrency: int, *, seconds: int = 5, start_ns: int = 1_000_000_000) -> dict[str, Any]:
    """A closed loop of requests that take 100 ms each."""
    return closed(concurrency, lambda _: SERVICE_MS * MS, duration_ns=1000 * seconds * MS, start_ns=start_ns)


def streamed(columns: dict[str, Any], events: int = 5, *, tokens: int | None = None, keep: bool = False) -> None:
    """The answers come as ``events`` events at 50, 60, … ms, with ``tokens`` by the server's count."""
    sent = np.asarray(columns["sent_ns"], dtype=np.int64)
    times = [[int(at) + (50 + 10 * k) * MS for k in range(events)] for at in sent]
    columns["events"] = [events] * len(sent)
    columns["first_token_ns"] = columns["first_output_ns"] = [each[0] for each in times]
    columns["last_token_ns"] = [each[-1] for each in times]
    columns["tokens_out"] = [tokens] * len(sent)
    if keep:
        columns["events_ns"] = times


def run_folder(
    place: Path,
    levels: Mapping[int, dict[str, Any]],
    *,
    facts: Mapping[int, Mapping[str, Any]] | None = None,
    spans: Mapping[int, Sequence[Mapping[str, Any]]] | None = None,
    rows: Sequence[Mapping[str, Any]] = (),
    targets: int = 1,
    gpus_each: int = 2,
    **run: Any,
) -> Path:
    """A run with a level per concurrency.

    Args:
        place: the run's folder.
        levels: columns of the records by concurrency; the visits are numbered in that order.
        facts: by concurrency, what an observer adds to ``level.json``.
        spans: by concurrency, calls inside requests.
        rows: the dataset's rows.
        targets: how many replicas there are.
        gpus_each: GPUs of each.
        run: fields of ``run.json`` that differ.
    """
    place.mkdir(parents=True)
    urls = [f"http://gpu-{k}:8000/v1/chat/completions" for k in range(targets)]
    target = {"api": "openai-chat", "model": "m", "gpus": gpus_each, "tls_verified": None, "simulated": None}
    known = {"schema": 1, "run": place.name, "targets": [{"url": url, **target} for url in urls], "models": ["m"]}
    (place / "run.json").write_text(json.dumps({**known, "labels": {}, "dataset": {"sha256": "ab"}, **run}))
    if rows:
        keep_rows(place, [f"row-{k}" for k in range(len(rows))], rows)
    for visit, (concurrency, columns) in enumerate(levels.items()):
        raw = frame({**columns, "visit": [visit] * len(columns["due_ns"])})
        folder = place / "levels" / f"{visit:04d}"
        (folder / "records").mkdir(parents=True)
        raw.write_parquet(folder / "records" / "part-00000.parquet")
        outcomes = {OUTCOMES[code]: n for code, n in raw["outcome"].value_counts().iter_rows()}
        start = int(raw["due_ns"].to_numpy().min())
        meta = {
            "schema": 1,
            "visit": visit,
            "setting": {"kind": "closed", "concurrency": concurrency, "duration_s": 5},
            "state": "done",
            "start_ns": start,
            "close_ns": start + 5000 * MS,
            "end_ns": int(raw["end_ns"].to_numpy().max()),
            "residence_ns": SERVICE_MS * MS,
            "outcomes": outcomes,
            "workers": 1,
            "cpu_ns": 0,
            "alerts": [],
        }
        if spans and spans.get(concurrency):
            meta["span_parts"] = write_spans(folder, [{"visit": visit, **each} for each in spans[concurrency]])
        (folder / "level.json").write_text(json.dumps({**meta, **((facts or {}).get(concurrency, {}))}))
    return place


def column(frame_: pl.DataFrame, name: str) -> list[Any]:
    """A column as a list."""
    return frame_[name].to_list()
