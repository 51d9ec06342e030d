"""Series of a Prometheus server, for a time that is over or nearly so, in a folder."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.clock import MACHINE, Clock
from gpusize.observe.metrics.trust import Verify

if TYPE_CHECKING:
    import httpx
    import polars as pl

    from gpusize.observe.series.ask import Asker
    from gpusize.observe.series.time_range import TimeRange

__all__ = ["PulledSeries", "Server", "check_server", "pull_series"]

CHECK_S: Final = 3.0
"""How long a server is asked whether it is there: nothing is lost yet, and whoever mistyped its address waits."""


@dataclass(frozen=True, slots=True)
class Server:
    """A Prometheus server, and how it is asked.

    Attributes:
        url: its address, ``kube://namespace/service:port`` among them; a path is kept, as behind a proxy.
        headers: of requests; values may be ``env:VARIABLE``, ``Bearer env:VARIABLE`` or ``file:PATH``.
        verify: check its certificate; a path names a PEM file of authorities.
        retry_s: how long a question is asked again while the server fails or cannot be reached.
        clock: of pauses and waits.
        wall_ns: this machine's clock, ns since 1970.
        transport: replaces the network, for tests.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    verify: Verify = True
    retry_s: float = 30.0
    clock: Clock = MACHINE
    wall_ns: Callable[[], int] = time.time_ns
    transport: httpx.BaseTransport | None = None


@dataclass(frozen=True, slots=True)
class PulledSeries:
    """What a pull has left in its folder.

    Attributes:
        path: the folder.
        facts: the contents of ``series.json``.
        requests: that were sent, those for the server's clock among them.
        fatal: why it ended before everything was asked for; None where it did not.
    """

    path: Path
    facts: Mapping[str, Any]
    requests: int
    fatal: str | None

    @property
    def complete(self) -> bool:
        """Whether everything that was asked for is there, up to the server's clock."""
        return self.fatal is None and not self.facts["missing"]

    def scan(self) -> pl.LazyFrame:
        """The samples: ``t_ns``, ``name``, ``labels``, ``le``, ``value``."""
        from gpusize.records.series import scan_series

        return scan_series(self.path)


def pull_series(
    server: Server | str,
    out: str | Path,
    time_range: TimeRange,
    *,
    presets: Sequence[str] = (),
    series: Sequence[str] = (),
    match: str | None = None,
    margin_s: float = 60.0,
    step_s: float = 15.0,
    parallel: int = 4,
    wait_for_end: bool = False,
    progress: Callable[[str], None] | None = None,
) -> PulledSeries:
    """Pull series into a folder; what it has already is not asked for again.

    Args:
        server: the server, or its address.
        out: the folder, new or of an earlier pull.
        time_range: from when to when; see ``gpusize.observe.series.time_range``.
        presets: names of ``gpusize.observe.series.presets.PRESETS``.
        series: the user's own, each ``NAME=PROMQL``.
        match: label matchers for the presets' series, as ``namespace="llm"``.
        margin_s: before and behind the range: counters need a value from before their window.
        step_s: between the times at which PromQL expressions are evaluated; selectors are pulled as stored.
        parallel: most questions at a time, 1 to 16.
        wait_for_end: wait until the server has the end of the range; else what is not there yet is missing.
        progress: told in words how far it is.

    Raises:
        UsageError: an invalid argument; the folder has a series that was asked for otherwise.
        TargetError: the server does not answer at all, refuses, or is no Prometheus; nothing was pulled.
        StoreError: the folder cannot be written.
        EnvironmentLacks: a ``kube://`` address, and no kubectl.
        KeyboardInterrupt: Ctrl-C; what was pulled is kept and described.
    """
    from gpusize import __version__
    from gpusize.base.errors import UsageError
    from gpusize.observe.metrics.prometheus_pull import checked_matchers
    from gpusize.observe.series.describe import described, missing_of
    from gpusize.observe.series.folder import SeriesFolder
    from gpusize.observe.series.plan import asked_as
    from gpusize.observe.series.presets import definitions
    from gpusize.observe.series.pull import MOST_PARALLEL, Wanted, clock_of, pull_into
    from gpusize.observe.series.time_range import iso_ns
    from gpusize.records.series import VERSION

    if not 1 <= parallel <= MOST_PARALLEL:
        raise UsageError(f"it must be from 1 to {MOST_PARALLEL}, not {parallel}", "parallel", "a few are enough")
    step_ms = round(step_s * 1e3)
    if step_ms < 1:
        raise UsageError("it must be at least 1 ms", "step", "give the scrape interval")
    wanted = definitions(presets, series)
    matchers = checked_matchers(match)
    if isinstance(server, str):
        server = Server(server)
    with contextlib.ExitStack() as stack:
        asker = stack.enter_context(_asking(server))
        its_clock = clock_of(asker, server.wall_ns)
        interval = _interval(time_range, margin_s, its_clock.offset_ns)
        folder = stack.enter_context(SeriesFolder.open(Path(out)))
        what = Wanted(wanted, interval, matchers, step_ms, parallel)
        done = pull_into(
            folder,
            asker,
            what,
            its_clock,
            wait_for_end=wait_for_end,
            clock=server.clock,
            wall_ns=server.wall_ns,
            progress=progress,
        )
        asked = {key: asked_as(key, each, matchers, step_ms) for key, each in wanted.items()}
        facts = {
            "version": VERSION,
            "gpusize": __version__,
            "server": asker.name,
            "range": {
                "from": iso_ns(interval[0] * 1_000_000),
                "to": iso_ns(interval[1] * 1_000_000),
                "from_ns": interval[0] * 1_000_000,
                "to_ns": interval[1] * 1_000_000,
                "told_by": time_range.told_by,
                "start_ns": time_range.start_ns,
                "end_ns": time_range.end_ns,
            },
            "until_ns": done.until_ms * 1_000_000,
            "step_s": step_s,
            "clock": its_clock.facts(),
            "names": described(folder, wanted, (interval[0], done.until_ms), step_ms),
            "missing": missing_of(folder, wanted, asked, interval, done),
            "warnings": list(dict.fromkeys(each for part in folder.parts for each in part.warnings)),
            "notes": _notes(asker, folder),
        }
        folder.describe(facts)
    if done.interrupted:
        raise KeyboardInterrupt
    return PulledSeries(Path(out), facts, done.requests, done.fatal)


def check_server(server: Server | str) -> None:
    """Ask a server whether it is there, lets us in, and is a Prometheus; nothing is pulled.

    Args:
        server: the server, or its address.

    Raises:
        UsageError: an invalid address or header.
        TargetError: it does not answer, refuses, or is something else.
        EnvironmentLacks: a ``kube://`` address, and no kubectl.
    """
    from gpusize.observe.series.pull import clock_of

    asked = Server(server) if isinstance(server, str) else server
    with _asking(replace(asked, retry_s=min(asked.retry_s, CHECK_S))) as asker:
        clock_of(asker)


@contextlib.contextmanager
def _asking(server: Server) -> Iterator[Asker]:
    """Somebody who asks the server, by way of kubectl where its address says so."""
    from gpusize.observe.metrics import is_kube, resolve_kube
    from gpusize.observe.series.ask import Asker

    with contextlib.ExitStack() as stack:
        url = server.url
        if is_kube(url):
            url, way = resolve_kube(url)
            stack.enter_context(way)
        asker = Asker(
            url,
            headers=server.headers,
            verify=server.verify,
            retry_s=server.retry_s,
            clock=server.clock,
            transport=server.transport,
        )
        stack.callback(asker.close)
        if is_kube(server.url):
            # The way's own port is another one each time.
            asker.name = server.url
        yield asker


def _interval(time_range: TimeRange, margin_s: float, offset_ns: int) -> tuple[int, int]:
    """With its margins, by the server's clock, in ms, open on the left: a sample at the very begin is in it.

    The offset counts in whole seconds: what it jitters by would leave a sliver to be asked for each time.
    """
    margin_ms = round(margin_s * 1e3)
    shift_ms = round(offset_ns / 1e9) * 1000 if time_range.ours else 0
    start_ms, end_ms = time_range.start_ns // 1_000_000, -(-time_range.end_ns // 1_000_000)
    return start_ms + shift_ms - margin_ms - 1, end_ms + shift_ms + margin_ms


def _notes(asker: Any, folder: Any) -> list[str]:
    """What the user should know of the way to the server."""
    notes = []
    if asker.unchecked:
        notes.append("the server's certificate was not checked")
    if asker.plain and asker.sends_secret:
        notes.append("a secret was sent unencrypted: the address is http://")
    others = sorted({part.server for part in folder.parts} - {asker.name})
    notes += [f"a part of it was pulled from {each}" for each in others]
    return notes
