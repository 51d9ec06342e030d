"""llm-d's Benchmark Report v0.2.1, YAML or JSON: one level a document; a folder of documents is a sweep.

Its latencies count from the first write. For a concurrency that is the runtime; at a rate what a request waited before
is missing, so there only ``service`` is known, unless the document is one of ours and says both.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from gpusize.analysis.level import LevelData
from gpusize.analysis.metrics import QUANTILES
from gpusize.analysis.summary_columns import OF_LEVELS
from gpusize.base.documents import Document, parse_document
from gpusize.base.errors import ConfigError, PathMissing, StoreError
from gpusize.base.files import storing
from gpusize.base.text import decode
from gpusize.records.samples import FIELDS
from gpusize.records.schema import SCHEMA_VERSION
from gpusize.report.exchange.benchmark_report import LATENCIES, OWN, PROBABILITIES, VERSION
from gpusize.studies.imports.figure_levels import Remarks, refuse_longest
from gpusize.studies.imports.run_folder import Imported, run_of, write_run
from gpusize.studies.imports.whole_file import read_whole

__all__ = ["import_benchmark_report", "looks_like", "read_benchmark_report"]

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_HEAD: Final = 65_536
_MOST_FILES: Final = 1000
_MOST: Final = 1e15
"""Of any number: what is larger has lost its meaning."""
_MOST_BYTES: Final = 1 << 26
_KEY: Final = re.compile(rb"""(?:^|[\s{,])["']?request_performance["']?\s*:""")
_VERSIONED: Final = re.compile(rb"""(?:^|[\s{,])["']?version["']?\s*:\s*["']?0\.\d""")
_SCENARIO: Final = re.compile(rb"""(?:^|[\s{,])["']?scenario["']?\s*:""")
_TIMES: Final = {"s": 1.0, "s/token": 1.0, "ms": 1e-3, "ms/token": 1e-3}
"""Seconds in one, by unit."""
_RATES: Final = {
    "request_rate": ("achieved_rate", "queries/s"),
    "input_token_rate": ("tokens_in_per_s", "tokens/s"),
    "output_token_rate": ("tokens_out_per_s", "tokens/s"),
}
_OBSERVED: Final = {
    "gpu_utilization": ("gpu_utilization", "share", {"percent": 0.01, "fraction": 1.0}),
    "kv_cache_usage": ("kv_cache_use", "share", {"percent": 0.01, "fraction": 1.0}),
    "cpu_utilization": ("cpu_utilization", "share", {"percent": 0.01, "fraction": 1.0}),
    "running_requests": ("running", "requests", {"count": 1.0}),
    "waiting_requests": ("waiting", "requests", {"count": 1.0}),
    "power_consumption": ("gpu_power", "W", {"Watts": 1.0}),
}
"""Of a component, our metric, its unit, and how many of that are one of each unit there."""
_WHAT: Final = "is it a Benchmark Report of llm-d?"


def looks_like(path: Path, head: bytes) -> bool:
    """Whether it is such a document, or a folder that has one."""
    if path.is_dir():
        return next(iter(_in_folder(path)), None) is not None
    return bool(_KEY.search(head) or (_VERSIONED.search(head) and _SCENARIO.search(head)))


def _in_folder(folder: Path) -> Iterator[Path]:
    # Beside its own reports inference-perf puts parts of documents, which say no load.
    names = (file for file in folder.iterdir() if ".partial." not in file.name)
    files = sorted(file for file in names if file.suffix.lower() in _SUFFIXES and file.is_file())
    for file in files[:_MOST_FILES]:
        with storing(file), file.open("rb") as opened:
            head = opened.read(_HEAD)
        if looks_like(file, head):
            yield file


def read_benchmark_report(path: Path, gpus: int = 0) -> tuple[list[LevelData], str, list[str]]:
    """Read a document, or all of a folder.

    Args:
        path: file or folder.
        gpus: GPUs that were measured; 0 for what a document of ours says, else unknown.

    Returns:
        The levels by stage and load, a digest of the files, and what is missing or odd.

    Raises:
        StoreError: it cannot be read.
        ConfigError: it is no Benchmark Report 0.2.1, or contradicts its schema; with the place. Of several files only
            where none can be read.
    """
    if not path.exists():
        raise PathMissing("not found", str(path), "give a Benchmark Report, or a folder of them")
    files = list(_in_folder(path)) if path.is_dir() else [path]
    if not files:
        raise ConfigError("no Benchmark Report in it", str(path), "give a folder of .yaml or .json documents")
    levels: list[tuple[int, float, LevelData]] = []
    notes: list[str] = []
    digest = hashlib.sha256()
    for file in files:
        try:
            content = read_whole(file, _WHAT, _MOST_BYTES)
            reader = _Reader(_document(file, content), gpus)
            level = reader.level()
        except (ConfigError, StoreError) as error:
            if len(files) == 1:
                raise
            notes.append(f"skipped: {error}")
            continue
        digest.update(content)
        notes += reader.notes
        levels.append((reader.stage(), float(level.concurrency or level.rate or 0), level))
    if not levels:
        raise ConfigError(f"none of {len(files)} documents can be read: {notes[0]}", str(path), _WHAT)
    levels.sort(key=lambda each: each[:2])
    return [replace(level, visit=k) for k, (_, _, level) in enumerate(levels)], digest.hexdigest(), notes


def import_benchmark_report(path: Path, out_dir: Path, gpus: int = 0) -> Imported:
    """Take a document or a folder of them over as a run folder below ``out_dir``.

    The run's id follows from the content, so that importing the same twice gives the same folder.

    Raises:
        StoreError, ConfigError: as ``read_benchmark_report``; or the folder cannot be written.
    """
    levels, sha256, notes = read_benchmark_report(path, gpus)
    known = {level.gpus for level in levels}
    measured = known.pop() if len(known) == 1 else gpus
    source = {"tool": "Benchmark Report", "files": [path.name], "sha256": sha256, "warnings": notes}
    run = f"benchmark_report-{sha256[:12]}-{measured}gpu"
    about = run_of(run, levels, source, api="benchmark_report", gpus=measured)
    return Imported(write_run(out_dir, about, levels), notes)


def _document(file: Path, content: bytes) -> Document:
    suffix = ".json" if content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") else ".yaml"
    document = parse_document(decode(content, str(file), error=ConfigError), str(file), suffix)
    version = document.values.get("version", VERSION)
    if str(version) != VERSION:
        what = f"a Benchmark Report of version {str(version)[:20]!r}; version {VERSION} is read"
        raise ConfigError(what, document.where("version"), f"convert it to {VERSION} with llm-d-benchmark")
    return document


class _Reader:
    """One document; every error names the key."""

    def __init__(self, document: Document, gpus: int) -> None:
        self._document = document
        self._gpus = gpus
        self.notes: list[str] = []
        self._remarks = Remarks()

    def level(self) -> LevelData:
        aggregate = ("results", "request_performance", "aggregate")
        if not self._table(*aggregate):
            raise ConfigError("no figures of requests in it", self._where(*aggregate[:2]), _WHAT)
        own = self._own()
        setting = self._setting(own)
        closed = "concurrency" in setting
        percentiles = self._percentiles(aggregate, own, closed=closed)
        refuse_longest(percentiles, self._where(*aggregate, "latency"))
        counts = {
            "n": self._whole(*aggregate, "requests", "total"),
            "errors": self._whole(*aggregate, "requests", "failures"),
        }
        rates = {ours: self._mean((*aggregate, "throughput", key), unit) for key, (ours, unit) in _RATES.items()}
        rate = rates.pop("achieved_rate")
        self._check(setting, percentiles, counts, rate, own)
        summary = self._map(own.get("summary"))
        meta = {
            "schema": SCHEMA_VERSION,
            "visit": 0,
            "imported": True,
            "setting": setting,
            "state": "done" if not summary else self._state(summary),
            "stop_reason": None,
            "intervals": [],
            "alerts": [*self._remarks.alerts, *_texts(summary.get("alerts"))],
            "flags": [
                *self._remarks.flags,
                *(flag for flag in _texts(summary.get("flags")) if flag not in self._remarks.flags),
            ],
            "percentiles": percentiles,
            "items": {},
            "counts": {**counts, **rates},
            "achieved_rate": rate,
            "inferences_rate": self._own_number(summary, "inferences_rate"),
            "total_runtime_s": self._own_number(summary, "total_runtime_s"),
            "residence_ns": _ns(percentiles.get("service_mean_s")),
            "server": self._server(own),
        }
        return LevelData(
            visit=0,
            setting=setting,
            state=str(meta["state"]),
            intervals=(),
            gpus=self._gpus or int(self._own_number(summary, "gpus") or 0),
            run="",
            meta=meta,
            percentiles=percentiles,
        )

    def stage(self) -> int:
        """Its place among other documents."""
        return self._whole("scenario", "load", "standardized", "stage") or 0

    def _where(self, *keys: str) -> str:
        for length in range(len(keys), 0, -1):
            where = self._document.where(*keys[:length])
            if where != self._document.source:
                return f"{where}, {'.'.join(keys)}"
        return f"{self._document.source}, {'.'.join(keys)}"

    def _value(self, *keys: str) -> Any:
        found: Any = self._document.values
        for number, key in enumerate(keys):
            if found is None:
                return None
            if not isinstance(found, dict):
                raise ConfigError("this is not an object", self._where(*keys[:number]), _WHAT)
            found = found.get(key)
        return found

    def _table(self, *keys: str) -> dict[str, Any]:
        found = self._value(*keys)
        if found is not None and not isinstance(found, dict):
            raise ConfigError("this is not an object", self._where(*keys), _WHAT)
        return found or {}

    def _number(self, value: Any, *keys: str) -> float | None:
        if value is None:
            return None
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if not plain or not 0 <= value <= _MOST:
            raise ConfigError(f"{str(value)[:40]!r} is not a number from 0", self._where(*keys), "correct it there")
        return float(value)

    def _whole(self, *keys: str) -> int | None:
        found = self._number(self._value(*keys), *keys)
        if found is not None and not found.is_integer():
            raise ConfigError(f"{found} is not a whole number", self._where(*keys), "correct it there")
        return None if found is None else int(found)

    def _mean(self, keys: Sequence[str], unit: str) -> float | None:
        table = self._table(*keys)
        if table and table.get("units") != unit:
            what = f"the unit is {str(table.get('units'))[:20]!r}, not {unit}"
            raise ConfigError(what, self._where(*keys, "units"), "correct it there")
        return self._number(table.get("mean"), *keys, "mean")

    def _percentiles(self, aggregate: Sequence[str], own: Mapping[str, Any], *, closed: bool) -> dict[str, float]:
        found: dict[str, float] = {}
        for key, (name, _) in LATENCIES.items():
            found |= self._statistics((*aggregate, "latency", key), name)
        summary = self._map(own.get("summary"))
        for each in OF_LEVELS:
            for quantile, share in QUANTILES.items():
                column = each.column(quantile)
                value = self._own_number(summary, column)
                if value is not None:
                    found.setdefault(f"{each.name}_p{round(share * 100, 6):g}_s", value)
        mean = self._own_number(summary, "runtime_mean_s")
        if mean is not None:
            found["runtime_mean_s"] = mean
        if closed and not summary:
            # A user sends when the answer before has come, so that both count from the same moment.
            for ours, theirs in (("runtime", "service"), ("ttft", "ttft_sent")):
                found |= {
                    f"{ours}{name.removeprefix(theirs)}": value
                    for name, value in list(found.items())
                    if name.startswith((f"{theirs}_p", f"{theirs}_mean"))
                }
        return found

    def _statistics(self, keys: Sequence[str], name: str) -> dict[str, float]:
        """A latency's figures, seconds, by the names of imported percentiles."""
        table = self._table(*keys)
        if not table:
            return {}
        unit = table.get("units")
        if unit not in _TIMES:
            what = f"the unit is {str(unit)[:20]!r}, which is no time"
            raise ConfigError(what, self._where(*keys, "units"), f"take {', '.join(_TIMES)}")
        read: dict[str, float] = {}
        for key in ("mean", *PROBABILITIES):
            odd = next((each for each in table if each.lower() == key and each not in (*PROBABILITIES, "mean")), None)
            taken = key if key in table or odd is None else odd
            value = self._number(table.get(taken), *keys, taken)
            if value is not None:
                read[key] = value * _TIMES[unit]
                if taken != key:
                    self.notes.append(f"{self._where(*keys, taken)}: read as {key}")
        ordered = [(key, read[key]) for key in PROBABILITIES if key in read]
        for (low, before), (high, after) in itertools.pairwise(ordered):
            if after < before * (1 - 1e-9):
                self._remarks.add(f"{keys[-1]}: {high} ({after:.4g} s) is below {low} ({before:.4g} s)", "inconsistent")
        made = {f"{name}_p{round(PROBABILITIES[key] * 100, 6):g}_s": value for key, value in ordered}
        return made if "mean" not in read else {**made, f"{name}_mean_s": read["mean"]}

    def _setting(self, own: Mapping[str, Any]) -> dict[str, Any]:
        told = self._map(own.get("setting"))
        load = ("scenario", "load", "standardized")
        concurrency = told.get("concurrency", self._value(*load, "concurrency"))
        rate = told.get("rate", self._value(*load, "rate_qps"))
        if rate is not None:
            per_s = self._number(rate, *load, "rate_qps")
            if not per_s:
                raise ConfigError("a rate of 0", self._where(*load, "rate_qps"), "correct it there")
            return {**told, "kind": "open", "rate": per_s}
        if concurrency is not None and concurrency != math.inf:
            users = self._number(concurrency, *load, "concurrency")
            if not users or not users.is_integer():
                what = f"{str(concurrency)[:20]} is not a concurrency"
                raise ConfigError(what, self._where(*load, "concurrency"), "it is a whole number from 1")
            return {**told, "kind": "closed", "concurrency": int(users)}
        what = "it says neither a concurrency nor a rate, so that no level can be told"
        raise ConfigError(what, self._where(*load), "add concurrency or rate_qps")

    def _check(
        self,
        setting: Mapping[str, Any],
        percentiles: Mapping[str, float],
        counts: Mapping[str, int | None],
        rate: float | None,
        own: Mapping[str, Any],
    ) -> None:
        total, failures = counts["n"], counts["errors"]
        if total is not None and failures is not None and failures > total:
            self._remarks.add(f"{failures} of {total} requests failed, which cannot be", "inconsistent")
        tool = str(self._value("scenario", "load", "standardized", "tool") or "")
        if failures and "aiperf" in tool.lower():
            where = self._where("results", "request_performance", "aggregate", "requests", "failures")
            self.notes.append(f"{where}: llm-d's converter counts kinds of AIPerf's errors, not requests")
        mean_s, users = percentiles.get("service_mean_s"), setting.get("concurrency")
        if own or not mean_s or not rate or not users:
            return
        longest_s = max((value for name, value in percentiles.items() if name.startswith("service_p")), default=None)
        seconds = (total - (failures or 0)) / rate if total else None
        self._remarks.little(rate, mean_s, users, longest_s=longest_s, seconds=seconds, others=failures or 0)

    def _own(self) -> dict[str, Any]:
        """What a document of ours says beside the schema; empty for others."""
        stack = self._value("scenario", "stack") or []
        if not isinstance(stack, list):
            raise ConfigError("this is not a list", self._where("scenario", "stack"), _WHAT)
        for each in stack:
            component = self._map(each)
            if self._map(component.get("metadata")).get("label") == OWN:
                config = self._map(self._map(component.get("native")).get("config"))
                return self._map(config.get(OWN))
        return {}

    @staticmethod
    def _map(value: Any) -> dict[str, Any]:
        return value if isinstance(value, dict) else {}

    def _own_number(self, summary: Mapping[str, Any], name: str) -> float | None:
        return self._number(summary.get(name), "scenario", "stack", OWN, "summary", name)

    def _state(self, summary: Mapping[str, Any]) -> str:
        state = summary.get("state")
        if state not in ("done", "interrupted", "cancelled", "partial"):
            where = self._where("scenario", "stack", OWN, "summary", "state")
            raise ConfigError(f"{str(state)[:20]!r} is no state of a level", where, "correct it there")
        return str(state)

    def _server(self, own: Mapping[str, Any]) -> list[dict[str, Any]]:
        rows = own.get("server")
        if isinstance(rows, list):
            return [dict(row) for row in rows if isinstance(row, dict) and set(FIELDS) <= set(row)]
        components = self._value("results", "observability", "components") or []
        if not isinstance(components, list) or len(components) != 1:
            # What several components tell cannot be put into one figure without knowing what they are.
            return []
        told = self._map(self._map(components[0]).get("aggregate"))
        found = []
        for key, (metric, unit, factors) in _OBSERVED.items():
            table = self._map(told.get(key))
            factor = factors.get(str(table.get("units")))
            keys = ("results", "observability", "components", "0", "aggregate", key)
            mean, most = (self._number(table.get(each), *keys, each) for each in ("mean", "max"))
            if factor is not None and mean is not None:
                row: dict[str, Any] = dict.fromkeys(FIELDS)
                figures = {"mean": mean * factor, "max": None if most is None else most * factor}
                found.append(row | {"metric": metric, "unit": unit, "labels": None, "source": "report"} | figures)
        return found


def _texts(value: Any) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)
