"""A summary frame as the figures want it: x values, lines through repeats, levels that do not count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpusize.analysis.addresses import addresses_text
from gpusize.report.summary.source import ReportSource, SloView, view_slo
from gpusize.report.text import clean, finite, plain_number

__all__ = ["Sweep", "judged_slos", "sweep_of", "sweeps_of"]

Row = Mapping[str, Any]
Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Sweep:
    """The rows of a summary, each with its place on the x axis.

    ``x`` is concurrency for closed loops and the offered rate, in requests/s, for open ones; where conversations begin
    at a rate (``by_session``), how many of them do.
    """

    rows: tuple[Row, ...]
    open_loop: bool
    slos: tuple[SloView, ...]
    about: str
    by_session: bool = False

    @property
    def loop(self) -> str:
        """What tells it from the other sweep of a result: ``open loop`` or ``closed loop``."""
        return f"{self.short} loop"

    @property
    def short(self) -> str:
        """The same for names of files: ``open`` or ``closed``."""
        return "open" if self.open_loop else "closed"

    @property
    def x_label(self) -> str:
        """The name of the x axis, with its unit."""
        return f"offered rate ({self.x_unit})" if self.open_loop else "concurrency (requests in flight)"

    @property
    def x_unit(self) -> str:
        """What one step on the x axis is called in a sentence."""
        if not self.open_loop:
            return "users"
        return "sessions/s" if self.by_session else "requests/s"

    def x(self, row: Row) -> float | None:
        """A row's place on the x axis."""
        return finite(row.get("rate") if self.open_loop else row.get("concurrency"))

    def at(self, x: float) -> str:
        """A place on the x axis in a sentence: ``1 user``, ``20 requests/s``."""
        return f"{plain_number(x, 3 if x % 1 else 9)} {'user' if x == 1 and not self.open_loop else self.x_unit}"

    def place(self, row: Row) -> str:
        """A level as tables name it, without the unit; a ramp by both of its ends."""
        return clean(row.get("ramp") or plain_number(self.x(row), 6), 40).removesuffix("/s")

    def named(self, row: Row) -> str:
        """A level in a sentence: ``20 requests/s``, ``40 to 220 requests/s``."""
        return f"{self.place(row)} {self.x_unit}" if row.get("ramp") else self.at(self.x(row) or 0.0)

    @property
    def levels(self) -> list[float]:
        """The distinct x values, ascending, interrupted levels included; ramps are at no one place."""
        return sorted({x for row in self.rows if not row.get("ramp") and (x := self.x(row)) is not None})

    def points(self, column: str, *, usable: bool = True) -> Points:
        """(x, value) of every row that has a value, ramps left out; of the usable levels, or of the others."""
        return sorted(
            (x, y)
            for row, x in ((row, self.x(row)) for row in self.rows)
            if x is not None
            and not row.get("ramp")
            and (y := finite(row.get(column))) is not None
            and is_usable(row) == usable
        )

    def line(self, column: str) -> Points:
        """(x, mean over repeats), ascending, of the usable levels."""
        sums: dict[float, list[float]] = {}
        for x, y in self.points(column):
            sums.setdefault(x, []).append(y)
        return [(x, sum(ys) / len(ys)) for x, ys in sorted(sums.items())]

    def best(self, column: str) -> tuple[float, float] | None:
        """(x, mean over repeats) of the level with the most, wherever it is named: one number for one thing."""
        return max(self.line(column), key=lambda point: point[1], default=None)

    def slo(self, text: str) -> SloView:
        """The SLO that an estimate names by its text."""
        return next((slo for slo in self.slos if slo.text == text), None) or view_slo(text)

    def attainments(self) -> Iterator[tuple[int, SloView]]:
        """The SLOs that the summary judges, with the ``k`` of their columns."""
        for k, slo in enumerate(self.slos):
            if any(finite(row.get(f"slo_{k}_attainment")) is not None for row in self.rows):
                yield k, slo


def is_usable(row: Row) -> bool:
    """Whether the level was measured to its end and not voided."""
    return bool(row.get("state", "done") == "done")


def sweeps_of(source: ReportSource) -> tuple[Sweep, ...]:
    """The sweeps behind a result: one, or of pooled runs of both loops two, the one with more levels first.

    An x axis holds one kind of load: concurrencies or rates.
    """
    rows = source.summary.to_dicts()
    kinds = [tuple(row for row in rows if (row.get("kind") == "open") == kind) for kind in (False, True)]
    made = [
        Sweep(each, bool(kind), _slos(source, each), about(source.meta), bool(kind) and _by_session(source.meta))
        for kind, each in enumerate(kinds)
        if each
    ]
    return tuple(sorted(made, key=lambda sweep: -len(sweep.rows))) or (
        Sweep((), open_loop=False, slos=_slos(source, ()), about=about(source.meta)),
    )


def _by_session(meta: Mapping[str, Any]) -> bool:
    """Whether the rates of a run are of conversations, each of which brings several requests."""
    settings = [each for each in meta.get("levels") or () if isinstance(each, Mapping) and each.get("kind") == "open"]
    return bool(settings) and all(each.get("unit") == "session" for each in settings)


def sweep_of(source: ReportSource) -> Sweep:
    """The (larger) sweep behind a result."""
    return sweeps_of(source)[0]


def judged_slos(sweeps: Sequence[Sweep]) -> list[tuple[int, SloView]]:
    """The SLOs that any of the sweeps is judged by, with the ``k`` of their columns."""
    found = {k: slo for sweep in sweeps for k, slo in sweep.attainments()}
    return sorted(found.items(), key=lambda each: each[0])


def _slos(source: ReportSource, rows: Sequence[Row]) -> tuple[SloView, ...]:
    """The SLOs of the summary's columns: by the texts that it holds, else those that the result names."""
    views = [view_slo(slo) for slo in source.slos]
    named = {view.text: view for view in views}
    judged: list[SloView] = []
    while rows and (text := rows[0].get(f"slo_{len(judged)}")):
        judged.append(named.get(str(text)) or view_slo(str(text)))
    return tuple(judged) or tuple(views)


def about(meta: Mapping[str, Any]) -> str:
    """One line that says what was measured: model, target, GPUs."""
    targets = [each for each in meta.get("targets") or () if isinstance(each, Mapping)]
    target: Mapping[str, Any] = targets[0] if targets else {}
    parts = [target.get("model"), "simulated cluster" if target.get("simulated") else target.get("url")]
    if len(targets) > 1:
        parts.append(f"{len(targets)} replicas")
    parts.append(addresses_text(each for each in meta.get("addresses") or () if isinstance(each, Mapping)))
    # Each replica's own GPUs: those of the run are all of them.
    known = [gpus for each in targets if (gpus := finite(each.get("gpus"))) is not None]
    if sum(known) > 0:
        parts.append(f"{sum(known):g} GPU{'' if sum(known) == 1 else 's'} tested")
    parts.append(meta.get("run"))
    return clean(" · ".join(clean(part, 80) for part in parts if part), 160)
