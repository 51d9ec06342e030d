"""Comparisons of real servers beside a neighbour that takes their core now and then: by duet, and in sequence.

Both servers compute what a request asks for, on one core; the slower one computes 5 % more. The neighbour takes a share
of the same core for some seconds, then nothing. Duets send half the requests of runs in sequence.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import gpusize
from benches.lib.context import say
from benches.lib.host import ROOT, CpuTimes, load_average, pin_cores
from benches.lib.procs import LineServer, on_core, pinned
from benches.lib.results import Report
from benches.lib.stats import plain
from benches.lib.verdicts import HEADER, Outcome, judged, row, share
from benches.programs.cpu_hog import SHARE, TURN_S
from benches.sections.truth import real_time
from gpusize.analysis.compare.comparison import Comparison
from gpusize.analysis.compare.matching import Run
from gpusize.analysis.read_levels import read_levels
from gpusize.base.errors import UsageError

__all__ = ["real"]

Way = Callable[[Mapping[str, gpusize.Target], Path], Comparison]
"""Measures two servers into a folder, each into one of its name, and compares them."""

ROUNDS_OF_HASH = 3_000
"""Of a request: a millisecond of a core."""
USERS, REQUESTS, RUNS = 2, 300, 10
SLOWER = (0.0, 0.05)
DUET, SEQUENCE = "duet of 10 rounds", "10 runs each in sequence"


def real(report: Report, *, repeats: int, seed: int) -> None:
    """Measure equal servers and one that is 5 % slower, both ways by turns, and count what was said."""
    server_core, client_core = pin_cores()
    found: dict[str, list[Outcome]] = {}
    before = CpuTimes.now()
    with on_core(client_core):
        for k in range(repeats):
            for slower in SLOWER:
                asked = {"a": ROUNDS_OF_HASH, "b": round(ROUNDS_OF_HASH * (1 + slower))}
                name = f"{slower:.0%} slower" if slower else "equal"
                with _servers(asked, server_core) as targets, _hog(f"{seed} {name} {k}", server_core):
                    for how, way in ((DUET, _duet), (SEQUENCE, _sequence)):
                        found.setdefault(f"{name}, {how}", []).append(_outcome(way, targets, slower))
            say(f"real: {k + 1} of {repeats} repeats")
    _tell(report, found, CpuTimes.now().steal_share(before))


@contextlib.contextmanager
def _servers(asked: Mapping[str, int], core: int) -> Iterator[dict[str, gpusize.Target]]:
    """A server for each name, which computes so many rounds for a request."""
    with contextlib.ExitStack() as stack:
        made = {}
        for name, rounds in asked.items():
            command = [sys.executable, "-m", "benches.programs.busy_server", str(rounds)]
            port = stack.enter_context(LineServer(command, core)).port
            made[name] = gpusize.Target(f"http://127.0.0.1:{port}/", api="generic", method="GET")
        yield made


@contextlib.contextmanager
def _hog(seed: str, core: int) -> Iterator[None]:
    command = [sys.executable, "-m", "benches.programs.cpu_hog", seed]
    with subprocess.Popen(pinned(command, core), cwd=ROOT) as process:
        try:
            yield
        finally:
            process.kill()


def _load(requests: int) -> gpusize.Load:
    return gpusize.Load(concurrencies=[USERS], count=requests)


def _duet(targets: Mapping[str, gpusize.Target], folder: Path) -> Comparison:
    return gpusize.duet(targets, load=_load(REQUESTS // 2), rounds=RUNS, out=folder, metrics_url="none")


def _sequence(targets: Mapping[str, gpusize.Target], folder: Path) -> Comparison:
    for name, target in targets.items():
        for _ in range(RUNS):
            gpusize.run(target, load=_load(REQUESTS), out=folder / name, adaptive=False, metrics_url="none")
    return gpusize.compare({name: folder / name for name in targets})


def _outcome(way: Way, targets: Mapping[str, gpusize.Target], slower: float) -> Outcome:
    """One comparison; where every level was left out there is no verdict, which finds nothing and wrongs nobody."""
    with tempfile.TemporaryDirectory(prefix="gpusize-bench-") as made:
        folder = Path(made) / "runs"
        try:
            with real_time():
                comparison = way(targets, folder)
        except UsageError as error:
            say(f"nothing compared: {error}")
            return Outcome(worse=False, better=False, equivalent=0, held=0, figures=0, peer=False)
        a, b = (_runs(folder / name) for name in targets)
        return judged(comparison, slower, a, b)


def _runs(folder: Path) -> list[Run]:
    return [Run(path.name, path.name, read_levels(path)) for path in sorted(folder.iterdir())]


def _tell(report: Report, found: Mapping[str, Sequence[Outcome]], steal: float) -> None:
    ends = {name: share([each.worse if "slower" in name else each.different for each in outcomes])
            for name, outcomes in found.items()}  # fmt: skip
    shares = "; ".join(
        f"{name}: {'found' if 'slower' in name else 'called different'} {plain(100 * each.value)} "
        f"[{plain(100 * each.lo)}, {plain(100 * each.hi)}]"
        for name, each in ends.items()
    )
    note = (
        f"Per cent of repeats, as above. In per cent with Wilson's intervals: {shares}. No bars: so few repeats cannot "
        f"carry them. The servers hash for a millisecond a request, {USERS} users, {REQUESTS} requests a run, in duets "
        f"{REQUESTS // 2}; a hog takes {SHARE:.0%} of their core for {TURN_S:g} s on average, then nothing. "
        f"Servers and client come before what else runs here; what other tenants of the host take is in it. Load "
        f"average at the end {load_average():.1f}, steal {100 * steal:.2f} %."
    )
    report.table("comparisons of real servers beside a hog", HEADER, [row(*each) for each in found.items()], note)
