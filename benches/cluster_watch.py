"""How fast watches are read: ``python -m benches.cluster_watch [--pairs 15] [--events 12000] [--quick] [--record]``.

A server in a process of its own plays back the events of a recorded pod over TLS, for many pods: each event a chunk and
a TLS record of its own, as an API server sends them. Four clients watch it in rounds, each a process of its own: ours
with everything that `gpusize cluster sample` does with a pod (decode, stamp, write Parquet), ours over httpx2's stream,
lightkube's watch, and the official client's raw watch with ``json.loads``. Then 10,000 pods are watched at once.
Tables go to standard output, and with ``--record`` to benches/RESULTS.md. The exit code is 1 when a bar is short.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benches.lib.bars import Bar, exit_code
from benches.lib.host import ROOT, CpuTimes, facts, load_average
from benches.lib.procs import BenchFailed, run_measured
from benches.lib.results import Report
from benches.lib.rounds import rotate
from benches.lib.stats import Interval, bootstrap_median, paired, plain
from benches.programs.watch_server import EVENTS_A_POD

LEAST_PER_S, MOST_MIB = 20_000, 300
PODS, MEMORY_TURNS = 10_000, 3
TURN_S = 100
"""A client that has not seen all events by then never will."""
OURS = "gpusize"
CLIENTS = (OURS, "httpx2", "lightkube", "kubernetes")
KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "https://127.0.0.1:{port}", certificate-authority: "{folder}/cert.pem"}}}}]
users: [{{name: u, user: {{token: t}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""


@dataclass(frozen=True)
class Turn:
    """What a client told of its turn, and what the hypervisor took meanwhile."""

    events: int
    seconds: float
    cpu_s: float
    rss_mib: float
    steal: float

    @property
    def rate(self) -> float:
        """Events per second."""
        return self.events / self.seconds

    @property
    def cpu_rate(self) -> float:
        """Events per second of CPU time."""
        return self.events / self.cpu_s


def main(arguments: Sequence[str] | None = None) -> int:
    """Take the turns, print."""
    options = _options(arguments)
    report, host, before = Report(), facts(), CpuTimes.now()
    with tempfile.TemporaryDirectory() as name, _served(Path(name), options.pods) as kubeconfig:
        turn = partial(_turn, kubeconfig)
        clients = {who: partial(turn, who, options.events) for who in CLIENTS}
        turns = rotate(options.pairs, clients, lambda made: f"{made.rate:.0f}/s")
        large = [turn(OURS, options.pods * EVENTS_A_POD) for _ in range(1 if options.quick else MEMORY_TURNS)]
    _tell(report, turns, large, options.pods)
    host["load average at end"] = f"{load_average():.2f}"
    host["steal over the whole run"] = f"{100 * CpuTimes.now().steal_share(before):.2f} %"
    if options.record:
        report.append_to(ROOT / "benches" / "RESULTS.md", host, options.command)
    return exit_code(report.bars)


def _tell(report: Report, turns: dict[str, list[Turn]], large: Sequence[Turn], pods: int) -> None:
    ours = turns[OURS]
    rows = [
        [
            who,
            bootstrap_median([each.rate for each in made]),
            bootstrap_median([each.cpu_rate for each in made]),
            _ratio(ours, made) if who != OURS else "",
            plain(max(each.rss_mib for each in made)),
        ]
        for who, made in turns.items()
    ]
    steal = [100 * each.steal for made in turns.values() for each in made]
    title = f"{ours[0].events:,} events of pods, {len(ours)} rounds of {len(turns)} clients"
    header = ["client", "events/s", "events per CPU second", "gpusize / it, paired", "most MiB"]
    taken = f"Steal: median {median(steal):.2f} %, at most {max(steal):.2f} %."
    note = f"Ours decodes, stamps and writes; the others count. {taken}"
    report.table(title, header, rows, note)
    told = [[f"{each.events:,}", plain(each.rate), plain(each.rss_mib)] for each in large]
    report.table(f"{pods:,} pods watched at once, all stamped and written", ["events", "events/s", "peak MiB"], told)
    report.bar(Bar("watch_events_per_s", bootstrap_median([e.rate for e in ours]), LEAST_PER_S, "/s", at_least=True))
    cpu = bootstrap_median([each.cpu_rate for each in ours])
    report.bar(Bar("watch_events_per_cpu_s", cpu, LEAST_PER_S, "/s", at_least=True))
    for who in ("lightkube", "kubernetes"):
        report.bar(Bar(f"watch_rate_vs_{who}", _ratio(ours, turns[who]), 1, at_least=True))
    peaks = [each.rss_mib for each in large]
    report.bar(Bar("watch_rss_mib_10000_pods", Interval(median(peaks), min(peaks), max(peaks)), MOST_MIB, "MiB"))


def _ratio(ours: Sequence[Turn], theirs: Sequence[Turn]) -> Interval:
    return paired([each.rate for each in ours], [each.rate for each in theirs])


def _turn(kubeconfig: Path, who: str, events: int) -> Turn:
    with tempfile.TemporaryDirectory(dir=kubeconfig.parent) as folder:
        command = [sys.executable, "-m", "benches.programs.watch_client", who, str(kubeconfig), str(events), folder]
        finished = run_measured(command, timeout_s=TURN_S)
    return Turn(**json.loads(finished.stdout), steal=finished.steal)


@contextmanager
def _served(folder: Path, pods: int) -> Iterator[Path]:
    command = [sys.executable, "-m", "benches.programs.watch_server", str(folder), str(pods)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        port = server.stdout.readline().strip()
        if not port:
            raise BenchFailed("the server of the watch did not start")
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG.format(port=port, folder=folder), encoding="utf-8")
        yield kubeconfig
    finally:
        server.stdin.close()
        server.wait(timeout=30)
        server.stdout.close()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benches.cluster_watch")
    parser.add_argument("--pairs", type=int, default=15, help="rounds, each with a turn of every client")
    parser.add_argument("--events", type=int, default=12_000, help="of a turn")
    parser.add_argument("--pods", type=int, default=PODS, help="watched at once, for the memory")
    parser.add_argument("--quick", action="store_true", help="a smoke test: two short rounds")
    parser.add_argument("--record", action="store_true", help="append to benches/RESULTS.md")
    options = parser.parse_args(given)
    if options.quick:
        options.pairs, options.events, options.pods = 2, 3_000, 1_000
    if options.record and (options.quick or options.pairs < 15):
        parser.error("a result for the record takes at least 15 rounds")
    options.command = " ".join(["python -m benches.cluster_watch", *given])
    return options


if __name__ == "__main__":
    sys.exit(main())
