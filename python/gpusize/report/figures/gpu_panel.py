"""GPUs in the picture of one source: the memory that it held of each, and how busy each was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusize.containers.recommend.types import MIB
from gpusize.observe.metrics.prometheus_text import parse_labels
from gpusize.report.figures import style
from gpusize.report.figures.thinning import envelope
from gpusize.report.text import clean

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from gpusize.observe.usage.counter_curve import Span

__all__ = ["draw_gpus"]


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
