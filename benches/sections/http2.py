"""CPU per request over HTTP/2, beside h2load on the same server: one stream on each connection, and eight."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benches.lib.bars import Bar
from benches.lib.context import Context
from benches.lib.peers import parse_h2load, require
from benches.lib.procs import BenchFailed, LineServer, pinned, run_measured
from benches.lib.stats import bootstrap_median, paired
from benches.lib.turns import Turn, alternate, cpu_rows, steal_note
from benches.sections.cpu import closed, rows_on_disk

__all__ = ["BOUNDS", "Case", "against_h2load", "gpusize_turn", "http2", "sent_by_both"]

SHAPES = ((64, 1), (8, 8))
"""Connections and streams on each."""
SECONDS = {(64, 1): 8, (8, 8): 4}
BOUNDS = {(64, 1): 0.9, (8, 8): 1.0}
NGHTTPD_PAIRS = 3
START_S = 10.0


@dataclass(frozen=True)
class Case:
    """What both clients are told.

    Args:
        name: of the bars.
        path: what is asked for.
        h2load: further options of h2load.
        asked: further members for benches.client; ``target`` is added to.
    """

    name: str
    path: str = "/"
    h2load: Sequence[str] = ()
    asked: Mapping[str, Any] = field(default_factory=dict)

    def ours(self, port: int, connections: int, streams: int, stop: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """The argument of benches.client."""
        target = {
            "transport": "http2",
            "path": self.path,
            "headers": [["User-Agent", "gpusize"]],
            **self.asked.get("target", {}),
            "streams": streams,
        }
        load = {"load": closed(connections * streams), "stop": dict(stop), "dir": str(folder)}
        return {**self.asked, "port": port, **load, "target": target}

    def theirs(self, port: int, connections: int, streams: int, stop: Sequence[str]) -> list[str]:
        """The command of h2load."""
        program = require("h2load", "nghttp2-client")
        shape = ["-t1", f"-c{connections}", f"-m{streams}", *stop]
        return [program, *shape, *self.h2load, f"http://127.0.0.1:{port}{self.path}"]


def http2(ctx: Context) -> None:
    """The canned server with its bars, then nghttpd without."""
    case, command = Case("http2"), [ctx.tools.canned_h2, "--port", "0"]
    sent_by_both(ctx, case, command)
    with LineServer(command, ctx.server_core) as server:
        against_h2load(ctx, case, server.port)
    with _nghttpd(ctx) as port:
        pairs = min(ctx.pairs, NGHTTPD_PAIRS)
        theirs, ours = _pairs(ctx, case, port, SHAPES[0], pairs)
        rows = cpu_rows(_shown(SHAPES[0]), theirs, ours)
        _table(ctx, f"HTTP/2 against nghttpd, reported only: {pairs} pairs", rows, [*theirs, *ours])


def sent_by_both(ctx: Context, case: Case, command: Sequence[str]) -> None:
    """Raises BenchFailed unless both clients send the same request: longer ones cost more."""
    with LineServer(command, ctx.server_core) as server:
        run_measured(case.theirs(server.port, 1, 1, ["-n1"]))
        theirs = _comparable(server.next_line(), server.port)
    with LineServer(command, ctx.server_core) as server:
        ctx.run_client(case.ours(server.port, 1, 1, {"count": 1}, ctx.fresh_dir("probe")))
        ours = _comparable(server.next_line(), server.port)
    if ours != theirs:
        raise BenchFailed(f"the requests differ, so their costs cannot be compared:\nh2load  {theirs}\ngpusize {ours}")


def _comparable(head: Mapping[str, Any], port: int) -> list[str]:
    """Method, path and headers without their order, the port, the client's name and the length.

    h2load says a content length with every body; gRPC clients, ours too, leave it out.
    """
    own = ("user-agent", "content-length")
    fields = [f"{name}: {value}".replace(f":{port}", "") for name, value in head["headers"] if name not in own]
    return [head["method"], head["path"], *sorted(fields)]


def against_h2load(ctx: Context, case: Case, port: int) -> None:
    """A table of both shapes, and a bar for each."""
    rows: list[list[object]] = []
    bars: list[Bar] = []
    turns: list[Turn] = []
    for shape in SHAPES:
        theirs, ours = _pairs(ctx, case, port, shape, ctx.pairs)
        rows += cpu_rows(_shown(shape), theirs, ours)
        ratio = paired([turn.cpu_us for turn in ours], [turn.cpu_us for turn in theirs])
        bars.append(Bar(f"{case.name}_cpu_per_request_vs_h2load_{shape[0]}x{shape[1]}", ratio, BOUNDS[shape]))
        turns += [*theirs, *ours]
    _table(ctx, f"{case.name} against the canned server: {ctx.pairs} pairs", rows, turns)
    for bar in bars:
        ctx.report.bar(bar)


def _table(ctx: Context, title: str, rows: list[list[object]], turns: Sequence[Turn]) -> None:
    startup_us = [turn.startup_cpu_s / turn.requests * 1e6 for turn in turns if turn.startup_cpu_s]
    note = (
        f"Turns of {_spoken(ctx)} s. CPU of the whole process by wait4; gpusize's with the interpreter's start-up "
        f"({bootstrap_median(startup_us).value:.3f} us of each request) and with every record written as Parquet. "
        f"{steal_note(turns)}"
    )
    ctx.report.table(title, ["connections x streams", "h2load", "gpusize", "gpusize / h2load, paired"], rows, note)


def _spoken(ctx: Context) -> str:
    return " and ".join(str(_seconds(ctx, shape)) for shape in SHAPES)


def _shown(shape: tuple[int, int]) -> str:
    return f"{shape[0]} x {shape[1]}"


def _seconds(ctx: Context, shape: tuple[int, int]) -> int:
    return ctx.size(SECONDS[shape], 1)


def _pairs(ctx: Context, case: Case, port: int, shape: tuple[int, int], pairs: int) -> tuple[list[Turn], list[Turn]]:
    stop = {"duration_ns": _seconds(ctx, shape) * 10**9}

    def ours() -> Turn:
        folder = ctx.fresh_dir("records")
        return gpusize_turn(ctx, case.ours(port, *shape, stop, folder), folder)

    def tell(a: Turn, b: Turn) -> str:
        both = f"h2load {a.cpu_us:.2f} us, gpusize {b.cpu_us:.2f} us"
        return f"{case.name} {_shown(shape)}: {both}, ratio {b.cpu_us / a.cpu_us:.3f}"

    return alternate(pairs, lambda: _h2load(ctx, case, port, shape), ours, tell)


def _h2load(ctx: Context, case: Case, port: int, shape: tuple[int, int]) -> Turn:
    finished = run_measured(pinned(case.theirs(port, *shape, [f"-D{_seconds(ctx, shape)}"]), ctx.client_core))
    count = parse_h2load(finished.stdout)
    if count.errors:
        raise BenchFailed(f"h2load saw errors:\n{finished.stdout}")
    return Turn(count.requests, finished.cpu_s, count.seconds, finished.steal)


def gpusize_turn(ctx: Context, asked: Mapping[str, Any], folder: Path) -> Turn:
    """A turn of ours; raises BenchFailed unless all went well and every record is on disk."""
    finished, outcome = ctx.run_client(asked)
    written = rows_on_disk(folder)
    if not outcome["rows"] == written == outcome["outcomes"]["ok"]:
        raise BenchFailed(f"{outcome['rows']} records, {written} of them on disk, {outcome['outcomes']} requests")
    wall_s = (outcome["end_ns"] - outcome["start_ns"]) / 1e9
    return Turn(written, finished.cpu_s, wall_s, finished.steal, outcome["startup_cpu_s"])


@contextmanager
def _nghttpd(ctx: Context) -> Iterator[int]:
    """nghttpd with a file of 13 bytes; its port."""
    program = require("nghttpd", "nghttp2-server")
    folder = ctx.fresh_dir("nghttpd")
    (folder / "index.html").write_bytes(b"Hello, World!")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    command = [program, "--no-tls", "-n1", "-a", "127.0.0.1", "-d", str(folder), str(port)]
    process = subprocess.Popen(pinned(command, ctx.server_core), stdout=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield port
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
        else:
            return
    raise BenchFailed(f"nghttpd does not listen on port {port}")
