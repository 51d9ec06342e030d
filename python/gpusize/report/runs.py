"""Run folders as people see them: a list, and one by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from gpusize.records.catalog import RunFacts
from gpusize.report.summary.terminal import plain
from gpusize.report.text import clean, plain_number

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["list_document", "print_run", "print_runs", "size_text"]

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_MOST: Final = 60
"""Characters of a cell."""


def print_runs(runs: Sequence[RunFacts], console: Console) -> None:
    """Print one line for each run."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for name in ("run", "began (UTC)", "target", "GPUs", "levels", "labels", "size"):
        table.add_column(name, justify="right" if name in ("GPUs", "size") else "left", overflow="fold")
    for each in runs:
        cells = [
            str(each.path),
            each.created[:16].replace("T", " "),
            _problem_text(each) or clean(_target_text(each), _MOST),
            str(each.gpus or "\u2013"),
            _levels_text(each),
            clean(_labels_text(each), _MOST),
            size_text(each.size_bytes),
        ]
        table.add_row(
            *(
                Text(plain(console, cell), style="red" if each.problem and k == 2 else "")
                for k, cell in enumerate(cells)
            )
        )
    console.print(table)


def print_run(run: RunFacts, console: Console) -> None:
    """Print what a run was, a line for each fact that is known."""
    from rich.text import Text

    about = run.about
    dataset = about.get("dataset") or {}
    host: Mapping[str, Any] = next(iter(about.get("hosts") or ()), {})
    facts = {
        "run": str(run.path),
        "began": run.created.replace("T", " "),
        "command": " ".join(map(str, about.get("command") or ())),
        "target": _target_text(run),
        "GPUs": str(run.gpus or "unknown"),
        "dataset": ", ".join(
            str(value)
            for value in (dataset.get("source"), dataset.get("rows") and f"{dataset['rows']:,} rows")
            if value
        ),
        "SLOs": "; ".join(map(str, (about.get("options") or {}).get("slo") or ())),
        "seed": "" if about.get("seed") is None else str(about["seed"]),
        "labels": _labels_text(run),
        "levels": _levels_text(run),
        "loads": ", ".join(run.loads),
        "machine": ", ".join(
            str(value)
            for value in (host.get("hostname"), host.get("cpu"), host.get("cores") and f"{host['cores']} cores")
            if value
        ),
        "gpusize": str(about.get("gpusize") or ""),
        "size": size_text(run.size_bytes),
        "problem": _problem_text(run),
    }
    for name, value in facts.items():
        if value:
            line = Text(f"{name:8} ", style="bold")
            line.append(plain(console, clean(value, 2000)), style="not bold")
            console.print(line, soft_wrap=True)


def list_document(runs: Sequence[RunFacts]) -> dict[str, Any]:
    """The runs as plain JSON types."""
    return {
        "schema": 1,
        "runs": [
            {
                "path": str(each.path),
                "problem": each.problem or None,
                "created": each.created or None,
                "targets": each.targets,
                "models": each.models,
                "gpus": each.gpus or None,
                "loads": each.loads,
                "states": each.states,
                "labels": each.labels,
                "size_bytes": each.size_bytes,
            }
            for each in runs
        ],
    }


def size_text(size: int) -> str:
    """Bytes in the unit that fits: ``3.4 MiB``."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{plain_number(value, 3)} {_UNITS[unit]}"


def _target_text(run: RunFacts) -> str:
    return ", ".join([*dict.fromkeys(run.targets), *dict.fromkeys(run.models)])


def _levels_text(run: RunFacts) -> str:
    """``8``, or with those that did not end as intended: ``8 done, 1 interrupted``."""
    if set(run.states) <= {"done"}:
        return str(sum(run.states.values()))
    return ", ".join(f"{n} {state}" for state, n in run.states.items())


def _problem_text(run: RunFacts) -> str:
    """That it, or a level of it, cannot be read; empty where all can."""
    if not run.problem:
        return ""
    return f"{'a level' if run.states else 'it'} cannot be read: {clean(run.problem)}"


def _labels_text(run: RunFacts) -> str:
    return " ".join(f"{name}={value}" for name, value in run.labels.items())
