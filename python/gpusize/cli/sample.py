"""``gpusize sample``: what a command, a process, a container or a cgroup uses."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from gpusize.cli.command import listed, option

EPILOG = """Examples:

  gpusize sample -- python preprocess.py input.dcm

  gpusize sample --container my-server --duration 60s

  gpusize sample --interval 5ms --json -- make -j8 > sample.json

  gpusize sample --pid 4711     # until it ends, or Ctrl-C

  gpusize sample --cgroup /system.slice/nginx.service --duration 10s"""

WHAT = "Source"
HOW = "Readings"
OUTPUT = "Output"
INTERRUPTED = 130


def command(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND...]", help="Run this command, and sample it from its start."),
    ] = None,
    pid: Annotated[
        int | None, option("Sample this process and its descendants.", "PID", WHAT, min=1, max=2**31 - 1)
    ] = None,
    container: Annotated[str | None, option("Sample this container: its name or id.", "NAME", WHAT)] = None,
    cgroup: Annotated[
        str | None, option("Sample this cgroup: its path in the hierarchy, or its directory.", "PATH", WHAT)
    ] = None,
    interval: Annotated[str | None, listed("interval", HOW)] = None,
    windows: Annotated[
        str | None,
        option("Report the highest CPU use over windows of these lengths.", "LIST", HOW, show_default="100ms,1s"),
    ] = None,
    duration: Annotated[str | None, listed("duration", HOW, help="End after this time. Not with a command.")] = None,
    repeat: Annotated[
        int, option("Run the command this many times, one after the other.", panel=HOW, min=1, max=1_000_000)
    ] = 1,
    pss: Annotated[
        bool, option("Divide shared memory among the processes that share it. Slow.", panel=HOW, names=("--pss",))
    ] = False,
    gpu_sample: Annotated[bool, listed("gpu_sample", HOW, show_default="on")] = True,
    policy: Annotated[str, listed("policy", HOW)] = "default",
    out: Annotated[
        Path | None, listed("out", OUTPUT, help="Write the files into this folder.", show_default="samples/ and an id")
    ] = None,
    plots: Annotated[bool, listed("plots", OUTPUT)] = True,
    quiet: Annotated[bool, listed("quiet", OUTPUT, help="Show no live line and no summary.")] = False,
    json: Annotated[bool, listed("json", OUTPUT)] = False,
    _debug: Annotated[bool, listed("debug", OUTPUT)] = False,
) -> int:
    """Sample CPU, memory, pressure and GPUs of a command or container, and say what it used and what to request."""
    from gpusize.base.errors import UsageError
    from gpusize.base.units import as_duration_s
    from gpusize.cli.shared import note
    from gpusize.containers.command import start_status
    from gpusize.containers.sample import SampleOptions, sample_repeated, sample_running
    from gpusize.observe.usage.sources import source_of
    from gpusize.records.store import new_run_id
    from gpusize.report.containers.sample import claim, print_sampled, sampled_document, showing, write_executions
    from gpusize.report.summary.terminal import make_console

    if words and any(each is not None for each in (pid, container, cgroup, duration)):
        todo = "leave it out, or the command"
        raise UsageError("a command is sampled alone, from its start to its end", "command", todo)
    if repeat != 1 and not words:
        raise UsageError("only a command can be run several times", "repeat", "leave it out, or give a command")
    usual = SampleOptions()
    options = SampleOptions(
        interval_s=usual.interval_s if interval is None else as_duration_s(interval, "interval"),
        windows_s=usual.windows_s if windows is None else _windows(windows),
        policy=policy,
        gpus=gpu_sample,
        pss=pss,
        duration_s=None if duration is None else as_duration_s(duration, "duration"),
    )
    # A command that writes to the terminal would be written over.
    live = not quiet and sys.stderr.isatty() and not (words and sys.stdout.isatty())
    # What a command prints stays alone on standard output.
    console = make_console(sys.stderr if words else sys.stdout)
    folder = out or Path("samples") / new_run_id()
    if words:
        new = claim(folder)
        try:
            with showing(wanted=live) as show:
                made = sample_repeated(words, options, repeat, show=show, to_stderr=json)
        except OSError as problem:
            with suppress(OSError):
                for each in new:
                    each.rmdir()
            note(f"the command cannot be started: {words[0]}: {problem.strerror or problem}")
            return start_status(problem)
    else:
        source, member = source_of(pid=pid, container=container, cgroup=cgroup, pss=pss)
        claim(folder)
        with showing(wanted=live) as show:
            made = [sample_running(source, member, options, show=show)]
    # Said before it is written: a full disk must not take the figures as well.
    if not json and not quiet:
        print_sampled(made, console)
    written = write_executions(made, folder, plot=plots)
    if json:
        from gpusize.report.export import dumps

        sys.stdout.write(dumps({**sampled_document(made), "files": [str(file) for file in written]}))
    elif not quiet:
        console.print(str(folder), soft_wrap=True)
    last = made[-1]
    if last.exit_code is not None:
        return last.exit_code
    return INTERRUPTED if last.interrupted and duration is not None else 0


def _windows(text: str) -> tuple[float, ...]:
    from gpusize.base.units import as_duration_s

    return tuple(as_duration_s(each.strip(), "windows") for each in text.split(","))
