"""``gpusize.prove``: load so many GPUs, and one replica less, until it is sure enough whether they keep the SLOs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.proof.from_levels import Levels
from gpusize.analysis.proof.judge import Terms
from gpusize.analysis.read_levels import read_levels
from gpusize.analysis.slo import Slo, as_slos
from gpusize.api.planned_proof import Sought, Ways, planned, resumed, scale_words
from gpusize.api.progress import Listeners, telling
from gpusize.base.errors import EnvironmentLacks, MeasuredNo, TargetError, UsageError
from gpusize.base.interrupt import StopSwitch
from gpusize.base.process_group import log_tail, run_command
from gpusize.base.typed import NUMBER, PATH, Kind, check_kinds, or_none
from gpusize.estimate.certificate import Certificate, Side, digest_of, write_certificate
from gpusize.estimate.question import gpus_text
from gpusize.estimate.search.terms import searched
from gpusize.measure.execute import execute
from gpusize.measure.proving import Proving
from gpusize.options import demo
from gpusize.options.assemble import spec_from_options
from gpusize.options.inputs import dataset_from_options
from gpusize.options.load import load_from_options
from gpusize.options.proof import BUDGET, DURATION, Budget, load_options
from gpusize.options.run_spec import RunInputs, reached, run_spec
from gpusize.result import Result
from gpusize.targets.simulated.cluster import SimulatedCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from gpusize.measure.spec import RunSpec
    from gpusize.measure.sweep import ProgressEvent
__all__ = ["Proof", "Shown", "prove"]

Shown = Callable[["RunSpec", Side], "AbstractContextManager[Listeners]"]
"""Whom to tell of the run of a side while the block runs."""

SCALE_S: Final = 3600.0
"""How long a command may take to bring replicas up."""
SCALE_LOG: Final = "scale.log"
_KINDS: Final[dict[str, Kind]] = {
    "gpus": or_none(NUMBER),
    "users": or_none(NUMBER),
    "rate": or_none(NUMBER),
    "target_gpus": or_none(NUMBER),
    "resume": or_none(PATH),
}


@dataclass(frozen=True)
class Proof:
    """What came of it.

    Attributes:
        certificate: question, verdicts, chances of being wrong, assumptions.
        results: what was measured, a run of each side that was.
        cancelled: whether the user ended it.
    """

    certificate: Certificate
    results: tuple[Result, ...]
    cancelled: bool = False

    @property
    def proved(self) -> bool:
        """Whether all that was to be shown is."""
        return self.certificate.proved

    @property
    def path(self) -> Path:
        """The folder of the first run, which has ``certificate.json``."""
        return self.results[0].path


def prove(  # noqa: PLR0913 -- typed keyword arguments, each with a default
    runs: str | Path | Sequence[str | Path] | None = None,
    gpus: int | None = None,
    *,
    users: float | None = None,
    rate: float | None = None,
    slos: Sequence[Slo | str] | Slo | str | None = None,
    url: str | Sequence[str] | None = None,
    target_gpus: int | None = None,
    fewer_url: str | Sequence[str] | None = None,
    fewer_by_load: bool = False,
    scale_command: str | None = None,
    gpus_per_replica: int = 1,
    terms: Terms | None = None,
    budget: int | str = BUDGET,
    duration: str | float = DURATION,
    out: str | Path = "runs",
    labels: Mapping[str, str] | None = None,
    resume: str | Path | None = None,
    progress: Callable[[ProgressEvent], None] | None = None,
    note: Callable[[str], None] | None = None,
    stop: StopSwitch | None = None,
    shown: Shown | None = None,
    command: Sequence[str] = (),
    **options: Any,
) -> Proof:
    """Load ``gpus`` GPUs with the question's load, and one replica less where it can be had, until it is sure enough.

    Each side is a run of equal levels that goes on until a sequential test has shown whether the SLOs are kept, or the
    budget is spent. Ctrl-C keeps what was measured. ``certificate.json`` in the runs' folders says what was proved.

    Args:
        runs: earlier runs; the first of them says what to send where, unless arguments do. Not with ``resume``.
        gpus: the number that is to be proved.
        users: of the question; None for those of the run, where no rate is asked for.
        rate: requests per second, instead of users.
        slos: all must be kept; None for those of the run.
        url: addresses with ``gpus`` GPUs behind them; None for those of the run, or its simulated cluster.
        target_gpus: GPUs that are really behind them: they get their share of the load. None: ``gpus``; where the
            run's own target is loaded, those of the run.
        fewer_url: addresses with one replica less.
        fewer_by_load: instead of one replica less, load those that are there with as much more per GPU.
        scale_command: brings ``{replicas}`` replicas (``{gpus}`` GPUs) up, and ends when they serve; run before each
            side.
        gpus_per_replica: GPUs come in multiples of it.
        terms: chances of being wrong, and the margin.
        budget: what each side may cost: requests, or a time such as ``30m``.
        duration: length of a level, after each of which the test looks.
        out: the folder in which the run folders are made.
        labels: what tells these runs from others.
        resume: folder of an interrupted proof's run; all other arguments but these of showing are its own.
        progress: told how the runs go.
        note: told what the user should know.
        stop: ``stop.ask()`` from any thread does what Ctrl-C does.
        shown: whom to tell of each side; takes the place of ``progress`` and ``note``.
        command: the command line, without secrets.
        options: of target, dataset and load, by the names of the command line, over those of the run.

    Raises:
        UsageError: invalid arguments; a mean as an SLO, or one that single requests do not tell.
        TargetError: the first target cannot be reached.
        MeasuredNo: the scale command failed.
        StoreError: a run cannot be read, or the run folder cannot be written.
    """
    check_kinds(locals(), _KINDS)
    switch = stop or StopSwitch()
    if resume is not None:
        base, begun = resumed(Path(resume))
    else:
        ways = Ways(url, target_gpus, fewer_url, scale_command, fewer_by_load)
        sought = Sought(gpus, users, rate, slos, gpus_per_replica)
        terms = terms or Terms()
        base, begun = planned(runs, sought, ways, terms, budget=budget, duration=duration, options=options)
        base |= {"out": str(out), "label": dict(labels or {})}
    work = _Work(base, begun, switch, shown or _shown(progress, note), command)
    return work.done()


def _shown(progress: Callable[[ProgressEvent], None] | None, note: Callable[[str], None] | None) -> Shown:
    @contextlib.contextmanager
    def show(_spec: RunSpec, _side: Side) -> Iterator[Listeners]:
        with telling(progress) as told:
            yield told._replace(note=note or told.note)

    return show


class _Work:
    """Measures the sides of a certificate one after another, and keeps the certificate beside what was measured."""

    def __init__(
        self,
        base: Mapping[str, Any],
        certificate: Certificate,
        switch: StopSwitch,
        shown: Shown,
        command: Sequence[str],
    ) -> None:
        self._base = base
        self._certificate = replace(certificate, state="running")
        self._out = Path(base["out"])
        self._switch = switch
        self._shown = shown
        self._command = command
        self._results: list[Result] = []

    def done(self) -> Proof:
        """Measure what is missing."""
        self._keep(self._measured(self._certificate.asked))
        self._write()
        fewer = self._certificate.fewer
        if fewer is not None and not self._switch.asked:
            if self._certificate.asked.verdict == "kept":
                try:
                    self._keep(self._measured(fewer))
                except KeyboardInterrupt:
                    # Before there was a run to end in order.
                    self._switch.ask()
                except (TargetError, MeasuredNo, EnvironmentLacks) as problem:
                    # What was shown of the number itself is not lost for it.
                    self._keep(replace(fewer, ended=str(problem)))
            else:
                why = f"not tried, as it is not known that {gpus_text(self._certificate.gpus)} keep the SLOs"
                self._keep(replace(fewer, ended=why))
        self._certificate = replace(self._certificate, state="interrupted" if self._switch.asked else "done")
        self._write()
        return Proof(self._certificate, tuple(self._results), self._switch.asked > 0)

    def _write(self) -> None:
        for side in self._certificate.sides:
            if side.run:
                write_certificate(self._out / side.run, self._certificate)

    def _keep(self, side: Side) -> None:
        """Put a side into the certificate."""
        if side.gpus == self._certificate.gpus:
            self._certificate = replace(self._certificate, asked=side)
        else:
            self._certificate = replace(self._certificate, fewer=side)

    def _measured(self, side: Side) -> Side:
        """Measure one side until it is judged; the side with what was found."""
        folder = self._out / side.run if side.run else None
        if folder is not None and side.verdict != "undecided":
            self._results.append(Result([folder]))
            return side
        side, scaled = replace(side, ended=""), side.how != "as asked"
        budget = Budget.parse(self._certificate.budget)
        with contextlib.ExitStack() as stack:
            self._scale(side)
            spec = stack.enter_context(self._spec(side, folder, budget))
            slos = _provable(spec)
            told = stack.enter_context(self._shown(spec, side))
            if told.note is not None and folder is None:
                asked = side.gpus == self._certificate.gpus
                texts = [*(self._certificate.behind if asked else ())]
                texts += [self._certificate.proportion(side)] if scaled else []
                for text in texts:
                    told.note(text)

            def began(path: Path) -> None:
                nonlocal side
                side = replace(side, run=path.name)
                self._keep(side)
                self._write()

            proving = Proving(Levels(slos, self._certificate.terms, side.users), budget.requests, told.note, began)
            result = execute(spec, progress=told.progress, stop=self._switch, note=told.note, proving=proving)
        self._results.append(result)
        levels = read_levels(result.path)
        found = proving.judge(levels)
        return replace(
            side,
            run=result.path.name,
            judged=side.as_brought(found.judged, found.requests, found.length_s),
            levels=found.levels,
            length_s=found.length_s,
            requests=found.requests,
            left_out=found.left_out,
            digest=digest_of(levels),
        )

    def _scale(self, side: Side) -> None:
        text = self._own("scale_command")
        if text is None:
            return
        words = scale_words(text, self._certificate, side)
        log = self._out / SCALE_LOG
        if code := run_command(words, log, SCALE_S, step="the scale command"):
            said = f": {tail}" if (tail := log_tail(log)) else ""
            raise MeasuredNo(f"the scale command ended with status {code}{said}", None, f"see {log}")

    def _own(self, name: str) -> Any:
        return (self._certificate.extra.get("options") or {}).get(name)

    @contextlib.contextmanager
    def _spec(self, side: Side, folder: Path | None, budget: Budget) -> Iterator[RunSpec]:
        asked = side.gpus == self._certificate.gpus
        mine = dict(self._base)
        if not asked and self._own("fewer_url") is not None:
            mine["url"] = self._own("fewer_url")
        # Of many that fail, too, it is to be said how many there are: no level is void for them.
        mine = {"max_error_rate": 1.0, **mine, **load_options(self._certificate, side, budget)}
        mine["label"] = {**(mine.get("label") or {}), "prove": str(side.gpus)}
        simulated = self._own("simulated")
        if simulated is None:
            with spec_from_options(mine, command=self._command, resume=folder) as spec:
                yield spec
            return
        with contextlib.ExitStack() as stack:
            load, rows = load_from_options(mine), dataset_from_options(mine)
            cluster = stack.enter_context(SimulatedCluster({**simulated, "gpus": side.at_gpus, "replicas": []}))
            served = {"url": cluster.url, "model": cluster.config["model"], "gpus": cluster.config["gpus"]}
            target, _, _ = reached({**mine, **served}, stack)
            sent = RunInputs(target, load, demo.prompts() if rows is None else rows, cluster=cluster)
            yield stack.enter_context(run_spec(sent, mine, command=self._command, resume=folder))


def _provable(spec: RunSpec) -> list[Slo]:
    """The SLOs in terms of what each request has.

    Raises:
        UsageError: one is about a mean, or about what single requests do not tell.
    """
    mean = next((slo for slo in spec.slos if slo.kind == "mean"), None)
    if mean is not None:
        what = f"{mean} is about a mean, of which no share of requests can be bet on"
        raise UsageError(what, "slo", "ask for a percentile, as p95, or a share")
    slos = searched(as_slos(spec.slos), spec.natures)
    if not slos:
        raise UsageError("a proof needs an SLO", "slo", "give one, as in --slo 'p95 runtime <= 10s'")
    return slos
