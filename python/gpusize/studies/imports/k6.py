"""End-of-test summaries of k6: ``--summary-export`` and the data of ``handleSummary``, one level.

Of a file only ``http_req_duration`` (ms, from the first write to the last byte: ``service``) and counts are read. A
summary does not say which executor ran. That a number of users each sent one request after the other is inferred from
Little's law; where it does not hold the load counts as a rate. With failures the times are those of
``http_req_duration{expected_response:true}``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gpusize.analysis.failed_requests import OF_FAILED
from gpusize.analysis.level import LevelData
from gpusize.analysis.windows import LITTLE_TOLERANCE
from gpusize.base.errors import ConfigError
from gpusize.studies.imports.figure_levels import Remarks, both, figure_level
from gpusize.studies.imports.json_file import count, is_json_with, number, part, read_documents
from gpusize.studies.imports.run_folder import Imported, run_of, write_run

__all__ = ["import_k6", "looks_like"]

_TOOL: Final = "k6"
_DURATION: Final = "http_req_duration"
_OK_ONLY: Final = "http_req_duration{expected_response:true}"
_PERCENT: Final = re.compile(r"p\((\d+(?:\.\d+)?)\)")
_OTHERS: Final = {"med": "p50", "max": "p100", "avg": "mean"}
_CONNECTED: Final = 0.01
"""Share of the mean duration below which waits for a connection, which it does not count, are nothing."""


def looks_like(path: Path, head: bytes) -> bool:
    """Whether it is a summary of k6 with HTTP requests in it."""
    return is_json_with(path, head, "metrics") and (b'"http_req_' in head or b'"iteration_duration"' in head)


def import_k6(path: Path, out_dir: Path, gpus: int = 0) -> Imported:
    """Take a summary over as a run folder below ``out_dir``.

    The run's id follows from the content, so that importing the same twice gives the same folder.

    Raises:
        StoreError: the folder cannot be written.
        ConfigError: the file is missing or broken, with its place, or has no HTTP request.
    """
    found = read_documents(path, _TOOL)
    level = _level(found.objects[0], str(path), gpus)
    source = {"tool": _TOOL, "files": [path.name], "sha256": found.sha256, "warnings": []}
    about = run_of(f"k6-{found.sha256[:12]}-{gpus}gpu", [level], source, api="k6", gpus=gpus)
    return Imported(write_run(out_dir, about, [level]), [])


def _values(metrics: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    """A metric's figures, in either shape."""
    metric = part(metrics, name, where)
    return part(metric, "values", f"{where}, {name}") if "values" in metric else metric


def _level(summary: Mapping[str, Any], where: str, gpus: int) -> LevelData:
    metrics = part(summary, "metrics", where)
    reqs = _values(metrics, "http_reqs", where)
    total, rate = count(reqs, "count", where), number(reqs, "rate", where)
    if not total or not rate:
        raise ConfigError("no HTTP request in it", where, "k6 counts them as http_reqs; other protocols are not read")
    remarks = Remarks()
    rates = _values(metrics, "http_req_failed", where)
    share = number(rates, "value" if "value" in rates else "rate", where)
    if share is not None and share > 1:
        raise ConfigError(f"{share:g} is not a share", f"{where}, http_req_failed", "the file is damaged")
    failed = None if share is None else round(share * total)
    remarks.failures(failed or 0, total)
    times = _quantiles(_values(metrics, _DURATION, where), f"{where}, {_DURATION}")
    mixed = {}
    if failed:
        good = _quantiles(_values(metrics, _OK_ONLY, where), f"{where}, {_OK_ONLY}")
        if good:
            times = good
        elif failed < total:
            remarks.add("its times are of failed requests too: k6 gave none of the others alone", "inconsistent")
            mixed = {OF_FAILED: True}
    every = _quantiles(_values(metrics, _DURATION, where), where).get("mean")
    dropped = count(_values(metrics, "dropped_iterations", where), "count", where)
    users = _users(metrics, rate, every, where) if not dropped else None
    names = ["service"]
    if users is not None:
        setting: dict[str, Any] = {"kind": "closed", "concurrency": users}
        waited = number(_values(metrics, "http_req_blocked", where), "avg", where)
        if waited is not None and every and waited / 1e3 <= _CONNECTED * every:
            names.append("runtime")
        else:
            remarks.add("what a request waited for its connection is in none of its times: the runtime is not known")
    else:
        setting = {"kind": "open", "rate": rate}
        remarks.add(_open_text(metrics, total, dropped, where), "not-delivered" if dropped else None)
        if dropped:
            setting["rate"] = rate * _asked(metrics, dropped, where)
    ok = None if failed is None else total - failed
    facts = {
        "counts": {
            "n": total,
            "errors": failed,
        },
        "achieved_rate": None if ok is None else rate * ok / total,
        **mixed,
        "total_runtime_s": _seconds(summary, where),
        "k6": {"iterations": count(_values(metrics, "iterations", where), "count", where), "dropped": dropped},
    }
    return figure_level(setting, both(names, times), remarks, facts, gpus=gpus, where=where)


def _users(metrics: Mapping[str, Any], rate: float, mean_s: float | None, where: str) -> int | None:
    """Users that each sent one request after the other; None where the figures do not bear that out."""
    vus = _values(metrics, "vus", where)
    low, high = count(vus, "min", where), count(vus, "max", where)
    if not high or low != high or mean_s is None:
        return None
    return high if abs(rate * mean_s / high - 1) <= LITTLE_TOLERANCE else None


def _asked(metrics: Mapping[str, Any], dropped: int, where: str) -> float:
    """Iterations that were to begin over those that did."""
    begun = count(_values(metrics, "iterations", where), "count", where) or 0
    return (begun + dropped) / begun if begun else 1.0


def _open_text(metrics: Mapping[str, Any], total: int, dropped: int | None, where: str) -> str:
    if dropped:
        return f"k6 dropped {dropped:,} iterations, as no user was free: their requests are missing from all figures"
    vus = _values(metrics, "vus", where)
    seen = f"{number(vus, 'min', where) or 0:g} to {number(vus, 'max', where) or 0:g} users" if vus else "no users"
    return f"the file does not say which load was asked for ({total:,} requests, {seen}): its rate is the answered one"


def _seconds(summary: Mapping[str, Any], where: str) -> float | None:
    ms = number(part(summary, "state", where), "testRunDurationMs", where)
    return None if ms is None else ms / 1e3


def _quantiles(values: Mapping[str, Any], where: str) -> dict[str, float | None]:
    """Percentiles and mean, s, by their names here."""
    named = {key: f"p{float(match[1]):g}" for key in values if (match := _PERCENT.fullmatch(key))}
    named |= {key: name for key, name in _OTHERS.items() if key in values}
    found = {name: number(values, key, where) for key, name in named.items()}
    return {name: None if value is None else value / 1e3 for name, value in found.items()}
