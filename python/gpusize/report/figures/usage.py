"""The picture of one source: CPU over time, memory with its limit and peak, and GPUs where there are any."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpusize.base.files import write_atomic
from gpusize.base.units import with_cores
from gpusize.containers.recommend.types import MIB
from gpusize.observe.metrics.prometheus_text import parse_labels
from gpusize.observe.usage.counter_curve import curves, moving_rate, span_of
from gpusize.observe.usage.memory_use import hard_set, working_set
from gpusize.observe.usage.usage import LIMIT_WINDOW_S, REQUEST_WINDOW_S
from gpusize.report.containers.request_blocks import memory_text
from gpusize.report.figures import style
from gpusize.report.figures.thinning import envelope
from gpusize.report.text import clean, duration, plain_number

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from gpusize.containers.recommend.types import Recommendation
    from gpusize.observe.usage.counter_curve import Curve, Span
    from gpusize.observe.usage.readings import Readings
    from gpusize.observe.usage.usage_types import Usage

__all__ = ["cores_over", "draw_usage", "usage_figure"]

NEAR: Final = 3.0
"""A limit further above the data than this would flatten it: it is told in words instead."""


def draw_usage(
    readings: Readings,
    usage: Usage,
    path: Path,
    made: Recommendation | None = None,
    gpus: pl.DataFrame | None = None,
) -> Path:
    """Write the picture as .png, .svg or .pdf.

    Raises:
        StoreError: the file cannot be written.
    """
    drawn = BytesIO()
    with style.settings():
        usage_figure(readings, usage, made, gpus).savefig(drawn, format=path.suffix[1:].lower())
    write_atomic(path, drawn.getvalue())
    return path


def usage_figure(
    readings: Readings, usage: Usage, made: Recommendation | None = None, gpus: pl.DataFrame | None = None
) -> Figure:
    """CPU and memory over time, and GPUs below.

    Args:
        readings: what was read.
        usage: the sums of it.
        made: what is recommended, drawn as a line.
        gpus: samples as `gpusize.observe.usage.gpus.GpuReader.stop` gives them.
    """
    panels = 2 + (gpus is not None and not gpus.is_empty())
    with style.settings():
        figure, axes = style.new_figure(_title(usage), f"{clean(usage.name, 70)}, {duration(usage.duration_s)}", panels)
        span = span_of(readings)
        _cpu(figure, axes[0], readings, usage, made, span)
        _memory(figure, axes[1], readings, usage, made, span)
        if panels == 3 and gpus is not None:
            draw_gpus(figure, axes[2], gpus, span)
        axes[-1].set_xlabel("time (s)")
        axes[-1].set_xlim(0, max(usage.duration_s, 1e-3))
    return figure


def _title(usage: Usage) -> str:
    """The finding: the peaks of CPU and memory."""
    parts = []
    window = usage.cpu and (usage.cpu.window(LIMIT_WINDOW_S) or usage.cpu.window(REQUEST_WINDOW_S))
    if window:
        parts.append(f"at most {with_cores(plain_number(window.peak_cores))} over {duration(window.over_s)}")
    if usage.memory.peak_bytes is not None:
        parts.append(f"{memory_text(usage.memory.peak_bytes)} of memory")
    text = " and ".join(parts) or "No readings"
    return text[:1].upper() + text[1:]


def _cpu(figure: Figure, axes: Axes, readings: Readings, usage: Usage, made: Recommendation | None, span: Span) -> None:
    axes.set_ylabel("cores")
    found = curves(readings, "cpu_ns")
    highest = 0.0
    ends: list[tuple[float, str, str]] = []
    shown = [w for w in (LIMIT_WINDOW_S, REQUEST_WINDOW_S) if usage.cpu is not None and usage.cpu.window(w) is not None]
    for window_s, color in zip(shown, (style.LOW, style.HIGH), strict=False):
        value = 0.0
        for curve in found:
            times, cores = cores_over(curve, window_s, span.start_ns)
            width = 0.9 if window_s == LIMIT_WINDOW_S else 2.0
            axes.plot(*envelope(times, cores), color=color, linewidth=width, zorder=3)
            highest, value = max(highest, float(cores.max())), float(cores[-1])
        ends.append((value, f"over {duration(window_s)}", color))
    limit = readings.facts.cpu_limit()
    lines = {"limit": None if limit is None else limit.cpu_cores, "request": None if made is None else made.cpu_cores}
    highest = _lines(axes, ends, lines, highest)
    axes.set_ylim(0, highest * 1.15 or 1.0)
    style.label_ends(figure, axes, ends)


def cores_over(curve: Curve, window_s: float, start_ns: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times in s after ``start_ns`` and cores over windows around them. Shape (n,) each."""
    starts, cores = moving_rate(curve, window_s)
    # A window's mean belongs to its middle.
    half_ns = min(window_s * 1e9, float(curve.relative[-1])) / 2
    return (starts + half_ns + float(curve.t_ns[0] - start_ns)) / 1e9, cores


def _memory(
    figure: Figure, axes: Axes, readings: Readings, usage: Usage, made: Recommendation | None, span: Span
) -> None:
    import polars as pl

    axes.set_ylabel("memory (MiB)")
    # Parts are read less often than the whole. Between two readings they are taken to change evenly; the sets
    # themselves may not be, as they follow the whole through a spike.
    parts = ("mem_inactive_file_bytes", "mem_active_file_bytes", "mem_slab_reclaimable_bytes")
    between = [pl.col(part).interpolate_by("t_ns").forward_fill().backward_fill() for part in parts]
    told = (
        readings.frame.drop_nulls("mem_bytes")
        .with_columns(between)
        .select(
            ((pl.col("t_ns") - span.start_ns) / 1e9).alias("t"),
            (pl.col("mem_bytes") / MIB).alias("in use"),
            (working_set() / MIB).alias("working set"),
            (hard_set() / MIB).alias("hard"),
        )
    )
    highest = 0.0
    ends: list[tuple[float, str, str]] = []
    for name, color, width in (("in use", style.LOW, 1.4), ("working set", style.MID, 2.0), ("hard", style.HIGH, 2.0)):
        line = told.select("t", name).drop_nulls()
        if line.is_empty():
            continue
        thin = envelope(line["t"].to_numpy(), line[name].to_numpy())
        axes.plot(*thin, color=color, linewidth=width, zorder=3)
        highest = max(highest, float(thin[1].max()))
        ends.append((float(line[name][-1]), name, color))
    memory = usage.memory
    lines = {
        "kernel peak": None if memory.kernel_peak_bytes is None else memory.kernel_peak_bytes / MIB,
        "limit": None if memory.limit_bytes is None else memory.limit_bytes / MIB,
        "request": None if made is None or made.mem_bytes is None else made.mem_bytes / MIB,
    }
    highest = _lines(axes, ends, lines, highest)
    axes.set_ylim(0, highest * 1.12 or 1.0)
    style.label_ends(figure, axes, ends)


def _lines(axes: Axes, ends: list[tuple[float, str, str]], lines: dict[str, float | None], highest: float) -> float:
    """Horizontal lines with their names at the edge; those far above the data are left out."""
    looks = {
        "limit": (style.LIMIT, "-"),
        "request": (style.GOOD, (0, (4, 2))),
        "kernel peak": (style.MUTED, (0, (1, 1.5))),
    }
    top = highest
    for name, value in lines.items():
        if value is None or (highest > 0 and value > NEAR * highest and name != "request"):
            continue
        color, dashes = looks[name]
        axes.axhline(value, color=color, linewidth=1.2, linestyle=dashes, zorder=2)
        ends.append((value, name, color))
        top = max(top, value)
    return top


def draw_gpus(figure: Figure, axes: Axes, samples: pl.DataFrame, span: Span) -> None:
    """Memory of each GPU as a line on the left scale, utilization as a thin one on the right scale.

    Args:
        figure: the figure, for the names at its edge.
        axes: where to draw.
        samples: columns t_ns, metric, labels, value.
        span: what time 0 stands for.
    """
    import polars as pl

    axes.set_ylabel("GPU memory (GiB)")
    busy = axes.twinx()
    busy.set_ylim(0, 105)
    busy.set_yticks([])
    busy.grid(visible=False)
    ends: list[tuple[float, str, str]] = []
    highest = 0.0
    labels = [each for each in samples["labels"].unique(maintain_order=True).to_list() if each]
    for number, label in enumerate(labels):
        color = style.SERIES[number % len(style.SERIES)]
        of_gpu = samples.filter(pl.col("labels") == label).sort("t_ns")
        held = of_gpu.filter(pl.col("metric") == "nvml_process_memory_bytes")
        if held.is_empty():
            held = of_gpu.filter(pl.col("metric") == "nvml_memory_used_bytes")
        if not held.is_empty():
            gib = held["value"] / MIB / 1024
            axes.plot(*envelope(_seconds(held, span), gib.to_numpy()), color=color, zorder=3)
            highest = max(highest, float(gib.to_numpy().max()))
            name = clean((parse_labels(label) or {}).get("gpu", label), 60)
            ends.append((float(gib[-1]), f"GPU {number}" if len(labels) > 1 else f"{name[:12]}", color))
        shares = of_gpu.filter(pl.col("metric") == "nvml_gpu_utilization")
        if not shares.is_empty():
            percent = (shares["value"] * 100).to_numpy()
            thin = envelope(_seconds(shares, span), percent)
            busy.plot(*thin, color=color, linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=2)
    axes.set_ylim(0, highest * 1.2 or 1.0)
    axes.plot([], [], color=style.MUTED, linewidth=0.8, linestyle=(0, (1, 1.5)), label="busy, 100 % at the top")
    axes.legend(loc="upper left")
    style.label_ends(figure, axes, ends)


def _seconds(part: pl.DataFrame, span: Span) -> NDArray[np.float64]:
    return ((part["t_ns"] - span.start_ns) / 1e9).to_numpy()
