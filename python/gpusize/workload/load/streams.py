"""A stream: one of several sources of requests whose arrivals are added."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from gpusize.base.errors import UsageError
from gpusize.base.given_numbers import as_number, as_rate, as_seconds, as_whole
from gpusize.base.numeric import within
from gpusize.base.typed import PATH, SEQUENCE, TEXT, Kind, check_kinds, or_none
from gpusize.base.units import format_duration
from gpusize.workload.load.grammar import parse_stages
from gpusize.workload.load.stages import PROCESSES, Stage, format_rate
from gpusize.workload.load.trace import DATASET, ArrivalTrace

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Stream"]


_KINDS: Final[dict[str, Kind]] = {
    "name": TEXT,
    "stages": SEQUENCE,
    "arrivals": or_none(((ArrivalTrace, str), "a trace or a path")),
    "dataset": or_none(PATH),
    **dict.fromkeys(("process", "dataset_key", "dataset_format", "model"), or_none(TEXT)),
}


@dataclass(frozen=True)
class Stream:
    """One stream of an open loop. Just one of ``rate``, ``stages`` and ``arrivals`` says when its requests come.

    Args:
        name: what tables call it.
        start_s: when it begins, after the start of the run.
        rate: requests per second, held for ``duration_s``, else to the end of the run.
        stages: stages of rate, as text or as they are.
        arrivals: recorded arrivals, from a file.
        duration_s: how long a rate is held.
        count: it ends after so many requests.
        process: arrivals of a rate; None: those of the load.
        burstiness: of gamma arrivals; None: that of the load.
        dataset: file of its own rows; None: those of the run.
        dataset_key: the field of them to send.
        dataset_format: their format, where the suffix does not tell.
        model: the model that it asks for; None: the target's.
        priority: higher goes first among requests that wait for a connection; the server is told too.
        server_priority: the number that the server is told, where it shall be another.
        rows: its part of the rows, first and count; filled in when datasets are put together.

    Raises:
        UsageError: invalid settings.
    """

    name: str = ""
    start_s: float = 0.0
    rate: float | None = None
    stages: Sequence[Stage] | str = ()
    arrivals: ArrivalTrace | str | None = None
    duration_s: float | None = None
    count: int | None = None
    process: str | None = None
    burstiness: float | None = None
    dataset: str | None = None
    dataset_key: str | None = None
    dataset_format: str | None = None
    model: str | None = None
    priority: int | None = None
    server_priority: int | None = None
    rows: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        check_kinds(self, _KINDS)
        put(self, "start_s", as_seconds(self.start_s, "start", positive=False))
        put(self, "stages", parse_stages(self.stages) if isinstance(self.stages, str) else tuple(self.stages))
        if isinstance(self.arrivals, str):
            put(self, "arrivals", ArrivalTrace(self.arrivals))
        if self.rate is not None:
            put(self, "rate", as_rate(self.rate, "rate"))
        ways = [name for name in ("rate", "stages", "arrivals") if getattr(self, name) not in (None, ())]
        if len(ways) != 1:
            what = " and ".join(ways) + " are given" if ways else "nothing says when its requests come"
            raise UsageError(what, self.label, "give one of rate, stages and arrivals")
        if any(stage.kind == "closed" for stage in self.steps):
            raise UsageError("a stream has a rate, not a concurrency", self.label, "write its stages as 2/s@10m")
        self._check_numbers()
        self._check_process()
        if self.trace is not None and self.trace.source == DATASET and self.dataset is None:
            raise UsageError("its arrivals are those of its dataset, and it names none", self.label, "name a file")

    def _check_numbers(self) -> None:
        if self.duration_s is not None:
            if self.rate is None:
                raise UsageError("a duration belongs to a rate", self.label, "leave it out: stages and traces end")
            object.__setattr__(self, "duration_s", as_seconds(self.duration_s, "duration", positive=True))
        if self.count is not None:
            object.__setattr__(self, "count", as_whole(self.count, "count", 1, 2**53))
        for name in ("priority", "server_priority"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, as_whole(getattr(self, name), name, -(2**31), 2**31 - 1))

    def _check_process(self) -> None:
        if self.process is not None and self.process not in PROCESSES:
            raise UsageError(f'"{self.process}" is not an arrival process', self.label, f"use {' or '.join(PROCESSES)}")
        if self.burstiness is not None:
            within("burstiness", as_number(self.burstiness, "burstiness"), self.label)

    @property
    def steps(self) -> tuple[Stage, ...]:
        """The stages."""
        return cast("tuple[Stage, ...]", self.stages)

    @property
    def trace(self) -> ArrivalTrace | None:
        """The recorded arrivals."""
        return cast("ArrivalTrace | None", self.arrivals)

    @property
    def own_rows(self) -> tuple[str | None, ...]:
        """What its rows are read from: file, key and format; equal for streams that share them."""
        return (self.dataset, self.dataset_key, self.dataset_format)

    @property
    def label(self) -> str:
        """What error texts call it."""
        return f'stream "{self.name}"' if self.name else "stream"

    def table(self) -> dict[str, Any]:
        """The stream as a load file has it; reading it gives the same stream."""
        plain = ("name", "count", "process", "burstiness", "dataset", "dataset_key", "dataset_format", "model")
        found: dict[str, Any] = {name: getattr(self, name) for name in (*plain, "priority", "server_priority")}
        found |= {"start": format_duration(self.start_s)} if self.start_s else {}
        if self.rate is not None:
            found["rate"] = format_rate(self.rate)
        if self.stages:
            found["stages"] = ", ".join(map(str, self.stages))
        if self.trace is not None:
            found |= self.trace.options()
        if self.dataset is not None:
            found["dataset"] = str(Path(self.dataset).absolute())
        if self.duration_s is not None:
            found["duration"] = format_duration(self.duration_s)
        return {name: value for name, value in found.items() if value not in (None, "")}
