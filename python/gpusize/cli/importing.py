"""``gpusize import``: measurements of other tools as run folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusize.cli.command import Command, Commands, Debug, listed, option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpusize.studies.imports.run_folder import Imported

app = typer.Typer(cls=Commands, help="Make a run folder from another tool's files.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Make a run folder from another tool's files."""


@app.command("auto", cls=Command)
def auto(
    files: Annotated[list[Path], typer.Argument(help="Files or folders, each of a format that can be imported.")],
    gpus: Annotated[int, option("GPUs measured, where a file does not say; 0 is unknown.", min=0, max=1_000_000)] = 0,
    out: Annotated[Path, listed("out")] = Path("runs"),
    _debug: Debug = False,
) -> int:
    """Import files of any known format, recognised by their content."""
    from gpusize.studies.imports.guess import import_auto

    return _each(files, lambda file: import_auto(file, out, gpus))


@app.command("aiperf", cls=Command)
def aiperf(
    path: Annotated[
        Path, typer.Argument(help="An artifact folder, a folder of several, or profile_export_aiperf.json or .jsonl.")
    ],
    gpus: Annotated[
        int, option("GPUs behind the endpoint. The files do not say; 0 is unknown.", min=0, max=1_000_000)
    ] = 0,
    out: Annotated[Path, listed("out")] = Path("runs"),
    _debug: Debug = False,
) -> int:
    """Import artifacts of AIPerf: its summary, and the requests where they are there."""
    from gpusize.studies.imports.aiperf import import_aiperf

    return _each([path], lambda path: import_aiperf(path, out, gpus))


@app.command("benchmark_report", cls=Command)
def benchmark_report(
    files: Annotated[list[Path], typer.Argument(help="YAML or JSON documents, or folders of those of one sweep.")],
    gpus: Annotated[
        int, option("GPUs measured; 0 is what a document of gpusize says, else unknown.", min=0, max=1_000_000)
    ] = 0,
    out: Annotated[Path, listed("out")] = Path("runs"),
    _debug: Debug = False,
) -> int:
    """Import llm-d's Benchmark Report v0.2.1."""
    from gpusize.studies.imports.benchmark_report import import_benchmark_report

    return _each(files, lambda file: import_benchmark_report(file, out, gpus))


@app.command("nat", cls=Command)
def nat(
    file: Annotated[
        Path, typer.Argument(help="calc_runner_output.json, a job's folder, or the calculator's output folder.")
    ],
    gpus: Annotated[
        int, option("GPUs behind the model. The file does not say; 0 is unknown.", min=0, max=1_000_000)
    ] = 0,
    out: Annotated[Path, listed("out")] = Path("runs"),
    _debug: Debug = False,
) -> int:
    """Import the NeMo Agent Toolkit's sizing calculator, in its present and its older spelling."""
    from gpusize.studies.imports.nat import import_nat

    return _each([file], lambda file: import_nat(file, out, gpus))


@app.command("perf_analyzer", cls=Command)
def perf_analyzer(
    file: Annotated[
        Path,
        typer.Argument(help="The CSV that perf_analyzer wrote with -f, its --profile-export-file, or what it printed."),
    ],
    gpus: Annotated[
        int, option("GPUs or model instances measured. The file does not say; 0 is unknown.", min=0, max=1_000_000)
    ] = 0,
    slo: Annotated[list[str] | None, listed("slo", help="Keep this SLO for estimates.")] = None,
    batch: Annotated[int, option("Samples in one request, as perf_analyzer's -b.", min=1, max=1_000_000)] = 1,
    expect: Annotated[str | None, option("Report which of these concurrencies are missing, as 1:16:1.", "LIST")] = None,
    out: Annotated[Path, listed("out")] = Path("runs"),
    _debug: Debug = False,
) -> int:
    """Import a CSV, a profile export or the printed text of Triton's perf_analyzer."""
    from gpusize.base.units import parse_concurrencies
    from gpusize.studies.imports import perf_analyzer_json
    from gpusize.studies.imports.guess import head_of
    from gpusize.studies.imports.perf_analyzer import import_perf_analyzer

    expected = [] if expect is None else parse_concurrencies(expect)

    def taken(file: Path) -> Imported:
        export = perf_analyzer_json.looks_like(file, head_of(file))
        read = perf_analyzer_json.import_perf_analyzer_json if export else import_perf_analyzer
        return read(file, out, gpus, slos=slo or (), batch=batch, expected=expected)

    return _each([file], taken)


@app.command("traccc", cls=Command)
def traccc(
    files: Annotated[list[Path], typer.Argument(help="Logs of traccc_throughput_* or traccc_seq_example*.")],
    gpus: Annotated[int, option("GPUs used. The file does not say; 0 is unknown.", min=0, max=1_000_000)] = 0,
    threads: Annotated[int | None, option("CPU threads, where a log does not say.", "N", min=1, max=1_000_000)] = None,
    events: Annotated[
        int | None, option("Events that stages' times are of, where a log does not say.", "N", min=1)
    ] = None,
    out: Annotated[Path, listed("out")] = Path("runs"),
    _debug: Debug = False,
) -> int:
    """Import logs of traccc: throughput, or times per stage, on CPU or GPU."""
    from gpusize.studies.imports.traccc import import_traccc

    return _each(files, lambda file: import_traccc(file, out, gpus, threads=threads, events=events))


@app.command("guidellm", cls=Command)
def guidellm(
    file: Annotated[Path, typer.Argument(help="The JSON that GuideLLM wrote with --output kind=json.")],
    gpus: Annotated[int, option("GPUs measured. The file does not say; 0 is unknown.", min=0, max=1_000_000)] = 0,
    out: Annotated[Path, listed("out")] = Path("runs"),
    _debug: Debug = False,
) -> int:
    """Import a report of GuideLLM: a level per benchmark, with every request where all were kept."""
    from gpusize.studies.imports.guidellm import import_guidellm

    return _each([file], lambda file: import_guidellm(file, out, gpus))


@app.command("inference_perf", cls=Command)
def inference_perf(
    file: Annotated[Path, typer.Argument(help="The folder of its reports, or the report of one stage.")],
    gpus: Annotated[int, option("GPUs measured. The file does not say; 0 is unknown.", min=0, max=1_000_000)] = 0,
    out: Annotated[Path, listed("out")] = Path("runs"),
    _debug: Debug = False,
) -> int:
    """Import reports of inference-perf: a level per stage."""
    from gpusize.studies.imports.inference_perf import import_inference_perf

    return _each([file], lambda file: import_inference_perf(file, out, gpus))


@app.command("k6", cls=Command)
def k6(
    file: Annotated[
        Path, typer.Argument(help="The file of --summary-export, or what handleSummary was given, as JSON.")
    ],
    gpus: Annotated[int, option("GPUs measured. The file does not say; 0 is unknown.", min=0, max=1_000_000)] = 0,
    out: Annotated[Path, listed("out")] = Path("runs"),
    _debug: Debug = False,
) -> int:
    """Import a summary of k6."""
    from gpusize.studies.imports.k6 import import_k6

    return _each([file], lambda file: import_k6(file, out, gpus))


@app.command("vllm", cls=Command)
def vllm(
    file: Annotated[
        Path, typer.Argument(help="A result that --save-result wrote, or a folder of results: a level each.")
    ],
    gpus: Annotated[int, option("GPUs measured. The file does not say; 0 is unknown.", min=0, max=1_000_000)] = 0,
    out: Annotated[Path, listed("out")] = Path("runs"),
    _debug: Debug = False,
) -> int:
    """Import results of vllm bench serve, with every request where --save-detailed kept them."""
    from gpusize.studies.imports.vllm import import_vllm

    return _each([file], lambda file: import_vllm(file, out, gpus))


def _each(files: Sequence[Path], taken: Callable[[Path], Imported]) -> int:
    """Import file by file and print each run's folder; one that cannot be read leaves the others to be imported."""
    from gpusize.base.errors import GpusizeError
    from gpusize.cli.shared import note

    code = 0
    for file in files:
        try:
            folder, warnings = taken(file)
        except GpusizeError as error:
            if len(files) == 1:
                raise
            note(str(error))
            code = max(code, error.exit_code)
            continue
        for each in warnings:
            note(each)
        typer.echo(folder)
    return code
