"""What machines read: the summary as CSV, JSON and Parquet, estimate.json, and the one document of ``--json``.

All JSON is strict: what is not finite becomes null, and everything beyond ASCII is escaped, so that no text from a
server reaches a terminal that shows it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from io import BytesIO
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.files import storing, write_atomic
from gpusize.base.regular_files import refuse_link
from gpusize.estimate.question import Estimate
from gpusize.estimate.truth import Truth
from gpusize.report.summary.source import ReportSource, shown
from gpusize.report.summary.sweep import sweep_of
from gpusize.report.summary.words import answer

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

__all__ = ["dumps", "estimate_document", "flat", "result_document", "strict", "write_outputs", "write_summary"]

DOCUMENT_SCHEMA: Final = 1
"""Version of the documents' shape; fields are added, never repurposed."""

LIST_SEPARATOR: Final = " | "
STEERING: Final = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
"""Characters that a terminal obeys instead of showing them: escapes, other controls, marks of direction."""


def strict(value: Any) -> Any:
    """Plain JSON types: nan and infinities become null, tuples lists, keys texts, paths and times their text."""
    if value is None or isinstance(value, (bool, str, int, float)):
        return None if isinstance(value, float) and not math.isfinite(value) else value
    if isinstance(value, Mapping):
        return {str(key): strict(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [strict(inner) for inner in value]
    if hasattr(value, "to_json"):
        return strict(value.to_json())
    if hasattr(value, "item"):  # a numpy scalar
        return strict(value.item())
    return str(value)


def dumps(document: Any) -> str:
    """Strict JSON text with a line end, two blanks of indent, keys in the document's order."""
    return _text(document, "\n") + "\n"


def _text(value: Any, line: str) -> str:
    """As ``json.dumps(strict(value), indent=2)``, whose writer of indented text is slow where requests are listed.

    Args:
        value: what ``strict`` takes.
        line: a line end and the indent that the value stands at.
    """
    write = _PLAIN.get(type(value))
    if write is not None:
        return write(value)
    inner = line + "  "
    if isinstance(value, Mapping):
        # Of keys that are the same as text the last one counts, as in ``strict``.
        fields = value if all(type(key) is str for key in value) else {str(key): each for key, each in value.items()}
        if len(fields) >= _MANY and (listed := _records(fields, line)) is not None:
            return listed
        lines = [f"{encode_basestring_ascii(key)}: {_text(each, inner)}" for key, each in fields.items()]
        return "{" + inner + f",{inner}".join(lines) + line + "}" if lines else "{}"
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [_text(each, inner) for each in value]
        return "[" + inner + f",{inner}".join(items) + line + "]" if items else "[]"
    plain = strict(value)
    # Of a class of its own that is a number or a text, as those of numpy and enumerations are.
    return json.dumps(plain) if isinstance(plain, (str, int, float)) else _text(plain, line)


def _records(fields: Mapping[str, Any], line: str) -> str | None:
    """The text of many plain objects by name, by Python's writer in C; None where they are anything else.

    That writer knows no indents. So it gets separators that no text can hold, as control characters are escaped, and
    they tell where lines end.
    """
    each = fields.values()
    if set(map(type, each)) != {dict} or not all(each):
        return None
    names = {name for keys in set(map(tuple, each)) for name in keys}
    if not all(type(name) is str for name in names) or {type(x) for one in each for x in one.values()} - set(_PLAIN):
        return None
    try:
        text = json.dumps(fields, separators=(",\0", ":\1"), allow_nan=False)
    except ValueError:  # a number that is not finite
        return None
    inner, innermost = line + "  ", line + "    "
    for mark, written in (
        ("},\0", f"{inner}}},{inner}"),
        (":\1{", f": {{{innermost}"),
        (",\0", f",{innermost}"),
        (":\1", ": "),
    ):
        text = text.replace(mark, written)
    return f"{{{inner}{text[1:-2]}{inner}}}{line}}}"


def _float(value: float) -> str:
    return float.__repr__(value) if math.isfinite(value) else "null"


_MANY: Final = 100
"""Objects in an object from which on it is asked whether all of them are alike and plain."""

_PLAIN: Final[Mapping[type, Callable[[Any], str]]] = {
    str: encode_basestring_ascii,
    int: int.__repr__,
    float: _float,
    bool: lambda value: "true" if value else "false",
    type(None): lambda _: "null",
}


def flat(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with its list columns joined to texts, for formats that have no lists, and its texts made harmless.

    Texts of servers reach a terminal when somebody looks at a file: what would steer it is written as an escape.
    """
    import polars as pl
    from polars import selectors

    lists = [name for name, kind in frame.schema.items() if kind == pl.List]
    joined = frame.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join(LIST_SEPARATOR) for name in lists)
    odd = selectors.string()
    escaped = odd.map_elements(_escaped, return_dtype=pl.String)
    return joined.with_columns(pl.when(odd.str.contains(STEERING)).then(escaped).otherwise(odd).name.keep())


def _escaped(text: str) -> str:
    return re.sub(STEERING, lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def result_document(
    source: ReportSource, estimates: Sequence[Estimate] = (), truth: Truth | None = None
) -> dict[str, Any]:
    """The one document of ``--json``.

    Keys: ``schema``, ``gpusize``, ``run``, ``path``, ``answer`` (a sentence or null), ``search`` (what a
    search found, else null), ``certificate`` (what was proved by the run, else null), ``slos``, ``summary`` (one object
    per row), ``tables`` (those of ``Result.tables``, likewise, but for ``server``), ``estimates``, ``truth`` (of a
    simulated cluster, else null), ``warnings``, ``alerts``, ``sources`` (what was sampled beside the load: readings had
    and lost).
    """
    safe = [shown(each) for each in estimates]
    rows = source.summary.to_dicts()
    certificate = getattr(source, "certificate", None)
    document = {
        "schema": DOCUMENT_SCHEMA,
        "gpusize": source.meta.get("gpusize"),
        "run": source.meta.get("run"),
        "path": source.path,
        "answer": answer(safe[0]) if safe else None,
        "search": getattr(source, "search", None),
        "certificate": None if certificate is None else certificate.to_json(),
        "slos": [slo.text for slo in sweep_of(source).slos],
        "summary": rows,
        # The rows of single GPUs are many; the summary has those for all, and tables/ the rest.
        "tables": {name: frame.to_dicts() for name, frame in source.tables.items() if name != "server"},
        "estimates": estimates,
        "truth": truth and asdict(truth),
        "warnings": list(dict.fromkeys(text for each in safe for text in each.warnings)),
        "alerts": [
            {"run": row.get("run"), "visit": row.get("visit"), "alerts": row["alerts"]}
            for row in rows
            if row.get("alerts")
        ],
        "sources": list(getattr(source, "sources", ())),
    }
    plain: dict[str, Any] = strict(document)
    return plain


def estimate_document(
    estimates: Sequence[Estimate], truth: Truth | None = None, calc_output: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The contents of ``estimate.json``.

    Args:
        estimates: as ``gpusize.estimate.methods.estimate`` gives them.
        truth: what the simulated cluster would really need.
        calc_output: the sizing calculator's fields (``gpu_estimates``, ``fit_results``, ``calc_data``), which stand
            beside ours under their own names.
    """
    document: dict[str, Any] = strict(
        {
            "schema": DOCUMENT_SCHEMA,
            "answer": answer(shown(estimates[0])) if estimates else None,
            "estimates": estimates,
            "truth": truth and asdict(truth),
        }
    )
    # Plain numbers and texts already, a line or more for each request.
    return {**document, **(calc_output or {})}


def write_summary(frame: pl.DataFrame, out_dir: Path, name: str = "summary") -> list[Path]:
    """Write a table as <name>.parquet, .csv and .json; returns the files.

    Raises:
        StoreError: a file cannot be written.
    """
    files = [out_dir / f"{name}.{suffix}" for suffix in ("parquet", "csv", "json")]
    with storing(out_dir):
        out_dir.mkdir(parents=True, exist_ok=True)
    parquet = BytesIO()
    frame.write_parquet(parquet)
    write_atomic(files[0], parquet.getvalue())
    write_atomic(files[1], flat(frame).write_csv().encode())
    write_atomic(files[2], dumps(frame.to_dicts()).encode())
    return files


def write_outputs(
    source: ReportSource,
    estimates: Sequence[Estimate],
    out_dir: Path,
    *,
    plots: bool = True,
    truth: Truth | None = None,
    calc_output: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write everything that is derived from a result: summary.*, tables/, estimate.json, plots/ and report.html.

    Args:
        source: a result.
        estimates: its estimates; without any there is no estimate.json.
        out_dir: usually the run folder; made when it is missing.
        plots: whether figures are drawn, for the folder and for the page.
        truth: as in ``result_document``.
        calc_output: as in ``estimate_document``.

    Returns:
        The files, in the order in which they were written.

    Raises:
        StoreError: a file cannot be written.
    """
    from gpusize.report.figures.drawing import drawing
    from gpusize.report.figures.plots import figures, save_figures
    from gpusize.report.page.html import write_html

    for name in ("tables", "plots"):
        refuse_link(out_dir / name)
    written = write_summary(source.summary, out_dir)
    for name, frame in source.tables.items():
        written += write_summary(frame, out_dir / "tables", name)
    if estimates:
        document = estimate_document(estimates, truth, calc_output)
        write_atomic(out_dir / "estimate.json", dumps(document).encode())
        written.append(out_dir / "estimate.json")
    made: dict[str, Figure] = {}
    if plots:
        with drawing():
            drawn = figures(source, estimates)
            written += save_figures(drawn, out_dir / "plots") if drawn else []
            made = drawn
    page = out_dir / "report.html"
    written.append(write_html(source, estimates, page, truth=truth, figures=made, folder=out_dir / "plots"))
    return written
