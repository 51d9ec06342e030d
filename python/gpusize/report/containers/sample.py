"""A sample for people and for machines: a line while it goes on, a folder of files when it is over."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import StoreError
from gpusize.base.files import storing, write_atomic, write_frame
from gpusize.base.units import with_cores
from gpusize.containers.cpost_csv import SUFFIX, write_cpost_csv
from gpusize.report.containers.request_blocks import memory_text
from gpusize.report.containers.usage_text import print_recommendation, print_usage
from gpusize.report.export import dumps
from gpusize.report.figures.drawing import drawing
from gpusize.report.figures.usage import draw_usage
from gpusize.report.text import clean, duration, number, plain_number

if TYPE_CHECKING:
    from rich.console import Console

    from gpusize.containers.sample import Sampled, Show
    from gpusize.observe.usage.readings import Readings

__all__ = ["claim", "live_line", "print_sampled", "sampled_document", "showing", "write_executions", "write_sampled"]

RECENT_NS: Final = 1_000_000_000


def live_line(readings: Readings) -> str:
    """How it stands: time, cores over the last second, memory now and at most."""
    frame = readings.frame
    if frame.is_empty():
        return f"{clean(readings.name, 60)}: no reading yet"
    now_ns = int(frame["t_ns"][-1])
    recent = frame.filter(frame["t_ns"] >= now_ns - RECENT_NS).drop_nulls("cpu_ns")
    parts = [duration((now_ns - int(frame["t_ns"][0])) / 1e9)]
    if recent.height > 1:
        over_ns, used_ns = (int(recent[column][-1]) - int(recent[column][0]) for column in ("t_ns", "cpu_ns"))
        if over_ns > 0:
            parts.append(with_cores(plain_number(used_ns / over_ns)))
    held = frame["mem_bytes"].drop_nulls()
    if len(held):
        marks = [int(each) for each in (held.max(), frame["mem_peak_bytes"].max()) if isinstance(each, int)]
        parts.append(f"{memory_text(int(held[-1]))}, at most {memory_text(max(marks))}")
    return f"{clean(readings.name, 60)}: {', '.join(parts)}"


@contextmanager
def showing(*, wanted: bool) -> Iterator[Show | None]:
    """A line on standard error that is kept up to date inside the block, and gone after it."""
    if not wanted:
        yield None
        return
    from rich.live import Live
    from rich.text import Text

    from gpusize.report.summary.terminal import make_console, plain

    console = make_console(sys.stderr)
    with Live(
        console=console, transient=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    ) as live:
        yield lambda readings: live.update(Text(plain(console, live_line(readings)), style="dim"), refresh=True)


def print_sampled(executions: Sequence[Sampled], console: Console) -> None:
    """Print what each execution used, and what to request for all."""
    for each in executions:
        _print_execution(each, console)
        console.print()
    print_recommendation(executions[-1].recommendation, console)


def _print_execution(sampled: Sampled, console: Console) -> None:
    from rich.text import Text

    from gpusize.report.summary.terminal import plain

    print_usage(sampled.usage, console, sampled.gpus)
    own_ns, usage = sampled.readings.facts.own_cpu_ns, sampled.usage
    if own_ns is not None and usage.duration_s > 0:
        share = number(own_ns / 1e7 / usage.duration_s, 2)
        cost = f"  sampling took {duration(own_ns / 1e9)} of CPU time, {share} % of a core"
        console.print(Text(plain(console, cost), style="dim"))
    for note in sampled.notes:
        console.print(Text(plain(console, f"! {clean(note)}"), style="yellow"))


def sampled_document(executions: Sequence[Sampled]) -> dict[str, Any]:
    """One document: of one execution its own, of several what to request and a list of theirs."""
    last = executions[-1].document()
    if len(executions) == 1:
        return last
    kept = ("name", "kind", "exit_code", "interrupted", "recommendation")
    return {**{name: last[name] for name in kept}, "executions": [each.document() for each in executions]}


def claim(folder: Path) -> list[Path]:
    """Make the folder for a sample, before anything is measured that could not be kept.

    Returns:
        The folders that were not there, the innermost first.

    Raises:
        StoreError: it cannot be made, or holds a sample already.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if (folder / "sample.json").exists():
        raise StoreError("this folder holds a sample already", str(folder), "choose another --out, or remove it")
    return made


def write_executions(executions: Sequence[Sampled], folder: Path, *, plot: bool = True) -> list[Path]:
    """Write one execution into the folder; several into folders of their own in it, with ``sample.json`` of all.

    Raises:
        StoreError: a folder or a file cannot be written.
    """
    if len(executions) == 1:
        return write_sampled(executions[0], folder, plot=plot)
    written = []
    for place, each in enumerate(executions, 1):
        written += write_sampled(each, folder / str(place), plot=plot)
    written.append(folder / "sample.json")
    write_atomic(written[-1], dumps(sampled_document(executions)).encode())
    return written


def write_sampled(sampled: Sampled, folder: Path, *, plot: bool = True) -> list[Path]:
    """Write ``readings.parquet``, ``sample.json``, CPOST's CSV, ``gpus.parquet`` where there are GPUs, and the picture.

    What was measured is written first.

    Raises:
        StoreError: the folder or a file cannot be written.
    """
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "readings.parquet"]
    sampled.readings.write_parquet(written[0])
    if not sampled.gpu_samples.is_empty():
        written.append(folder / "gpus.parquet")
        write_frame(written[-1], sampled.gpu_samples)
    written.append(folder / "sample.json")
    write_atomic(written[-1], dumps(sampled.document()).encode())
    if sampled.readings.facts.clock is not None:
        written.append(write_cpost_csv(sampled.readings, folder / f"sample{SUFFIX}"))
    gpus = None if sampled.gpu_samples.is_empty() else sampled.gpu_samples
    if plot:
        with drawing():
            picture = folder / "usage.png"
            written.append(draw_usage(sampled.readings, sampled.usage, picture, sampled.recommendation, gpus))
    return written
