"""The highest rate that this machine can generate, against a server that answers at once on the same machine.

A closed loop says how many requests per second so many workers send. An open loop says up to which rate they leave on
time. The server takes cores as well, so a target on another machine leaves room for more.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpusize.analysis.generator import CPU_LIMIT
from gpusize.base.errors import EnvironmentLacks, GpusizeError, TargetError
from gpusize.doctor.finding import Finding
from gpusize.doctor.null import NullServer
from gpusize.report.text import count, duration, number

if TYPE_CHECKING:
    from gpusize.engine.session import AnyEngine

__all__ = ["Burst", "ceiling_findings", "highest", "measured", "split"]

CONNECTIONS: Final = 64
CLOSED_S: Final = 2.0
OPEN_S: Final = 1.0
LATE_S: Final = 1e-3
"""Lateness of the pacer that open loops are to keep at p99; the default budget of a level."""
SHARES: Final = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Rates to try, as shares of what the closed loop reached."""
FULL: Final = 0.85
"""Share of its cores from which whoever is that busy is the limit: the rest goes into waking up."""
WAIT_S: Final = 0.1


class Burst(NamedTuple):
    """One short load.

    Attributes:
        rate: requests per second that were answered.
        offered: requests per second asked for; 0 in a closed loop.
        cpu_share: share of its workers' cores that the generator used.
        cpu_per_request_s: CPU time of the generator for one request.
        server_share: share of its threads' cores that the server used.
        pacer_late_p99_s: None in a closed loop.
    """

    rate: float
    offered: float
    cpu_share: float
    cpu_per_request_s: float
    server_share: float
    pacer_late_p99_s: float | None

    @property
    def on_time(self) -> bool:
        """Whether an open loop was sent as asked, by the bounds beyond which a level counts as generator-limited."""
        late = self.pacer_late_p99_s
        kept = late is not None and late <= LATE_S and self.rate >= 0.98 * self.offered
        return kept and self.cpu_share <= CPU_LIMIT


def split(cores: int) -> tuple[int, int]:
    """Workers and server threads for so many cores: an answer takes about half the CPU time of a request."""
    server = max(1, cores // 3)
    return max(1, cores - server), server


def ceiling_findings(cores: int, *, note: Callable[[str], None] = lambda _: None) -> list[Finding]:
    """Measure; about ten seconds. A measurement that fails becomes a finding that prevents measuring.

    Args:
        cores: cores that may be used.
        note: told what is measured now.
    """
    found: list[Finding] = []
    try:
        with NullServer() as server:
            note(f"loading a null server: closed loop, {CONNECTIONS} connections, 1 worker")
            one = measured(server, 1, seconds=CLOSED_S)
            found.append(_closed(one, 1, 1))
            best = highest(SHARES, one.rate, lambda rate: measured(server, 1, rate=rate, seconds=OPEN_S), note)
            found.append(_open(best, one.rate))
        workers, threads = split(cores)
        if workers > 1:
            note(f"loading a null server: closed loop, {CONNECTIONS} connections, {workers} workers")
            with NullServer(threads) as server:
                found.append(_closed(measured(server, workers, threads, seconds=CLOSED_S), workers, threads))
    except GpusizeError as error:
        found.append(Finding("ceiling", "null server", "lacks", error.what, error.todo or "", prevents=True))
    return found


def highest(
    shares: tuple[float, ...], most: float, burst: Callable[[float], Burst], note: Callable[[str], None]
) -> Burst | None:
    """The highest of the rates ``share * most`` that leaves on time, by halving; None when not even the lowest does."""
    low, high, best = 0, len(shares) - 1, None
    while low <= high:
        middle = (low + high) // 2
        rate = _round(shares[middle] * most)
        note(f"loading a null server: open loop, {count(rate)}/s")
        tried = burst(rate)
        if tried.on_time:
            low, best = middle + 1, tried
        else:
            high = middle - 1
    return best


def _round(rate: float) -> float:
    """Two digits: nobody asks for 37,412/s."""
    return max(1.0, float(f"{rate:.2g}"))


def measured(server: NullServer, workers: int, threads: int = 1, *, rate: float | None = None, seconds: float) -> Burst:
    """Load the server and see.

    Args:
        server: it.
        workers: threads that send.
        threads: its threads.
        rate: requests per second; None: a closed loop.
        seconds: how long.

    Raises:
        TargetError: no request was answered.
    """
    from gpusize.engine.session import Engine
    from gpusize.measure.encode import prepare
    from gpusize.targets.server import Target
    from gpusize.workload.dataset import Dataset
    from gpusize.workload.load import Load

    target = Target(server.url, api="generic", method="GET", content_type="text/plain", stream=False)
    if rate is None:
        load = Load(concurrencies=[CONNECTIONS], duration_s=seconds)
    else:
        load = Load(rates=[rate], process="constant", duration_s=seconds, connections=CONNECTIONS)
    dataset = Dataset.from_prompt("-")
    ready = prepare(target, dataset)
    with Engine(ready.spec, ready.segments, ready.rows, workers=workers) as engine:
        return _run(engine, load.plans(len(dataset.rows))[0], server, threads, rate or 0.0)


def _run(engine: AnyEngine, plan: Mapping[str, Any], server: NullServer, threads: int, rate: float) -> Burst:
    before = server.stats()
    with tempfile.TemporaryDirectory(prefix="gpusize-doctor-") as folder:
        records = Path(folder) / "records"
        records.mkdir()
        level = engine.queue({**plan, "visit": 0, "dir": str(records), "keep_bytes": 0})
        while not level.wait(WAIT_S):
            pass
        outcome = level.outcome()
        if outcome["write_error"] is not None:
            raise EnvironmentLacks(f"the records could not be written: {outcome['write_error']}", folder, "make room")
        late_s = _late_s(records) if rate else None
    after = server.stats()
    took_s = (outcome["end_ns"] - outcome["start_ns"]) / 1e9
    good = outcome["outcomes"].get("ok", 0)
    if not good:
        said = outcome["errors"][0]["message"] if outcome["errors"] else "reason unknown"
        raise TargetError(f"no request to the null server was answered: {said}", server.url)
    cpu_s = outcome["cpu_ns"] / 1e9
    served_s = after.get("cpu_s", 0.0) - before.get("cpu_s", 0.0)
    return Burst(
        rate=good / took_s,
        offered=rate,
        cpu_share=cpu_s / took_s / outcome["workers"],
        cpu_per_request_s=cpu_s / good,
        server_share=served_s / took_s / threads,
        pacer_late_p99_s=late_s,
    )


def _late_s(records: Path) -> float | None:
    import polars as pl

    from gpusize.analysis.metrics import metric

    return metric("pacer_late").quantiles(pl.scan_parquet(records, glob=False), [0.99])[0]


def _closed(burst: Burst, workers: int, threads: int) -> Finding:
    facts = {**burst._asdict(), "workers": workers, "server_threads": threads, "connections": CONNECTIONS}
    limit = "the generator" if burst.cpu_share >= FULL else "the null server" if burst.server_share >= FULL else ""
    shown = f"{number(burst.rate)}/s, {duration(burst.cpu_per_request_s)} of CPU a request"
    shown += f"; limited by {limit}" if limit else ""
    name = f"{workers} worker{'' if workers == 1 else 's'}"
    todo = (
        f"generator {burst.cpu_share:.0%} busy, null server {burst.server_share:.0%}: others took the rest of the "
        "cores, and this is not a ceiling; end them and look again"
    )
    todo = "" if limit else todo
    return Finding("ceiling", name, "ok" if limit else "warn", shown, todo, facts)


def _open(best: Burst | None, most: float) -> Finding:
    if best is None:
        rate = _round(SHARES[0] * most)
        todo = "nothing is sent on time here: stop other processes, or give the generator cores of its own (--pin)"
        return Finding("ceiling", "on time", "warn", f"even {count(rate)}/s was not sent on time", todo)
    shown = f"{count(best.offered)}/s with one worker, pacer late p99 {duration(best.pacer_late_p99_s)}, "
    shown += f"{best.cpu_share:.0%} of its core"
    return Finding("ceiling", "on time", "ok", shown, "", best._asdict())
