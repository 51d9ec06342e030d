"""One line for each combination of a study."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import GpusizeError
from gpusize.report.text import finite
from gpusize.studies.conduct import StudyResult, measured_none, unfinished

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from gpusize.result import Result

__all__ = ["best_level", "p95_by_level", "print_study", "study_rows", "varying"]

_FIGURES: Final = (
    ("peak_rate", "peak rate", "requests/s"),
    ("at", "at", "concurrency or rate"),
    ("runtime_p50_s", "p50", "s"),
    ("runtime_p95_s", "p95", "s"),
    ("levels", "levels", ""),
    ("alerts", "alerts", ""),
)


def study_rows(result: StudyResult) -> list[dict[str, Any]]:
    """For each combination its name, settings, state and error, and figures of the level with the highest rate.

    ``peak_rate`` is in requests/s that ended ok, ``at`` the concurrency or rate of that level, runtimes in seconds, all
    of levels that were measured to their end. What is not known is None.
    """
    rows = []
    for name, entry in result.entries.items():
        run = _opened(result, name)
        left = unfinished(run) if run is not None else None
        # A study of an earlier version called it done.
        none = run is not None and measured_none(run)
        state = "failed" if none and entry.get("state") == "done" else entry.get("state")
        row = {"name": name, "settings": entry.get("settings", {}), "state": state}
        row |= {"error": entry.get("error") or entry.get("teardown_error") or left}
        rows.append(row | _figures(run))
    return rows


def _opened(result: StudyResult, name: str) -> Result | None:
    """The run of a combination; None where there is none that can be read."""
    path = result.run_of(name)
    if path is None:
        return None
    from gpusize.result import open_run

    try:
        run = open_run(path)
        _ = run.summary
    except GpusizeError:
        return None
    return run


def _figures(run: Result | None) -> dict[str, Any]:
    nothing: dict[str, Any] = dict.fromkeys(key for key, _, _ in _FIGURES)
    rows = [] if run is None else run.summary.to_dicts()
    done = [row for row in rows if row["state"] == "done" and row["achieved_rate"] is not None]
    counts = {"levels": len(rows), "alerts": sum(len(row["alerts"] or ()) for row in rows)} if rows else {}
    return {**nothing, **counts, **(best_level(done) if done else {})}


def best_level(done: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The level with the most requests per second, of repeats their mean, as the run's own report says it."""
    levels: dict[Any, list[Mapping[str, Any]]] = {}
    for row in done:
        levels.setdefault(row["concurrency"] if row["concurrency"] is not None else row["rate"], []).append(row)

    def mean(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
        known = [row[name] for row in rows if row[name] is not None]
        return sum(known) / len(known) if known else None

    at, rows = max(levels.items(), key=lambda level: mean(level[1], "achieved_rate") or 0.0)
    times = {name: mean(rows, name) for name in ("runtime_p50_s", "runtime_p95_s")}
    return {"peak_rate": mean(rows, "achieved_rate"), "at": at, **times}


def print_study(result: StudyResult, console: Console) -> None:
    """The rows as a table, and below it what went wrong."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows = study_rows(result)
    settings = list(dict.fromkeys(key for row in rows for key in row["settings"]))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for key in [*settings, "state"]:
        table.add_column(Text(key))
    for _, title, unit in _FIGURES:
        table.add_column(Text(f"{title}\n{unit}"), justify="right")
    for row in rows:
        cells = [str(row["settings"].get(key, "")) for key in settings] + [str(row["state"])]
        table.add_row(*map(Text, cells), *(Text(_shown(row[key])) for key, _, _ in _FIGURES))
    console.print(table)
    for row in rows:
        if row["error"]:
            console.print(Text(f"{row['name']}: {row['error']}"), soft_wrap=True)


def _shown(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def varying(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the settings that have several values, in the study's order; of the first one when none has."""
    names = list(dict.fromkeys(name for row in rows for name in row["settings"]))
    several = [name for name in names if len({str(row["settings"].get(name)) for row in rows}) > 1]
    return several or names[:1]


def p95_by_level(levels: Sequence[Mapping[str, Any]]) -> dict[str, dict[float, float]]:
    """p95 runtime in seconds by combination and by concurrency or rate; the mean of a level's visits."""
    visits: dict[str, dict[float, list[float]]] = {}
    for level in levels:
        x = finite(level["concurrency"] if level["concurrency"] is not None else level["rate"])
        y = finite(level["runtime_p95_s"])
        if x is not None and y is not None:
            visits.setdefault(level["name"], {}).setdefault(x, []).append(y)
    return {name: {x: sum(ys) / len(ys) for x, ys in found.items()} for name, found in visits.items()}
