"""A pipeline over time: when each container ran, and what it used of CPU and memory."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpusize.base.files import write_atomic
from gpusize.report.figures import style
from gpusize.report.figures.thinning import envelope
from gpusize.report.text import clean, duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpusize.containers.pipeline.execution import Execution
    from gpusize.containers.pipeline.outcome import PipelineResult

__all__ = ["draw_timeline", "timeline_figure"]

WINDOW_S: Final = 0.1
NAME_CHARS: Final = 24
_MIB: Final = 1 << 20


def draw_timeline(result: PipelineResult, path: Path) -> Path | None:
    """Write the picture; None where nothing ran.

    Raises:
        StoreError: the file cannot be written.
    """
    if not _bars(result):
        return None
    drawn = BytesIO()
    with style.settings():
        timeline_figure(result).savefig(drawn, format=path.suffix[1:].lower())
    write_atomic(path, drawn.getvalue())
    return path


def _trials(result: PipelineResult) -> list[tuple[str, Execution]]:
    """What ran besides, to size an operator: again without limits, and under some."""
    found = [
        (each.name, execution)
        for each in result.operators
        if each.sized is not None
        for execution in (*each.sized.executions, *(trial.execution for trial in each.sized.trials))
    ]
    return [(name, execution) for name, execution in found if execution.started_ns is not None]


def _bars(result: PipelineResult) -> list[tuple[str, Execution, bool]]:
    """What ran, with its name and whether it is a server; the executions of the run itself, not the trials."""
    found = [(each.name, each.execution, True) for each in result.servers]
    found += [(each.name, execution, False) for each in result.operators for execution in each.executions]
    return [(name, execution, server) for name, execution, server in found if execution.started_ns is not None]


def timeline_figure(result: PipelineResult) -> Figure:
    """Bars by container above, memory and cores of all of them below, on one axis of time."""
    bars = _bars(result)
    names = list(dict.fromkeys(name for name, _, _ in bars))
    start_ns = min(execution.asked_ns or execution.started_ns or 0 for _, execution, _ in bars)
    trials = _trials(result)
    ran = [*(execution for _, execution, _ in bars), *(execution for _, execution in trials)]
    end_ns = max(execution.ended_ns or execution.started_ns or 0 for execution in ran)
    failed = sum(not execution.ok for _, execution, _ in bars)
    title = f"{len(names)} containers in {duration((end_ns - start_ns) / 1e9)}"
    title += f", {failed} of them failed" if failed else ""
    with style.settings():
        height_in = style.HEIGHT_IN + 2.6 + 0.22 * len(names)
        below = clean(result.pipeline.name, 80) + ("; pale: run again to size it" if trials else "")
        figure, axes = style.new_figure(title, below, 3, height_in=height_in)
        # Room for the longest name, at some 0.012 of the width a character.
        figure.subplots_adjust(left=max(0.095, 0.03 + 0.0115 * min(NAME_CHARS, max(map(len, names)))))
        for name, execution in trials:
            begin = ((execution.started_ns or 0) - start_ns) / 1e9
            axes[0].barh(names.index(name), execution.duration_s or 0.0, left=begin, height=0.6, color=style.LOW)
        _draw_bars(axes[0], bars, names, start_ns)
        _draw_use(axes[1], axes[2], bars, start_ns)
        axes[2].set_xlabel("time (s)")
        axes[2].set_xlim(0, max((end_ns - start_ns) / 1e9, 1e-3))
        return figure


def _draw_bars(axes: Axes, bars: list[tuple[str, Execution, bool]], names: list[str], start_ns: int) -> None:
    for name, execution, server in bars:
        begin = ((execution.started_ns or 0) - start_ns) / 1e9
        color = style.AMBER if server else style.MID if execution.ok else style.LIMIT
        axes.barh(names.index(name), execution.duration_s or 0.0, left=begin, height=0.6, color=color)
    axes.set_yticks(range(len(names)), [clean(name, NAME_CHARS) for name in names])
    axes.tick_params(axis="y", labelsize=8)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")


def _draw_use(cores: Axes, memory: Axes, bars: list[tuple[str, Execution, bool]], start_ns: int) -> None:
    from gpusize.observe.usage.counter_curve import curves
    from gpusize.observe.usage.usage import windowed_cores
    from gpusize.report.figures.usage import cores_over

    for _, execution, server in bars:
        readings = execution.readings
        if readings is None or readings.facts.clock is None:
            continue
        ahead_ns = readings.facts.clock[1] - readings.facts.clock[0]
        color = style.AMBER if server else style.MID
        # Readings further apart tell nothing of such windows.
        told = bool(windowed_cores(readings, WINDOW_S))
        for curve in curves(readings, "cpu_ns") if told else ():
            cores.plot(*envelope(*cores_over(curve, WINDOW_S, start_ns - ahead_ns)), color=color, linewidth=1.2)
        t_ns, held = readings.array("mem_bytes")
        memory.plot(*envelope((t_ns + ahead_ns - start_ns) / 1e9, held / _MIB), color=color, linewidth=1.2)
    cores.set_ylabel("cores (100 ms)")
    cores.set_ylim(bottom=0)
    memory.set_ylabel("memory (MiB)")
    memory.set_ylim(bottom=0)
