"""The table of metrics as the text of ``docs/reference/metrics.md``."""

from __future__ import annotations

from typing import Final

from gpusize.analysis.metrics import METRICS, QUANTILES, by_second

__all__ = ["markdown"]

_FROM: Final = {"due": "due", "sent": "sent", "none": "–"}
_SLO_TEXT: Final = """
## In an SLO

    [pNN|mean|share] METRIC [from due|from sent] OP NUMBER UNIT

`p95 runtime <= 10s`, `p99.9 ttft from sent < 200ms`, `mean itl_mean <= 30ms`, `share ok >= 99%`. Times take us, ms, s,
min or h. `runtime from sent` is `service` and `ttft from sent` is `ttft_sent`. A share is that of `ok`, of `error` (all
that is not ok) or of one outcome, as in `share timeout <= 0.1%`; its unit, `%`, may be left out. Without a word before
the metric every request must keep the bound.

An SLO is judged by attainment: the share of requests due in the steady window that ended ok within the bound. `p95`
asks for an attainment of 95 %. Every outcome but `ok` is a miss, except `cancelled`, which counts nowhere, as does a
request that ended ok and does not have the metric. A failed request makes a mean endless.

`llm_latency` is judged by [calls](calls.md): the share of the LLM calls, of requests due in the window, that
ended ok within the bound. A failed request of which no call failed is one miss more.

Of a [sampled level](windows.md#sampled-levels) the attainment of `runtime`, `service`, `ttft` and `ttft_sent` is that
of all requests, by histograms, with the bound's own bucket split evenly; of other metrics, of the requests with a row.

The summary's `goodput` is the part of `achieved_rate` that kept the bounds of all SLOs on percentiles, with
times from due; `goodput_sent` is the same from the send: `service` stands for `runtime`, `ttft_sent` for `ttft`.
"""


def markdown() -> str:
    """The table as the text of ``docs/reference/metrics.md``."""
    head = (
        "# Metrics\n\n"
        "Made from the table in `gpusize/analysis/metrics.py`; a test fails when the two differ.\n\n"
        "Times are shown in seconds. `from` says what a time counts from: `due`, when the schedule wanted the request\n"
        "sent, or `sent`, just before the first write. Columns are those of [records](records.md)\n"
        "or, for `llm_latency`, of [calls](calls.md).\n\n"
        "| metric | unit | formula | from | table | note |\n|---|---|---|---|---|---|\n"
    )
    rows = (
        f"| `{m.name}` | {m.unit} | `{m.formula}` | {_FROM[m.origin]} | {m.table} | {m.note} |\n"
        for m in METRICS.values()
    )
    return head + "".join(rows) + _where() + _SLO_TEXT


def _where() -> str:
    """Where each metric is to be found, beside SLOs."""
    places = {
        f"Quantiles in the summary ({', '.join(QUANTILES)})": [m for m in METRICS.values() if m.summary],
        "By replica and by model": [m for m in METRICS.values() if m.parts],
        "By the second, of every request that ended ok": list(by_second("ok").values()),
        "By the second, of every request that was sent": list(by_second("sent").values()),
        "Prometheus histograms of a run": [m for m in METRICS.values() if m.exported],
        "Only of answers that come in parts": [m for m in METRICS.values() if m.streamed],
        "Only where servers [say it](../how-to/server-times.md)": [m for m in METRICS.values() if m.said],
    }
    lines = (f"| {place} | {', '.join(f'`{m.name}`' for m in found)} |\n" for place, found in places.items())
    return "\n## Where they are\n\n| where | metrics |\n|---|---|\n" + "".join(lines)
