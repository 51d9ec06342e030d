"""What an agent does for the head: sessions of the engine, their levels, and the way home of what they measured."""

from __future__ import annotations

import contextlib
import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from gpusize.base.errors import EnvironmentLacks, GpusizeError
from gpusize.engine.hosts.home import TABLES, thin
from gpusize.engine.hosts.protocol import CHUNK, Broken, pack_cells, unpack_rows
from gpusize.engine.limits import allow_connections
from gpusize.engine.workers import usable_cores

if TYPE_CHECKING:
    from gpusize.engine.hosts.protocol import Frame, Wire
    from gpusize.engine.session import AnyEngine, AnyLevel

__all__ = ["Fetch", "Sending"]

Fetch: TypeAlias = "Callable[[str], Sequence[bytes]]"
"""Gets what the head has shared under a key."""

TELL_EVERY_S: Final = 0.5
TOLD_AFTER_S: Final = 0.02
"""A level is told of so long after each of its seconds, when that second has been counted, and halfway between."""
LOOK_EVERY_S: Final = 0.1
"""How often is looked whether a level has stopped to send, which is told at once: the next one may wait for it."""
SECONDS_AT_ONCE: Final = 200


class _Level:
    """One level on this host."""

    def __init__(self, level: AnyLevel, folder: Path, *, held: bool, one_in: int) -> None:
        self.level, self.folder, self.held, self.one_in = level, folder, held, one_in
        self.after = 0
        self.due_s = 0.0
        self.state = ""


class Sending:
    """Sessions and levels by their numbers, as the head gives them.

    Args:
        wire: to the head.
        folder: where levels are written.
        engine: makes an engine.
        workers: threads that send; None: as many as the head asks for, at most the cores that may be used.
        keep: where rows stay that are not to come home.
        fetch: gets rows that the head has shared; None: it shares none.
    """

    def __init__(
        self,
        wire: Wire,
        folder: Path,
        engine: Callable[..., AnyEngine],
        workers: int | None,
        keep: Path,
        fetch: Fetch | None = None,
    ) -> None:
        self._wire, self._folder, self._engine, self._workers, self._keep = wire, folder, engine, workers, keep
        self._fetch = fetch
        self._sessions: dict[int, AnyEngine] = {}
        self._levels: dict[int, _Level] = {}
        self._stopped: dict[int, Mapping[str, Any]] = {}
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._followers: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._work, name="gpusize-sessions", daemon=True)
        self._thread.start()

    def obey(self, frame: Frame) -> None:
        """Do what a frame says; what takes time is done on another thread, in order."""
        match frame.kind:
            case "start" | "stop" | "close_at":
                # Never behind anything else.
                self._answered(frame, getattr(self, f"_{frame.kind}"))
            case "open" | "probe" | "queue" | "close":
                self._waiting.put(lambda: self._answered(frame, getattr(self, f"_{frame.kind}")))
            case kind:
                raise Broken(f"the head asked for {kind[:40]!r}, which is not known here")

    def stop_all(self) -> None:
        """Send nothing more, at once: the head is gone."""
        self._over.set()
        with self._lock:
            levels = list(self._levels.values())
        for each in levels:
            with contextlib.suppress(Exception):
                each.level.stop(0)

    def close(self) -> None:
        """End all sessions."""
        self.stop_all()
        self._waiting.put(None)
        for session in list(self._sessions.values()):
            with contextlib.suppress(Exception):
                session.close()
        # Those that bring levels home remove their folders, and nobody else is to do so meanwhile.
        for thread in (self._thread, *self._followers):
            thread.join(5.0)

    def _work(self) -> None:
        while (step := self._waiting.get()) is not None:
            with contextlib.suppress(Broken):
                step()

    def _answered(self, frame: Frame, do: Callable[[Frame], Mapping[str, Any]]) -> None:
        """Do it, and say what came of it where the head asks."""
        number = frame.fields.get("id")
        try:
            found = dict(do(frame))
        except GpusizeError as error:
            found = {
                "error": {"type": type(error).__name__, "what": error.what, "where": error.where, "todo": error.todo}
            }
        except Broken:
            raise
        except Exception as error:  # noqa: BLE001 -- a bug here must not look like a host that died
            found = {"error": {"type": "GpusizeError", "what": f"{type(error).__name__}: {error}", "where": None}}
        if number is not None:
            self._wire.send("answer", id=number, **found)

    def _open(self, frame: Frame) -> Mapping[str, Any]:
        given = frame.fields
        files, rows = dict(given["files"]), unpack_rows(self._strings(frame))
        target = self._with_files(given["target"], files)
        workers = self._workers or max(1, min(int(given["workers"]), usable_cores()))
        allow_connections(int(given.get("connections") or 0))
        session = self._engine(target, given["segments"], rows, workers=workers, mix=given["mix"])
        self._sessions[int(given["session"])] = session
        return {"workers": workers}

    def _strings(self, frame: Frame) -> Sequence[bytes]:
        key = frame.fields.get("shared")
        if key is None:
            return frame.strings
        if self._fetch is None:
            raise EnvironmentLacks("the head has shared its rows in a way that this agent does not know", None)
        return self._fetch(str(key))

    def _with_files(self, value: Any, files: Mapping[str, str]) -> Any:
        """A target whose files lie here now."""
        if isinstance(value, dict):
            return {name: self._with_files(each, files) for name, each in value.items()}
        if isinstance(value, list):
            return [self._with_files(each, files) for each in value]
        if isinstance(value, str) and value in files:
            number = list(files).index(value)
            place = self._folder / f"file-{number}.pem"
            place.write_text(files[value], "utf-8")
            return str(place)
        return value

    def _probe(self, frame: Frame) -> Mapping[str, Any]:
        return {"record": self._sessions[int(frame.fields["session"])].probe()}

    def _close(self, frame: Frame) -> Mapping[str, Any]:
        session = self._sessions.pop(int(frame.fields["session"]), None)
        if session is not None:
            session.close()
        return {}

    def _queue(self, frame: Frame) -> Mapping[str, Any]:
        number = int(frame.fields["level"])
        folder = self._folder / f"level-{number}"
        (folder / "records").mkdir(parents=True)
        plan = {**frame.fields["plan"], "dir": str(folder / "records"), "keep_bytes": 0}
        arrays = dict(zip(frame.fields["arrays"], frame.strings, strict=True))
        level = self._sessions[int(frame.fields["session"])].queue(plan, **arrays)
        each = _Level(level, folder, held=bool(plan.get("held")), one_in=int(frame.fields.get("one_in") or 1))
        with self._lock:
            self._levels[number] = each
            stopped = self._stopped.pop(number, None)
        if self._over.is_set():
            level.stop(0)
        elif stopped is not None:
            level.stop(int(stopped["drain_ns"]), stopped["reason"])
        follows = threading.Thread(target=self._follow, args=(number, each), name="gpusize-level", daemon=True)
        self._followers = [*(thread for thread in self._followers if thread.is_alive()), follows]
        follows.start()
        return {}

    def _start(self, frame: Frame) -> Mapping[str, Any]:
        number = int(frame.fields["level"])
        with self._lock:
            each = self._levels[number]
        each.held = False
        try:
            if (close_at_ns := frame.fields.get("close_at_ns")) is not None:
                cast("Any", each.level).set_close_at(int(close_at_ns))
            cast("Any", each.level).start_at(int(frame.fields["at_ns"]))
        except GpusizeError:
            # Too late: the others have begun, and this one would be beside them.
            each.level.stop(0)
            raise
        return {}

    def _close_at(self, frame: Frame) -> Mapping[str, Any]:
        with self._lock:
            each = self._levels.get(int(frame.fields["level"]))
        if each is not None:
            cast("Any", each.level).set_close_at(int(frame.fields["at_ns"]))
        return {}

    def _stop(self, frame: Frame) -> Mapping[str, Any]:
        number = int(frame.fields["level"])
        with self._lock:
            each = self._levels.get(number)
            if each is None:
                # It is still being queued on the other thread, or has ended.
                self._stopped[number] = frame.fields
        if each is not None:
            each.level.stop(int(frame.fields["drain_ns"]), frame.fields["reason"])
        return {}

    def _follow(self, number: int, each: _Level) -> None:
        """Tell of a level: when it is ready, twice a second, when its state changes, and at its end; bring it home.

        This thread sleeps in the engine, which wakes it when the level is ready and when it has ended.
        """
        try:
            while not self._over.is_set():
                if each.held:
                    ready = bool(cast("Any", each.level).prepared(LOOK_EVERY_S))
                    # A start may have come meanwhile.
                    each.held &= not ready
                    self._tell(number, each, ready=ready)
                elif each.level.wait(LOOK_EVERY_S):
                    while self._tell(number, each, ended=True) == SECONDS_AT_ONCE:
                        pass
                    self._bring_home(number, each)
                    return
                else:
                    self._tell(number, each)
        except Broken:
            pass
        except Exception as error:  # noqa: BLE001 -- a bug here must not leave the head waiting
            self._lose(number, each, error)

    def _tell(self, number: int, each: _Level, *, ready: bool = False, ended: bool = False) -> int:
        """Tell of a level where it is time to; how many of its seconds were told."""
        progress = each.level.poll()
        now_s = time.monotonic()
        if now_s < each.due_s and progress["state"] == each.state and not (ready or ended):
            return 0
        each.state = progress["state"]
        into_s = (progress["elapsed_ns"] / 1e9 - TOLD_AFTER_S) % TELL_EVERY_S
        each.due_s = now_s + TELL_EVERY_S - into_s
        seconds, strings = [], []
        for second in each.level.seconds(each.after)[:SECONDS_AT_ONCE]:
            index, cells = pack_cells(second["times"])
            seconds.append({**second, "times": index})
            strings.append(cells)
            each.after = second["second"] + 1
        self._wire.send("progress", strings, level=number, progress=progress, seconds=seconds, ready=ready)
        return len(strings)

    def _bring_home(self, number: int, each: _Level) -> None:
        """Send a level's parts and then its outcome; its folder goes."""
        try:
            outcome = cast("Any", each.level.outcome())
            if each.one_in > 1:
                outcome = {**outcome, **self._thinned(each, outcome)}
            for parts in TABLES:
                for part in cast("Sequence[str]", outcome.get(parts) or ()):
                    self._send_file(number, part, each.folder / part)
            index, cells = pack_cells(outcome["histograms"])
            self._wire.send("ended", [cells], level=number, outcome={**outcome, "histograms": index})
        except Broken:
            pass
        except Exception as error:  # noqa: BLE001 -- whatever it is, the head has to know
            self._lose(number, each, error)
        finally:
            with self._lock:
                self._levels.pop(number, None)
            shutil.rmtree(each.folder, ignore_errors=True)

    def _thinned(self, each: _Level, outcome: Mapping[str, Any]) -> Mapping[str, Any]:
        """Move the rows to where they stay, and leave one in so many for home."""
        self._keep.mkdir(parents=True, exist_ok=True)
        # Two agents on one machine may keep theirs in one folder.
        begun = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        place = Path(tempfile.mkdtemp(prefix=f"{begun}-visit-{outcome['visit']:04d}-", dir=self._keep))
        one_in, counts = each.one_in * int(outcome["sampled"]), {}
        for table, lists in (("records", "parts"), ("spans", "span_parts")):
            if (each.folder / table).is_dir():
                shutil.move(each.folder / table, place / table)
            counts[lists] = sum(thin(place / part, each.folder / part, one_in) for part in outcome.get(lists) or ())
        return {"sampled": one_in, "rows": counts["parts"], "spans": counts["span_parts"], "kept": str(place.resolve())}

    def _lose(self, number: int, each: _Level, error: Exception) -> None:
        """What this host measured of a level cannot be told: the head goes on without it."""
        with contextlib.suppress(Exception):
            each.level.stop(0)
        with contextlib.suppress(Broken):
            self._wire.send("lost", level=number, why=f"{type(error).__name__}: {error}")

    def _send_file(self, number: int, name: str, file: Path) -> None:
        size = file.stat().st_size
        with file.open("rb") as handle:
            for at in range(0, max(size, 1), CHUNK):
                piece = handle.read(CHUNK)
                self._wire.send("part", [piece], level=number, name=name, last=at + CHUNK >= size)
