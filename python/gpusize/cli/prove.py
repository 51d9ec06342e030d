"""``gpusize prove``: a number of GPUs, shown by measurement to be enough, and one replica less not to be."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gpusize.cli import question_options as question
from gpusize.cli.command import Command, Debug, Json, listed, option, taking

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusize.api.progress import Listeners
    from gpusize.estimate.certificate import Side
    from gpusize.measure.spec import RunSpec

COMMAND = Command
EPILOG = """Examples:

  gpusize prove runs/20261120T210312Z-7f3a9c --gpus 8 --users 250 --url http://eight:8000/v1

  gpusize prove runs/ --gpus 8 --users 250 --url http://eight:8000/v1 --fewer-url http://seven:8000/v1

  gpusize prove runs/ --gpus 64 --rate 400/s --url http://two:8000/v1 --target-gpus 2 --fewer-by-load

  gpusize prove runs/ --gpus 8 --url http://vllm:8000/v1 --scale-command 'sh scale.sh {replicas}'

  gpusize prove --resume runs/20261121T093000Z-1b2c3d"""
INTERRUPTED: Final = 130
TEST: Final = "Test"
TARGETS: Final = "Target"
TAKEN: Final = (
    *("api", "model", "api_key_env", "header", "cacert", "insecure", "balance", "timeout"),
    *("stream", "max_tokens", "temperature", "extra_body"),
    *("dataset", "dataset_key", "dataset_format", "prompt"),
    *("process", "think", "overload", "connections", "queue", "max_error_rate", "seed", "drain", "workers", "pin"),
)
"""Options of a run that take the place of those of the run that is read."""


@taking(TAKEN)
def command(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Run folders, or folders of runs. The first says what to send, and where."),
    ] = None,
    gpus: Annotated[int | None, listed("gpus", question.QUESTION, help="Prove this number of GPUs.")] = None,
    users: question.Users = None,
    rate: Annotated[
        str | None, option("Size for this many requests per second, as 40/s.", "RATE", question.QUESTION)
    ] = None,
    slo: question.Slos = None,
    gpus_per_replica: question.GpusPerReplica = 1,
    url: Annotated[list[str] | None, listed("url", TARGETS, show_default="the run's own")] = None,
    target_gpus: Annotated[
        int | None,
        option(
            "GPUs that are behind it, where these are not --gpus. They get their share of the load.",
            "N",
            TARGETS,
            min=1,
            max=question.MOST,
        ),
    ] = None,
    fewer_url: Annotated[
        list[str] | None, option("Address of one replica less. Repeat it for replicas.", "URL", TARGETS)
    ] = None,
    fewer_by_load: Annotated[
        bool,
        option(
            "Stand in for one replica less by more load on those that are there.",
            panel=TARGETS,
            names=("--fewer-by-load",),
        ),
    ] = False,
    scale_command: Annotated[
        str | None, option("Bring {replicas} replicas up by this command, before each side.", "LINE", TARGETS)
    ] = None,
    alpha: Annotated[str, option('Say "kept" wrongly with at most this chance.', "SHARE", TEST)] = "5%",
    beta: Annotated[str, option('Say "not kept" wrongly with at most this chance.', "SHARE", TEST)] = "5%",
    margin: Annotated[
        str, option("Leave undecided what is within this of the share that is asked for.", "SHARE", TEST)
    ] = "0.5%",
    budget: Annotated[
        str, listed("budget", TEST, help="Spend at most this on each number of GPUs: 20000 or 30m.", show_default=True)
    ] = "30m",
    duration: Annotated[
        str, listed("duration", TEST, help="Look at the results each time that this has gone.", show_default=True)
    ] = "20s",
    out: Annotated[Path, listed("out", show_default=True)] = Path("runs"),
    label: Annotated[list[str] | None, listed("label")] = None,
    resume: Annotated[Path | None, listed("resume", help="Go on with the proof in this run folder.")] = None,
    quiet: Annotated[bool, listed("quiet")] = False,
    plots: Annotated[bool, listed("plots")] = True,
    json: Json = False,
    _debug: Debug = False,
    **given: Any,
) -> int:
    """Prove by measurement that so many GPUs keep the SLOs, and that one replica less does not.

    The load of the question goes on until a sequential test is sure, or the budget is spent. Options that are left out
    are those of the run.
    """
    from gpusize.analysis.proof.judge import Terms
    from gpusize.api.progress import Listeners
    from gpusize.api.prove import prove
    from gpusize.base.errors import UsageError
    from gpusize.base.units import parse_rate
    from gpusize.cli.shared import note, tell_read
    from gpusize.estimate.question import gpus_text
    from gpusize.options.labels import labels_of
    from gpusize.report.live.live import LiveProgress
    from gpusize.report.proof import print_certificate
    from gpusize.report.summary.terminal import make_console

    terms = Terms(question.share(alpha, "--alpha"), question.share(beta, "--beta"), question.share(margin, "--margin"))
    if resume is not None and (runs or gpus or users or rate or slo or url):
        raise UsageError("a resumed proof has its own question", "resume", "leave out all but --resume")
    tell_read(slo)

    @contextlib.contextmanager
    def shown(spec: RunSpec, side: Side) -> Iterator[Listeners]:
        # It ends as soon as the test is sure: the levels that are planned say nothing of the time left.
        with LiveProgress(quiet=quiet) as live:
            for text in () if quiet else spec.notes:
                note(text)
            told = Listeners(live.event, lambda text: live.message(f"gpusize: {text}"))
            behind = "" if side.at_gpus == side.gpus else f", on {gpus_text(side.at_gpus)}"
            live.message(f"gpusize: {gpus_text(side.gpus)}: {side.load_text}{behind}")
            yield told

    found = prove(
        runs,
        gpus,
        users=users,
        rate=None if rate is None else parse_rate(rate, "rate"),
        slos=slo or None,
        url=url or None,
        target_gpus=target_gpus,
        fewer_url=fewer_url or None,
        fewer_by_load=fewer_by_load,
        scale_command=scale_command,
        gpus_per_replica=gpus_per_replica,
        terms=terms,
        budget=budget,
        duration=duration,
        out=out,
        labels=labels_of(label),
        resume=resume,
        shown=shown,
        command=["gpusize", *sys.argv[1:]],
        **given,
    )
    pages = [result.report(plots=plots) for result in found.results]
    if json:
        from gpusize.report.export import dumps

        sys.stdout.write(dumps({**found.certificate.to_json(), "path": str(found.path)}))
    else:
        print_certificate(found.certificate, make_console(), [found.path / "certificate.json", *pages])
    if found.cancelled:
        note(f"interrupted; what was measured is kept, gpusize prove --resume {found.path} goes on with it")
        return INTERRUPTED
    if not found.proved:
        note(found.certificate.conclusion)
        return 1
    return 0
