"""A study as a whole: its table and figures, and the page that holds both, made from the study's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.report.summary.columns import BAD, Cell, Column
from gpusize.report.text import DASH, clean, count, number, plain_number, time_unit

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from gpusize.studies.conduct import StudyResult

__all__ = ["is_study", "study_columns", "study_frame", "study_levels", "write_study"]

_FIGURES: Final = ("peak_rate", "at", "runtime_p50_s", "runtime_p95_s", "levels", "alerts")
_TEXTS: Final = ("name", "state", "error")
_WHOLE: Final = ("levels", "alerts")


def is_study(folder: Path) -> bool:
    """Whether the folder is that of a study."""
    from gpusize.studies.state import state_file

    return state_file(folder).is_file()


def study_frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """The rows of ``gpusize.studies.table.study_rows`` as a frame; each setting is a text column of its own name."""
    import polars as pl

    names = dict.fromkeys(name for row in rows for name in row["settings"])
    columns = {f"setting_{name}": [_text(row["settings"].get(name)) for row in rows] for name in names}
    frame = {name: pl.Series(values, dtype=pl.String) for name, values in columns.items()}
    for name in (*_TEXTS, *_FIGURES):
        kind = pl.String() if name in _TEXTS else pl.Int64() if name in _WHOLE else pl.Float64()
        frame[name] = pl.Series([row.get(name) for row in rows], dtype=kind)
    return pl.DataFrame(frame)


def study_levels(result: StudyResult, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The levels of every combination that has a run: its row's ``name`` and ``settings``, and the summary's columns.

    Args:
        result: the study.
        rows: of ``study_rows``.
    """
    from gpusize.base.errors import GpusizeError
    from gpusize.result import open_run

    levels = []
    for row in rows:
        path = result.run_of(row["name"])
        if path is None:
            continue
        try:
            summary = open_run(path).summary
        except GpusizeError:
            continue  # its row in the table says that there are no figures
        of = {"name": row["name"], "settings": row["settings"]}
        levels += [{**of, **level} for level in summary.to_dicts() if level["state"] == "done"]
    return levels


def study_columns(rows: Sequence[Mapping[str, Any]], levels: Sequence[Mapping[str, Any]]) -> list[Column]:
    """The table of the page: settings, peak rate, and the p95 runtime at every level."""
    names = list(dict.fromkeys(name for row in rows for name in row["settings"]))
    made = [_column(name, name, [_text(row["settings"].get(name)) or DASH for row in rows]) for name in names]
    states = tuple(Cell(clean(row["state"]), "" if row["state"] == "done" else BAD) for row in rows)
    made.append(Column("state", "state", "", states, 0, left=True))
    made.append(_column("peak_rate", "peak rate", [number(row["peak_rate"]) for row in rows], "req/s"))
    made.append(_column("at", "at", [plain_number(row["at"], 6) for row in rows], "users or req/s"))
    unit = time_unit(level["runtime_p95_s"] for level in levels)
    from gpusize.studies.table import p95_by_level

    p95_s = p95_by_level(levels)
    for x in sorted({x for found in p95_s.values() for x in found}):
        cells = [unit.show(p95_s.get(row["name"], {}).get(x)) for row in rows]
        made.append(_column(f"p95_{x:g}", f"p95 at {plain_number(x, 6)}", cells, unit.name))
    made.append(_column("alerts", "alerts", [count(row["alerts"]) for row in rows], "n"))
    return made


def _column(key: str, title: str, cells: Sequence[str], unit: str = "") -> Column:
    return Column(key, clean(title, 40), unit, tuple(Cell(clean(cell, 60)) for cell in cells), 0)


def _text(value: Any) -> str | None:
    return None if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def write_study(folder: Path, out_dir: Path | None = None, *, plots: bool = True) -> list[Path]:
    """Write combinations.parquet, .csv and .json, plots/ and report.html of a study; returns the files, the page last.

    Args:
        folder: the study's folder, which holds ``study.json``.
        out_dir: where to write; the study's folder by default.
        plots: whether figures are drawn.

    Raises:
        StoreError: there is no study, it cannot be read, or a file cannot be written.
    """
    from gpusize.base.files import write_atomic
    from gpusize.report.export import write_summary
    from gpusize.report.figures.drawing import drawing
    from gpusize.report.figures.plots import save_figures
    from gpusize.report.page.html import render_study
    from gpusize.studies.conduct import StudyResult
    from gpusize.studies.figures import study_figures
    from gpusize.studies.state import read_state, state_file
    from gpusize.studies.table import study_rows

    state = read_state(state_file(folder))
    name, result = str(state.get("name")), StudyResult(folder, state["combinations"])
    out = folder if out_dir is None else out_dir
    rows = study_rows(result)
    levels = study_levels(result, rows)
    # Not "study": that name belongs to the state of the study, which lies in the same folder.
    written = write_summary(study_frame(rows), out, "combinations")
    made: dict[str, Figure] = {}
    if plots:
        with drawing():
            drawn = study_figures(name, rows, levels)
            written += save_figures(drawn, out / "plots") if drawn else []
            made = drawn
    page = out / "report.html"
    write_atomic(page, render_study(name, rows, study_columns(rows, levels), made).encode())
    return [*written, page]
