"""Several streams, added: the run is cut where a stage of any of them begins or ends, and each part is a level."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.units import seconds_to_ns
from gpusize.workload.load import engine_plan
from gpusize.workload.load.open_levels import expected_of, open_setting, process_of
from gpusize.workload.load.stages import rate_phases
from gpusize.workload.load.trace import DATASET
from gpusize.workload.schedule.arrival_arrays import Explicit
from gpusize.workload.schedule.from_engine import arrivals, count_arrivals
from gpusize.workload.schedule.planned_level import Level
from gpusize.workload.schedule.rate_profile import RateProfile

if TYPE_CHECKING:
    from gpusize.workload.dataset import Dataset
    from gpusize.workload.load.load import Load
    from gpusize.workload.load.streams import Stream
    from gpusize.workload.load.trace import ArrivalTrace

__all__ = ["stream_levels"]

_MOST_LEVELS: Final = 10_000


@dataclass
class _Piece:
    """A stretch of a stream at one stage.

    Attributes:
        stream: number of the stream.
        start_ns: its beginning, after the start of the run.
        end_ns: its end.
        profile: its rate; None for a trace.
        process: of its arrivals.
        shape: of gamma arrivals.
        trace: recorded arrivals, counted from its beginning.
        lead: of a constant process: where its grid goes on in the next level.
    """

    stream: int
    start_ns: int
    end_ns: int
    profile: RateProfile | None
    process: str = "trace"
    shape: float | None = None
    trace: Explicit | None = None
    lead: float = 0.0


@dataclass
class _Cutter:
    """Makes the levels one after the other; keeps what goes over from one to the next."""

    load: Load
    rows: int
    pieces: list[_Piece]
    left: dict[int, int] = field(default_factory=dict)
    requests: float = 0.0

    def level(self, index: int, start_ns: int, end_ns: int) -> Level:
        length_ns = end_ns - start_ns
        here = [each for each in self.pieces if each.start_ns < end_ns and each.end_ns > start_ns]
        active = [each for each in here if self.left.get(each.stream, 1) > 0]
        found: list[dict[str, Any]] = []
        facts: list[dict[str, Any]] = []
        for piece in active:
            count = self.left.get(piece.stream)
            if piece.profile is None:
                one = engine_plan.stream(piece.stream, "plan", self.load.streams[piece.stream], count)
            else:
                profile = piece.profile.between(start_ns - piece.start_ns, end_ns - piece.start_ns)
                rate = engine_plan.rate_arrivals(profile, piece.process, piece.shape, piece.lead)
                one = engine_plan.stream(piece.stream, rate, self.load.streams[piece.stream], count)
                facts.append(_rate_facts(piece, profile, length_ns))
                self._carry(piece, index, one, profile, length_ns)
            found.append(one)
        if any(piece.profile is None for piece in active):
            return self._explicit(index, start_ns, end_ns, active, found, facts)
        if not found:
            idle = RateProfile([{"duration_ns": length_ns, "from": 0.0, "to": 0.0}])
            found = [engine_plan.stream(0, engine_plan.rate_arrivals(idle, "constant", None))]
        plan = engine_plan.level_plan(self.load, index, engine_plan.open_loop(self.load, found), None, length_ns)
        return Level(self._setting(index, start_ns, end_ns, active, facts, self._expected(plan, active, facts)), plan)

    def _expected(self, plan: dict[str, Any], active: list[_Piece], facts: list[dict[str, Any]]) -> dict[str, int]:
        if any(piece.stream in self.left for piece in active):
            return {"expected": count_arrivals(plan, self.rows)}
        process = "mixed" if any(piece.process != "constant" for piece in active) else "constant"
        mean = sum(fact["rate"] for fact in facts) * plan["stop"]["duration_ns"] / 1e9
        return expected_of(plan, self.rows, process, mean=mean, of_all=self.requests)

    def _carry(self, piece: _Piece, index: int, one: dict[str, Any], profile: RateProfile, length_ns: int) -> None:
        """What the next level has to know: how many have come, and where a grid goes on."""
        counted = piece.stream in self.left
        if not counted and piece.process != "constant":
            return
        alone = engine_plan.level_plan(self.load, index, engine_plan.open_loop(self.load, [one]), None, length_ns)
        came = count_arrivals(alone, self.rows)
        if counted:
            self.left[piece.stream] -= came
        # Rounding to nanoseconds may put an arrival at the boundary on either side: it is the count that decides.
        piece.lead = min(max(float(came + Fraction(piece.lead) - profile.total(length_ns)), 0.0), 1.0)

    def _explicit(
        self,
        index: int,
        start_ns: int,
        end_ns: int,
        active: list[_Piece],
        found: list[dict[str, Any]],
        facts: list[dict[str, Any]],
    ) -> Level:
        import numpy as np

        length_ns = end_ns - start_ns
        due, rows, numbers, places = [], [], [], []
        for place, (piece, one) in enumerate(zip(active, found, strict=True)):
            part = (
                None if piece.trace is None else piece.trace.between(start_ns - piece.start_ns, end_ns - piece.start_ns)
            )
            alone = engine_plan.level_plan(self.load, index, engine_plan.open_loop(self.load, [one]), None, length_ns)
            part = part if part is None else part.first(one["count"])
            came = None if part is not None and not len(part) else arrivals(alone, self.rows, part)
            if came is None:
                continue
            due.append(came["due_ns"].to_numpy())
            rows.append(came["row"].to_numpy())
            numbers.append(np.full(len(came), piece.stream, np.uint16))
            places.append(np.full(len(came), place, np.uint16))
            if part is not None:
                facts.append({"id": piece.stream, "rate": len(came) / length_ns * 1e9, "process": "trace"})
                if piece.stream in self.left:
                    self.left[piece.stream] -= len(came)
        order = np.lexsort((np.concatenate(places), np.concatenate(due))) if due else np.empty(0, np.int64)
        made = Explicit(
            np.concatenate(due)[order] if due else np.empty(0, np.int64),
            np.concatenate(rows)[order] if due else np.empty(0, np.uint32),
            streams=np.concatenate(numbers)[order] if due else np.empty(0, np.uint16),
        )
        planned = [{**one, "arrivals": "plan", "count": None} for one in found]
        plan = engine_plan.level_plan(self.load, index, engine_plan.open_loop(self.load, planned), None, length_ns)
        facts.sort(key=lambda each: int(each["id"]))
        return Level(self._setting(index, start_ns, end_ns, active, facts, {"expected": len(made)}), plan, made)

    def _setting(
        self,
        index: int,
        start_ns: int,
        end_ns: int,
        active: list[_Piece],
        facts: list[dict[str, Any]],
        expected: dict[str, int],
    ) -> dict[str, Any]:
        processes = {(piece.process, piece.shape) for piece in active} or {(self.load.process, None)}
        process, shape = next(iter(processes)) if len(processes) == 1 else ("mixed", None)
        ends = [(fact.pop("from_rate", fact["rate"]), fact.pop("to_rate", fact["rate"])) for fact in facts]
        low, high = sum(low for low, _ in ends), sum(high for _, high in ends)
        ramp = any(low != high for low, high in ends)
        named = [{**fact, **self._named(fact["id"])} for fact in facts]
        return open_setting(
            self.load,
            sum((fact["rate"] for fact in facts), 0.0),
            process,
            shape,
            from_rate=low if ramp else None,
            to_rate=high if ramp else None,
            streams=named if len(self.load.streams) > 1 else None,
            duration_s=(end_ns - start_ns) / 1e9,
            stage=index,
            at_s=start_ns / 1e9,
            **expected,
        )

    def _named(self, number: int) -> dict[str, Any]:
        stream = self.load.streams[number]
        facts = {"name": stream.name or str(number), "model": stream.model, "priority": stream.priority}
        return {name: value for name, value in facts.items() if value is not None}


def _rate_facts(piece: _Piece, profile: RateProfile, length_ns: int) -> dict[str, Any]:
    facts = {
        "id": piece.stream,
        "rate": float(profile.total(length_ns) / length_ns * 10**9),
        "process": piece.process,
    }
    first, last = profile.phases[0], profile.phases[-1]
    if len(profile.phases) == 1 and first["from"] != last["to"]:
        facts |= {"from_rate": first["from"], "to_rate": last["to"]}
    if len(profile.phases) > 1 or first["from"] != last["to"]:
        # Held against what was sent (analysis.delivery.intended): a rate alone would be taken for one that does not
        # change.
        facts |= {"phases": [dict(phase) for phase in profile.phases], "repeat": profile.repeat}
    return facts


def stream_levels(load: Load, rows: int, dataset: Dataset | None) -> list[Level]:
    """The levels of a load of several streams.

    Raises:
        UsageError: a trace of which nothing is left, or too many levels.
    """
    ends = None if load.duration_s is None else seconds_to_ns(load.duration_s)
    pieces = [piece for number in range(len(load.streams)) for piece in _pieces(load, number, ends, dataset)]
    total_ns = max((piece.end_ns for piece in pieces), default=0) if ends is None else ends
    pieces = [piece for piece in pieces if piece.start_ns < total_ns]
    marks = {0, total_ns} | {at for each in pieces for at in (each.start_ns, each.end_ns) if at < total_ns}
    cuts = sorted(marks)
    if len(cuts) > _MOST_LEVELS:
        raise UsageError(f"the streams make more than {_MOST_LEVELS} levels", "streams", "take fewer stages")
    left = {number: each.count for number, each in enumerate(load.streams) if each.count is not None}
    rates = [(each.profile, min(each.end_ns, total_ns) - each.start_ns) for each in pieces]
    requests = sum(float(profile.total(length_ns)) for profile, length_ns in rates if profile is not None)
    cutter = _Cutter(load, rows, pieces, left, requests)
    levels = [cutter.level(index, cuts[index], cuts[index + 1]) for index in range(len(cuts) - 1)]
    # A stream that ends by its count leaves nothing to wait for, unless the length of the run was asked for.
    while ends is None and len(levels) > 1 and levels[-1].setting.get("expected") == 0:
        levels.pop()
    return levels


def _pieces(load: Load, number: int, ends_ns: int | None, dataset: Dataset | None) -> list[_Piece]:
    stream = load.streams[number]
    at_ns = seconds_to_ns(stream.start_s)
    own = (stream.process, stream.burstiness)
    if stream.trace is not None:
        trace = _trace(load, number, stream.trace, dataset)
        return [_Piece(number, at_ns, at_ns + int(trace.due_ns[-1]) + 1, None, trace=trace)]
    if stream.rate is not None:
        held_ns = None if stream.duration_s is None else seconds_to_ns(stream.duration_s)
        end_ns = max(ends_ns or 0, at_ns) if held_ns is None else at_ns + held_ns
        if end_ns == at_ns:
            return []
        profile = RateProfile([{"duration_ns": end_ns - at_ns, "from": stream.rate, "to": stream.rate}])
        return [_Piece(number, at_ns, end_ns, profile, *process_of(load, own))]
    pieces = []
    for stage in stream.steps:
        profile = RateProfile(*rate_phases(stage))
        process, shape = process_of(load, (stage.process, stage.shape), own)
        pieces.append(_Piece(number, at_ns, at_ns + stage.duration_ns, profile, process, shape))
        at_ns += stage.duration_ns
    return pieces


def _trace(load: Load, number: int, trace: ArrivalTrace, dataset: Dataset | None) -> Explicit:
    """A stream's recorded arrivals, with the rows of the whole dataset that go with them where they are its own."""
    stream = load.streams[number]
    part = None
    first, count = stream.rows or (0, 0 if dataset is None else len(dataset))
    if dataset is not None and _is_own(stream, trace):
        kept = slice(first, first + count)
        lines = dataset.lines[kept] if dataset.lines else ()
        part = replace(dataset, rows=dataset.rows[kept], ids=dataset.ids[kept], lines=lines)
    made = trace.schedule(load.seed + number, part, same=part is not None)
    return made if made.rows is None else Explicit(made.due_ns, made.rows + first)


def _is_own(stream: Stream, trace: ArrivalTrace) -> bool:
    """Whether the arrivals are those of the stream's own rows."""
    if stream.dataset is None:
        return False
    return trace.source == DATASET or Path(trace.source).absolute() == Path(stream.dataset).absolute()
