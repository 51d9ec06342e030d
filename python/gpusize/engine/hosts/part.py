"""One host's part of one level, as the head sees it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from gpusize.base.errors import StoreError
from gpusize.engine.hosts.home import TABLES, home_name, rewrite
from gpusize.engine.hosts.merge import Cells, empty_outcome
from gpusize.engine.hosts.protocol import Broken, unpack_cells

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpusize.engine.hosts.host import Host
    from gpusize.engine.hosts.protocol import Frame
    from gpusize.engine.session import LevelOutcome, Progress, Second

__all__ = ["HostPart", "Missing"]

_PART: Final = re.compile(r"(records|spans|seconds|histograms)/part-[0-9]{1,9}\.parquet")
"""What a host may call a file: nothing else of what it says becomes a path."""
_GONE: Final = dict.fromkeys(
    ("in_flight", "waiting", "connections", "rate", "offered_rate", "sent_rate", "cpu_share"), 0
)


class Missing(NamedTuple):
    """Why, and from when on the head's clock, a host's part of a level was not sent."""

    why: str
    at_ns: int


@dataclass
class HostPart:
    """One host's part of one level.

    Attributes:
        host: who sends it.
        first: number of its first worker among those of all hosts.
        workers: how many it has.
        folder: where its parts lie until they are moved; None where none are kept.
        ready: whether it has said that it can start.
        asked_ns: when it was to start, on its own clock.
        asked_within_ns: what was known of its clock then.
        missing: why it does not take part to the end.
        outcome: what happened there; None until it has come home.
    """

    host: Host
    first: int
    workers: int
    folder: Path | None
    ready: bool = False
    asked_ns: int = 0
    asked_within_ns: float = 0.0
    missing: Missing | None = None
    outcome: LevelOutcome | None = None
    progress: Progress | None = None
    seconds: dict[int, Second] = field(default_factory=dict)
    last: int = -1
    late: bool = False

    @property
    def open(self) -> bool:
        """Whether more is to come of it."""
        return self.outcome is None and self.missing is None

    def hear(self, frame: Frame) -> None:
        """Take what the host says of this level.

        Raises:
            Broken: it is not what a host says.
            OSError: a part cannot be written.
        """
        match frame.kind:
            case "progress":
                self._progress(frame)
            case "part":
                self._take(frame)
            case "ended":
                outcome = dict(frame.fields["outcome"])
                outcome["histograms"] = unpack_cells(outcome["histograms"], frame.strings[0])
                self.outcome = cast("LevelOutcome", outcome)
            case "lost":
                raise OSError(str(frame.fields.get("why"))[:300])
            case kind:
                raise Broken(f"it said {kind[:40]!r}, which is not known here")

    def _progress(self, frame: Frame) -> None:
        self.progress = cast("Progress", frame.fields["progress"])
        self.ready = self.ready or bool(frame.fields.get("ready"))
        for second, cells in zip(frame.fields["seconds"], frame.strings, strict=True):
            number = int(second["second"])
            self.seconds[number] = cast("Second", {**second, "times": unpack_cells(second["times"], cells)})
            self.last = max(self.last, number)

    def _take(self, frame: Frame) -> None:
        name = str(frame.fields["name"])
        if self.folder is None or not _PART.fullmatch(name):
            raise Broken(f"it sent a file of the name {name[:80]!r}")
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as handle:
            handle.write(frame.strings[0])

    def asked(self, start_ns: int) -> int:
        """When it is to start, on its own clock."""
        found = self.host.clock.at(start_ns)
        if found is None:
            raise LookupError("no ping of this host has come back yet")
        self.asked_ns, self.asked_within_ns = start_ns + round(found.offset_ns), found.uncertainty_ns
        return self.asked_ns

    def seen(self) -> Progress | None:
        """Its progress; of a host that is gone the counts alone."""
        if self.progress is None or self.missing is None:
            return self.progress
        return cast("Progress", {**self.progress, **_GONE, "state": "done"})

    def shift_ns(self, start_ns: int | None) -> int:
        """What moves its times to the head's clock, so that the level begins at ``start_ns`` there."""
        if self.outcome is None or not self.outcome["start_ns"] or start_ns is None:
            return 0
        return start_ns - self.outcome["start_ns"]

    def come_home(self, folder: Path, shift_ns: int, errors: Mapping[int, int]) -> LevelOutcome:
        """Its outcome, with its parts moved into the level's folder.

        Raises:
            StoreError: a part cannot be read, or not be written.
        """
        outcome: dict[str, Any] = dict(self.outcome or empty_outcome(0, "failed"))
        if self.folder is None:
            return cast("LevelOutcome", outcome)
        rows = dict.fromkeys(TABLES, 0)
        for parts, table in TABLES.items():
            named = []
            for part in outcome.get(parts) or ():
                source, goal = self.folder / part, home_name(part, self.host.number)
                try:
                    more = rewrite(
                        source, folder / goal, table, host=self.host.number, shift_ns=shift_ns, errors=errors
                    )
                except StoreError:
                    if outcome["write_error"] is None:
                        raise
                    # It was being written when the host's disk was full.
                    continue
                source.unlink()
                rows[parts] += more
                named.append(goal)
            outcome[parts] = named
        if outcome["write_error"] is not None:
            outcome |= {"rows": rows["parts"], "spans": rows["span_parts"]}
        return cast("LevelOutcome", outcome)

    def facts(self, start_ns: int | None, whole: int) -> dict[str, Any]:
        """What ``level.json`` says of the host; docs/reference/run-folder.md has the fields.

        Args:
            start_ns: when the level began, on the head's clock.
            whole: workers of all hosts.
        """
        outcome, clock = self.outcome, None if start_ns is None else self.host.clock.at(start_ns)
        found: dict[str, Any] = {
            "host": self.host.number,
            "name": self.host.name,
            "workers": self.workers,
            "first_worker": self.first,
            "share": self.workers / whole,
            "shift_ns": self.shift_ns(start_ns),
        }
        if clock is not None and start_ns is not None:
            began = None if outcome is None else outcome["start_ns"] or None
            found |= {
                "offset_ns": round(clock.offset_ns),
                "drift_ppm": round(clock.drift * 1e6, 3),
                "uncertainty_ns": round(clock.uncertainty_ns),
                "round_trip_ns": clock.round_trip_ns,
                "start_uncertainty_ns": round(self.asked_within_ns),
                "start_error_ns": None if began is None else round(began - start_ns - clock.offset_ns),
            }
        if outcome is not None:
            cells = Cells()
            cells.add(outcome["histograms"])
            found |= {name: cast("Any", outcome)[name] for name in ("due", "sent", "rows", "cpu_ns", "write_error")}
            found |= {"kept": kept} if (kept := cast("Any", outcome).get("kept")) else {}
            found["done"] = sum(outcome["outcomes"].values())
            found["lateness_p99_ns"] = cells.percentile_ns("lateness", 0.99)
        elif self.progress is not None:
            # Told while it was there; none of it is in the level's counts.
            found |= {name: cast("Any", self.progress)[name] for name in ("due", "sent", "done")}
        if self.missing is not None:
            found |= {"missing": self.missing.why, "missing_from_s": self.missing_s(start_ns)}
        return found

    def missing_s(self, start_ns: int | None) -> float:
        """From when on, after the level's start, its share is missing."""
        if self.missing is None or start_ns is None:
            return 0.0
        return max(0.0, (self.missing.at_ns - start_ns) / 1e9)
