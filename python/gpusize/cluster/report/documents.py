"""A cluster test as JSON, and its thresholds as JUnit's XML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree

from gpusize.cluster.report.words import clock_text, notes, outcome_rows

if TYPE_CHECKING:
    import polars as pl

    from gpusize.cluster.phases.rates import Throughput
    from gpusize.cluster.phases.thresholds import Judged
    from gpusize.cluster.phases.timed import Timed

__all__ = ["document", "junit_xml"]

SCHEMA: Final = 1


def document(timed: Timed, summary: pl.DataFrame, judged: Sequence[Judged] = ()) -> dict[str, Any]:
    """The test in plain types, for `gpusize.report.export.dumps`; what is not known or not reached is None.

    Keys: ``schema``, ``workloads``, ``outcomes`` (how many, and why), ``phases`` (of
    `gpusize.cluster.phases.statistics.phase_figures`), ``throughput``, ``gpus``, ``rules`` (workloads that break each),
    ``left_out``, ``unmeasured``, ``clock``, ``thresholds``, ``met`` (all of them), ``notes``.
    """
    offset, taken = timed.offset, timed.occupancy()
    return {
        "schema": SCHEMA,
        "workloads": timed.workloads.height,
        "outcomes": [{"outcome": name, "n": n, "what": what} for name, n, what in outcome_rows(timed)],
        "phases": summary.to_dicts() if summary.height else [],
        "throughput": {"pods": _rate(timed.pods_per_s()), "workloads": _rate(timed.workloads_per_s())},
        "gpus": None
        if taken is None
        else {"most": float(taken.gpus.max()), "mean": taken.mean, "total": taken.total, "until_s": taken.until_s},
        "rules": {rule: len(names) for rule, names in timed.broken.items()},
        "left_out": list(timed.left_out),
        "unmeasured": dict(timed.unmeasured),
        "clock": {
            "offset_ns": None if offset is None else offset.middle_ns,
            "lo_ns": None if offset is None else offset.lo_ns,
            "hi_ns": None if offset is None else offset.hi_ns,
            "source": None if offset is None else offset.source,
            "watch_lag_ns": {"p50": timed.lag.typical_ns, "p99": timed.lag.most_ns},
            "what": clock_text(timed),
        },
        "thresholds": [
            {
                **asdict(each.threshold),
                "met": each.met,
                "value": each.value if math.isfinite(each.value) else None,
                "n": each.n,
                "censored": each.censored,
                "why": each.why,
            }
            for each in judged
        ],
        "met": all(each.met for each in judged),
        "notes": notes(timed),
    }


def _rate(rate: Throughput | None) -> dict[str, Any] | None:
    if rate is None:
        return None
    return {
        "n": rate.n,
        "per_s": rate.rate if math.isfinite(rate.rate) else None,
        "elapsed_s": rate.elapsed_s,
        "idle_s": rate.idle_s,
        "most_per_s": rate.most,
    }


def junit_xml(judged: Sequence[Judged]) -> str:
    """Thresholds as JUnit's XML: a failure where one is not met, an error where nothing is known."""
    failures = sum(not each.met and each.n > 0 for each in judged)
    errors = sum(each.n == 0 for each in judged)
    counts = {"tests": str(len(judged)), "failures": str(failures), "skipped": "0", "errors": str(errors)}
    suite = ElementTree.Element("testsuite", {"name": "gpusize cluster", **counts})
    for each in judged:
        kind = each.threshold.preset or "threshold"
        case = ElementTree.SubElement(suite, "testcase", classname=kind, name=each.threshold.text, time="0")
        if not each.met:
            ElementTree.SubElement(case, "error" if each.n == 0 else "failure", message=each.why)
    root = ElementTree.Element("testsuites", counts)
    root.append(suite)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'
