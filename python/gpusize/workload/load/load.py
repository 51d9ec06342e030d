"""How hard to load the target, level by level, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

from gpusize.base.errors import UsageError
from gpusize.base.given_numbers import (
    MAX_CONCURRENCY,
    as_addresses,
    as_number,
    as_rate,
    as_seconds,
    as_sequence,
    as_whole,
)
from gpusize.base.numeric import within
from gpusize.base.secrets import check_name
from gpusize.base.typed import PATH, SEQUENCE, TEXT, Kind, check_kinds, or_none
from gpusize.base.units import format_duration
from gpusize.engine.workers import parse_cores
from gpusize.workload.load.grammar import parse_stages, parse_think
from gpusize.workload.load.stages import PROCESSES, Process, Stage
from gpusize.workload.load.streams import Stream
from gpusize.workload.load.think import Think
from gpusize.workload.load.trace import ArrivalTrace
from gpusize.workload.schedule.stored_plan import Plan

if TYPE_CHECKING:
    from gpusize.workload.dataset import Dataset
    from gpusize.workload.load.levels import Level

__all__ = ["ALLOWED_ERROR_SHARE", "DEFAULT_CONCURRENCIES", "Load", "Order", "Overload"]

DEFAULT_CONCURRENCIES: Final = (1, 2, 4, 8, 16, 32)
"""The sweep when nothing is said."""

ALLOWED_ERROR_SHARE: Final = 0.01
"""Share of failed requests that a level by count or duration may have when nothing is said; with passes it is 0."""

Order = Literal["file", "shuffled"]
"""Order of the dataset's rows; shuffled is a new permutation for each round through them."""

Overload = Literal["queue", "shed", "grow"]
"""What happens to a request of an open loop that finds no free connection when it is due."""

_WAYS: Final = ("concurrencies", "rates", "stages", "streams", "arrivals", "plan")
_KINDS: Final[dict[str, Kind]] = {
    "arrivals": or_none(((ArrivalTrace, *PATH[0]), "a trace or a path")),
    "plan": or_none(((Plan, *PATH[0]), "a plan or a path")),
    "think": or_none(((Think, str), "a text such as exp(2s)")),
    "priority_header": or_none(TEXT),
    "pin": SEQUENCE,
    "process": TEXT,
    "order": TEXT,
    "overload": TEXT,
}
_KEPT: Final = {"seed": 0, "connections": 1, "queue": 0, "sample_records": 1}


@dataclass(frozen=True)
class Load:
    """The levels of a run: a sweep over concurrencies or rates, stages, streams, a trace or a stored plan.

    Without any of them it is a sweep over `DEFAULT_CONCURRENCIES`. Without count, duration and passes, a closed loop
    sends what the sizing calculator sends by default: as many whole rounds of ``concurrency`` requests as the dataset
    has rows for, at least one. See docs/reference/load.md.

    Args:
        concurrencies: requests kept in flight, one level each, in this order; a value may come again.
        rates: requests per second, one level each.
        process: arrivals at a rate, where a stage or a stream does not name its own.
        passes: requests per level as a multiple of the concurrency; every request counts.
        count: requests per level.
        duration_s: seconds per level, or of all streams; with ``count`` whichever comes first.
        warmup_s: seconds at the start of a level that do not count; None: found from the records, and none with passes.
        wait_between_s: seconds that a level waits at most until all requests of the one before are answered.
        drain_s: seconds for requests in flight when the user interrupts.
        max_error_share: share of failed requests that a level survives; None: 0 with passes, else 0.01.
        order: order of the dataset's rows.
        seed: key of all draws; the same seed gives the same arrivals and order.
        think_s: pause between an answer and the next request of the same user, where it is always the same.
        connections: connections of the open loop that are opened before it starts.
        queue: due requests that may wait for a connection, open loop; more are shed.
        workers: threads that send, one core each; None: as many as the load needs.
        pin: cores that the threads stay on, as numbers or as a text such as ``0,2-4``; none: the system chooses.
        source_addresses: local addresses that connections come from, in turns; none: the system chooses.
        burstiness: shape of gamma arrivals: 1 is Poisson, below 1 burstier.
        stages: rates or concurrencies, one after the other without a pause, as text or as `Stage`; one level each.
        streams: several sources of requests, added; cut into levels where a stage of any of them begins or ends.
        arrivals: recorded arrivals, or their file.
        plan: a stored plan, or its file: every due time, row and target is that of the plan.
        think: a think time as text (``exp(2s)``) or as `Think`, instead of ``think_s``.
        sessions: conversations begin, not requests: what arrives, or is kept in flight, is a user with all turns.
        overload: ``queue``: requests wait, up to ``queue``; ``shed``: none waits; ``grow``: more connections first.
        max_connections: bound of ``grow``.
        sample_records: of how many records one is kept as a row; all are counted.
        priority_header: name of a header that tells the server a stream's priority, instead of the body.

    Raises:
        UsageError: invalid settings.
        DatasetError: a trace that cannot be read.
    """

    concurrencies: Sequence[int] = ()
    rates: Sequence[float] = ()
    process: Process = "poisson"
    passes: int | None = None
    count: int | None = None
    duration_s: float | None = None
    warmup_s: float | None = None
    wait_between_s: float = 0.0
    drain_s: float = 1.0
    max_error_share: float | None = None
    order: Order = "file"
    seed: int = 1
    think_s: float = 0.0
    connections: int = 256
    queue: int = 10_000
    workers: int | None = None
    burstiness: float | None = None
    stages: Sequence[Stage] | str = ()
    streams: Sequence[Stream] = ()
    arrivals: ArrivalTrace | str | Path | None = None
    plan: Plan | str | Path | None = None
    think: Think | str | None = None
    sessions: bool = False
    overload: Overload = "queue"
    max_connections: int | None = None
    sample_records: int = 1
    priority_header: str | None = None
    pin: Sequence[int] | str = ()
    source_addresses: Sequence[str] = ()
    names_way: bool = field(init=False, repr=False, compare=False, default=False)
    """Whether the levels were named; without, they are `DEFAULT_CONCURRENCIES`, or a search's."""

    _levels: dict[Any, list[Level]] = field(init=False, repr=False, compare=False, default_factory=dict)
    _own: dict[tuple[str | None, ...], Dataset] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        put = object.__setattr__
        check_kinds(self, _KINDS)
        if isinstance(self.stages, str):
            put(self, "stages", parse_stages(self.stages))
        if isinstance(self.arrivals, str | Path):
            put(self, "arrivals", ArrivalTrace(str(self.arrivals)))
        if isinstance(self.plan, str | Path):
            put(self, "plan", Plan.read(self.plan))
        put(self, "stages", as_sequence(self.stages, "stages"))
        put(self, "streams", as_sequence(self.streams, "streams"))
        for name, kind in (("stages", Stage), ("streams", Stream)):
            other = next((each for each in getattr(self, name) if not isinstance(each, kind)), None)
            if other is not None:
                raise UsageError(
                    f"one is of type {type(other).__name__}", name, f"give gpusize.{kind.__name__} objects"
                )
        self._check_way()
        self._check_think()
        check_ends(self)
        check_words(self)
        for name, low in _KEPT.items():
            put(self, name, as_whole(getattr(self, name), name, low, 2**63 - 1 if name == "seed" else 2**31))
        if self.workers is not None:
            put(self, "workers", as_whole(self.workers, "workers", 1, 1024))
        put(self, "pin", parse_cores(self.pin) if isinstance(self.pin, str) else tuple(self.pin))
        put(self, "source_addresses", as_addresses(self.source_addresses))
        check_connections(self)

    def _check_way(self) -> None:
        ways = [name for name in _WAYS if _is_given(getattr(self, name))]
        # A stored plan says when; the streams that it was made of say what is sent.
        if len(ways) > 1 and set(ways) != {"streams", "plan"}:
            what = f"{' and '.join(ways)} are both given" if len(ways) == 2 else f"{', '.join(ways)} are given"
            raise UsageError(what, "load", "give one of them: each says what is sent")
        object.__setattr__(self, "names_way", bool(ways))
        chosen = DEFAULT_CONCURRENCIES if not ways else self.concurrencies
        concurrencies = as_sequence(chosen, "concurrencies")
        counts = tuple(as_whole(value, "concurrency", 1, MAX_CONCURRENCY) for value in concurrencies)
        object.__setattr__(self, "concurrencies", counts)
        rates = tuple(as_rate(value, "rates") for value in as_sequence(self.rates, "rates"))
        object.__setattr__(self, "rates", rates)
        if len({stage.kind for stage in self.steps}) > 1:
            raise UsageError("rates and concurrencies are mixed", "stages", "give stages of one kind")

    def _check_think(self) -> None:
        put = object.__setattr__
        put(self, "think_s", as_seconds(self.think_s, "think_s", positive=False))
        if self.think is not None and self.think_s:
            raise UsageError("think and think_s are both given", "load", "give one of them")
        think = parse_think(self.think) if isinstance(self.think, str) else self.think
        if think is None or think.fixed_s is not None:
            put(self, "think_s", self.think_s if think is None else think.fixed_s)
            think = None
        put(self, "think", think)
        if (self.think_s or think) and self.kind == "open" and not self.sessions:
            todo = "leave it out: the rate says when requests go; or add --sessions"
            raise UsageError("a think time belongs to concurrencies, not to rates", "load", todo)
        if self.thinking.kind == "recorded" and not self.sessions:
            todo = "add --sessions, or give another think time such as exp(2s)"
            raise UsageError("recorded pauses lie between the turns of a conversation", "think", todo)

    @property
    def steps(self) -> tuple[Stage, ...]:
        """The stages."""
        return cast("tuple[Stage, ...]", self.stages)

    @property
    def trace(self) -> ArrivalTrace | None:
        """The recorded arrivals."""
        return cast("ArrivalTrace | None", self.arrivals)

    @property
    def stored(self) -> Plan | None:
        """The stored plan."""
        return cast("Plan | None", self.plan)

    @property
    def thinking(self) -> Think:
        """The think time, of whichever argument."""
        return cast("Think | None", self.think) or Think("fixed", self.think_s)

    @property
    def kind(self) -> Literal["closed", "open"]:
        """Whether answers or the clock decide when the next request goes."""
        if self.stages:
            return self.steps[0].kind
        return "closed" if self.concurrencies else "open"

    @property
    def most_connections(self) -> int:
        """Connections that the largest level may have open at once."""
        if self.kind == "open":
            return max(self.connections, self.growth or 0)
        held = [int(max(stage.start, stage.last)) for stage in self.steps]
        return max((*self.concurrencies, *held))

    @property
    def growth(self) -> int | None:
        """Connections that ``grow`` may open; by default four times those at the start."""
        if self.overload != "grow":
            return None
        return self.max_connections or 4 * self.connections

    @property
    def by_passes(self) -> bool:
        """Whether levels run by passes, where every request counts and one failure voids a level."""
        return bool(self.concurrencies) and self.count is None and self.duration_s is None

    @property
    def error_share(self) -> float:
        """Share of failed requests that a level survives."""
        if self.max_error_share is not None:
            return float(self.max_error_share)
        return 0.0 if self.by_passes else ALLOWED_ERROR_SHARE

    def requests(self, concurrency: int, rows: int) -> int | None:
        """Requests of a closed level over a dataset of ``rows`` rows; None when only time ends it.

        With passes p > 0 it is ``concurrency * p``. With p = 0, the default, whole rounds: ``floor(rows /
        concurrency) * concurrency``, at least ``concurrency``. Source: ``adjust_dataset`` of the NeMo Agent Toolkit's
        sizing calculator.

        Args:
            concurrency: requests in flight.
            rows: rows of the dataset.
        """
        if not self.by_passes:
            return self.count
        return concurrency * (self.passes or max(rows // concurrency, 1))

    def levels(self, rows: int | Dataset) -> list[Level]:
        """The levels in order: setting, the engine's LevelPlan, and arrivals that are handed over beside it.

        ``visit``, ``dir`` and ``keep_bytes`` of the plans are left to the caller. Each level draws from a seed of its
        own, so that a setting that comes again is an independent repeat.

        Args:
            rows: the dataset, or how many rows it has where none of its times are wanted.

        Raises:
            UsageError: there are no rows, or a plan that does not fit them.
        """
        from gpusize.workload.load.levels import build_levels

        key = rows if isinstance(rows, int) else (len(rows), rows.sha256)
        if key not in self._levels:
            self._levels[key] = build_levels(self, rows)
        return self._levels[key]

    def settings(self, rows: int | Dataset) -> list[dict[str, Any]]:
        """The levels in order, as ``level.json`` and ``run.json`` name them; see docs/reference/run-folder.md.

        Args:
            rows: the dataset, or how many rows it has.
        """
        return [level.setting for level in self.levels(rows)]

    def plans(self, rows: int | Dataset) -> list[dict[str, Any]]:
        """The engine's LevelPlan for each level; see `levels`.

        Args:
            rows: the dataset, or how many rows it has.
        """
        return [level.plan for level in self.levels(rows)]

    def notes(self, dataset: Dataset | None = None) -> list[str]:
        """What the user should know of the files that the load was read from.

        Args:
            dataset: what will be sent; None where it is not known yet.
        """
        found = [] if self.stored is None else self.stored.notes(None if dataset is None else dataset.sha256)
        traces = [self.trace, *(stream.trace for stream in self.streams)]
        return [*found, *(note for trace in traces if trace is not None for note in trace.notes)]

    def own_datasets(self) -> dict[tuple[str | None, ...], Dataset]:
        """The datasets that streams name, by `Stream.own_rows`, in their order; each is read once, when first asked.

        Raises:
            DatasetError: one of them cannot be read.
        """
        from gpusize.workload.dataset import Dataset

        for stream in self.streams:
            if stream.dataset is not None and stream.own_rows not in self._own:
                self._own[stream.own_rows] = Dataset.read(stream.dataset, stream.dataset_key, stream.dataset_format)
        return dict(self._own)

    def options(self) -> dict[str, Any]:
        """The options that make this load again, as ``--config`` takes them; those that were not given are left out."""
        from gpusize.workload.load.options import options_of

        return options_of(self)

    def changed(self, **values: Any) -> Load:
        """The same load with other values of some arguments.

        Args:
            **values: the arguments of ``Load`` that change.
        """
        mine = {each.name: getattr(self, each.name) for each in fields(self) if each.init}
        if not self.names_way or (self.concurrencies and set(values) & set(_WAYS)):
            mine["concurrencies"] = ()
        return Load(**{**mine, **values})


def _is_given(value: Any) -> bool:
    return value is not None and not (isinstance(value, str | Sequence) and not len(value))


def check_words(load: Load) -> None:
    """Refuse words that are not among those that there are, and invalid shares and shapes.

    Raises:
        UsageError: such a value.
    """
    for name, known, what in (
        ("process", PROCESSES, "an arrival process"),
        ("order", get_args(Order), "an order"),
        ("overload", get_args(Overload), "a way with overload"),
    ):
        if getattr(load, name) not in known:
            raise UsageError(f'"{getattr(load, name)}" is not {what}', name, f"use {' or '.join(known)}")
    _check_processes(load)
    share = load.max_error_share
    if share is not None and not 0 <= as_number(share, "max_error_share") <= 1:
        raise UsageError(f"{share} is not a share of requests", "max_error_share", "give 0 to 1; 0.01 is 1 %")
    for each in load.streams:
        ways = [each.process or load.process, *(stage.process for stage in each.steps)]
        if each.burstiness is not None and "gamma" not in ways:
            raise UsageError("a burstiness belongs to gamma arrivals", each.label, "give it the process gamma")
    if load.priority_header is not None:
        try:
            check_name(load.priority_header)
        except UsageError as problem:
            raise UsageError(problem.what, "priority_header", "name another one, such as X-Priority") from None
    if load.burstiness is None:
        return
    object.__setattr__(load, "burstiness", as_number(load.burstiness, "burstiness"))
    within("burstiness", load.burstiness)
    named = [load.process, *(stage.process for stage in load.steps), *(each.process for each in load.streams)]
    named += [stage.process for each in load.streams for stage in each.steps]
    if "gamma" not in named:
        raise UsageError("a burstiness belongs to gamma arrivals", "burstiness", "add --process gamma")


def _check_processes(load: Load) -> None:
    """Refuse a process beside arrivals that are recorded."""
    if load.process != "poisson" and not load.streams and (load.trace is not None or load.stored is not None):
        raise recorded_process("process")
    for each in load.streams:
        if each.process is not None and each.trace is not None:
            raise recorded_process(each.label)


def recorded_process(where: str) -> UsageError:
    """A process beside recorded arrivals, which come when they came."""
    return UsageError("a process belongs to rates, and the arrivals are recorded", where, "leave the process out")


def check_connections(load: Load) -> None:
    """Refuse an invalid bound on connections.

    Raises:
        UsageError: such a bound.
    """
    if load.max_connections is None:
        return
    object.__setattr__(load, "max_connections", as_whole(load.max_connections, "max_connections", 1, 2**31))
    if load.overload != "grow":
        raise UsageError("max_connections belongs to --overload grow", "max_connections", "add it, or leave it out")
    if load.max_connections < load.connections:
        todo = f"give {load.connections} or more, or fewer connections"
        raise UsageError("max_connections is below connections", "max_connections", todo)


def check_ends(load: Load) -> None:
    """Refuse ends that are invalid, that contradict each other, and a load that never ends.

    Raises:
        UsageError: such an end.
    """
    for name, low in (("passes", 0), ("count", 1)):
        if getattr(load, name) is not None:
            object.__setattr__(load, name, as_whole(getattr(load, name), name, low, 2**53))
    for name, positive in (
        ("duration_s", True), ("warmup_s", False), ("wait_between_s", False), ("drain_s", False),
    ):  # fmt: skip
        value = getattr(load, name)
        if value is not None:
            object.__setattr__(load, name, as_seconds(value, name, positive=positive))
    _check_together(load)
    _check_streams(load)
    if load.duration_s is not None and load.warmup_s is not None and load.warmup_s >= load.duration_s:
        raise UsageError("the warm-up is as long as the level", "load", "make the duration longer than the warm-up")


def _check_together(load: Load) -> None:
    timed = load.count is not None or load.duration_s is not None
    if load.passes is not None and timed:
        todo = "give one of them: passes say how many requests"
        raise UsageError("passes and a count or a duration are both given", "load", todo)
    if load.kind == "open" and load.passes is not None:
        raise UsageError("passes belong to concurrencies, not to rates", "load", "give a duration or a count")
    if load.rates and not timed:
        raise UsageError("the open loop would never end", "load", "give a duration, such as 60s, or a count")
    if load.stages and (timed or load.passes is not None):
        raise UsageError("stages have their own lengths", "load", "leave out duration, count and passes")
    if load.wait_between_s and not (load.concurrencies or load.rates):
        what, todo = (
            "there is nothing to wait between: this is one load",
            "leave it out, or give concurrencies or rates",
        )
        raise UsageError(what, "wait_between_s", todo)
    if load.plan is not None and timed and not load.streams:
        raise UsageError("a plan has its own end", "load", "leave out duration and count")


def _check_streams(load: Load) -> None:
    if load.streams and load.count is not None:
        raise UsageError("a count belongs to each stream", "load", "give it there, or a duration here")
    endless = next((each for each in load.streams if each.rate is not None and each.duration_s is None), None)
    if endless is not None and load.duration_s is None and load.plan is None:
        raise UsageError(f"{endless.label} would never end", "load", "give it a duration, or one for the run")
    if load.streams and load.duration_s is not None and all(each.start_s >= load.duration_s for each in load.streams):
        what = f"no stream begins before the end of the run, which lasts {format_duration(load.duration_s)}"
        raise UsageError(what, "streams", "let one start earlier, or make the duration longer")
