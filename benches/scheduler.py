"""Cluster tests on a real control plane: ``python -m benches.scheduler [--only truth,censored,seed] [--record]``.

An API server, etcd, controllers and the default scheduler of Kubernetes run on this machine, with fake nodes.

- ``truth``: pods whose containers start after a known delay; the phase's percentiles against those that were drawn, and
  beside them what the API's times of whole seconds would say.
- ``censored``: 5 % of the pods never start; percentiles with them (Kaplan-Meier) and without, against what was drawn.
- ``seed``: the two commands of the Run:ai scale test tool's page, on 1,000 nodes with 8 GPUs: 2,000 training workloads
  in rounds of 5 and at a rate, and 1,000 distributed ones with 7 workers. What Run:ai's operator makes of them is made
  by a double of ours. What our own processes cost.

Tables go to standard output, and with ``--record`` to benches/RESULTS.md. The exit code is 1 when a bar is short.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl
from numpy.typing import NDArray

from benches.lib.bars import Bar, exit_code
from benches.lib.host import ROOT, CpuTimes, facts, load_average
from benches.lib.procs import BenchFailed, Finished, run_measured
from benches.lib.results import Report
from benches.lib.stats import Interval
from gpusize.cluster.fake.delays import Delays
from scripts.peers import peer_folder, peer_pieces
from tests.servers.kube import ControlPlane
from tests.servers.kube.crds import JOBS, RUNAI, install
from tests.servers.kube.objects import create, until
from tests.servers.kube.runai_operator import RunaiOperator

SECTIONS = ("truth", "censored", "seed")
DELAY, LATE_MS = "uniform(50ms,500ms)", 20.0
LONG_DELAY, NEVER, CENSORED_ERROR = "uniform(500ms,3s)", 0.05, 0.03
SEED, RESAMPLES = 5, 2000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections, print."""
    options = _options(arguments)
    peer = peer_folder("kube")
    if "program" not in peer_pieces(peer):
        raise BenchFailed("the control plane is not there: make kube-server")
    report, host, before = Report(), facts(), CpuTimes.now()
    with (
        tempfile.TemporaryDirectory() as name,
        ControlPlane(peer / "bin" / "kube", _made(Path(name) / "plane")) as plane,
    ):
        bench = _Bench(plane, options.folder or Path(name), report)
        for section in options.only:
            getattr(bench, section)(options)
    host["load average at end"] = f"{load_average():.2f}"
    host["steal over the whole run"] = f"{100 * CpuTimes.now().steal_share(before):.2f} %"
    if options.record:
        report.append_to(ROOT / "benches" / "RESULTS.md", host, options.command)
    return exit_code(report.bars)


class _Bench:
    """The control plane, and what is measured on it."""

    def __init__(self, plane: ControlPlane, folder: Path, report: Report) -> None:
        self.plane, self.folder, self.report = plane, folder, report

    def truth(self, options: argparse.Namespace) -> None:
        """Bars: the percentiles of a known delay, within 20 ms."""
        with self._fakes(60, "--start-after", DELAY):
            self._run("truth", ["-t", "pod", "-n", str(options.pods), "--rate", "20", "--process", "constant"])
        phases = self._phase("truth", "starting")
        drawn = self._drawn(phases, Delays.parse(DELAY, seed=SEED))
        measured = phases["value_ns"].to_numpy() / 1e9
        logged = self._logged(phases["workload"].to_list())
        seconds = self._api_seconds("truth", phases["workload"].to_list())
        rows = [
            (name, *(f"{1000 * np.quantile(values, share):.0f}" for share in (0.5, 0.9, 0.95, 0.99)))
            for name, values in (
                ("drawn", drawn),
                ("by the API server's log", logged),
                ("measured", measured),
                ("by the API's seconds", seconds),
            )
        ]
        title = f"{len(drawn)} pods that start {DELAY} after their binding"
        note = (
            f"Each is measured to ±{1000 * _half(phases):.1f} ms (median). The server's log has when it answered each "
            "binding and each start, to the microsecond; what it has over the drawn is the fake nodes' own lateness."
        )
        self.report.table(title, ("ms", "p50", "p90", "p95", "p99"), rows, note)
        for truth, what in ((logged, "logged"), (drawn, "drawn")):
            for name, share in (("p50", 0.5), ("p95", 0.95)):
                error = _difference(truth, measured, share)
                worst = Interval(abs(error.value) * 1000, 0.0, max(abs(error.lo), abs(error.hi)) * 1000)
                self.report.bar(Bar(f"cluster_{name}_error_to_{what}_ms", worst, LATE_MS, "ms"))

    def censored(self, options: argparse.Namespace) -> None:
        """Bars: percentiles of all pods, 5 % of which never start, within 3 %."""
        with self._fakes(120, "--start-after", LONG_DELAY, "--never", str(NEVER)):
            asked = [
                "-t",
                "pod",
                "-n",
                str(2 * options.pods),
                "--rate",
                "50",
                "--process",
                "constant",
                "--within",
                "15s",
            ]
            self._run("censored", asked, may_fail=True)
        phases = self._phase("censored", "starting")
        told = {row["phase"]: row for row in self._document("censored")["phases"]}["starting"]
        delays = Delays.parse(LONG_DELAY, never=NEVER, seed=SEED)
        drawn = self._drawn(phases, delays)
        never = np.array([delays.fate(f"default/{name}") == "never" for name in phases["workload"]])
        truth = np.where(never, np.inf, drawn)
        rows = []
        for name, share in (("p50", 0.5), ("p90", 0.9)):
            exact = float(np.quantile(truth, share, method="inverted_cdf"))
            without = float(np.quantile(drawn[~never], share, method="inverted_cdf"))
            rows.append((name, f"{exact:.3f}", f"{told[f'{name}_s']:.3f}", f"{without:.3f}"))
            error = abs(told[f"{name}_s"] / exact - 1)
            self.report.bar(Bar(f"cluster_censored_{name}_error", Interval.exact(error), CENSORED_ERROR))
        title = f"{len(drawn)} pods, {int(never.sum())} of which never start"
        self.report.table(title, ("s", "drawn, of all", "told, of all", "drawn, of those that start"), rows)

    def seed(self, options: argparse.Namespace) -> None:
        """The seed's commands; no bars: what the scheduler and our own processes do."""
        with self.plane.client() as client:
            install(client, RUNAI, JOBS)
            create(client, "/api/v1/namespaces", {"metadata": {"name": "runai-project-0"}})
        count, gangs = str(options.workloads), str(options.workloads // 2)
        rounds = ["-t", "training", "-n", count, "-p", "5"]
        open_loop = ["-t", "training", "-n", count, "--rate", "25", "--process", "constant"]
        gang = ["-t", "distributed", "-n", gangs, "--num-workers", "7", "-p", "1"]
        rows = []
        with self._fakes(1000), RunaiOperator(self.plane.client):
            for name, asked in (("rounds of 5", rounds), ("25/s", open_loop), ("7 workers each", gang)):
                done = self._run(name.replace(" ", "-").replace("/", "-"), asked, may_fail=True)
                folder = self.folder / name.replace(" ", "-").replace("/", "-")
                rows.append(self._costs(name, folder, done))
                self._clean(folder)
        header = ("", "workloads", "pods", "scheduled p50 s", "p99 s", "not ended", "wall s", "our CPU s", "peak MiB")
        self.report.table("1,000 fake nodes with 8 GPUs, the default scheduler", header, rows)

    def _costs(self, name: str, folder: Path, done: Finished) -> tuple[object, ...]:
        told = self._document(folder.name)
        scheduled = {row["phase"]: row for row in told["phases"]}["scheduled"]
        pods = pl.scan_parquet(folder / "workloads.parquet").select("pods_seen").sum().collect().item()
        figures = (f"{scheduled['p50_s']:.3f}", f"{scheduled['p99_s']:.3f}", scheduled["censored"])
        costs = (f"{done.wall_s:.0f}", f"{done.cpu_s:.1f}", f"{done.peak_rss_bytes / 2**20:.0f}")
        return (name, scheduled["n"], pods, *figures, *costs)

    @contextmanager
    def _fakes(self, nodes: int, *options: str) -> Iterator[None]:
        """Fake nodes while the block runs."""
        command = [*self._gpusize("fake-nodes"), "--nodes", str(nodes), "--seed", str(SEED), "--allow-other-workloads"]
        command += options
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        try:
            with self.plane.client() as client:
                asked = {"labelSelector": "gpusize.dev/fake-node"}
                until(
                    lambda: [
                        node
                        for node in client.get("/api/v1/nodes", params=asked).raise_for_status().json()["items"]
                        if node["status"].get("conditions") and "taints" not in node["spec"]
                    ],
                    lambda ready: len(ready) >= nodes or process.poll() is not None,
                )
            if process.poll() is not None:
                raise BenchFailed(f"the fake nodes ended: {process.communicate()[1]}")
            yield
        finally:
            process.send_signal(signal.SIGINT)
            print(process.communicate()[1].strip(), file=sys.stderr)

    def _run(self, name: str, asked: Sequence[str], *, may_fail: bool = False) -> Finished:
        """``gpusize cluster run``; its workloads stay until the next section."""
        command = [*self._gpusize("run"), "-o", str(self.folder / name), *asked]
        # Workloads that never become ready are a measured no.
        shell = ["sh", "-c", '"$@"; code=$?; [ $code -le 1 ]', "sh", *command] if may_fail else command
        return run_measured(shell, timeout_s=3600)

    def _clean(self, folder: Path) -> None:
        subprocess.run(
            [*self._gpusize("clean"), "-o", str(folder), "--force", "--timeout", "10m"], cwd=ROOT, check=True
        )

    def _gpusize(self, command: str) -> list[str]:
        os.environ["KUBECONFIG"] = str(self.plane.kubeconfig())
        return [sys.executable, "-m", "gpusize", "cluster", command]

    def _document(self, name: str) -> dict[str, Any]:
        command = [*self._gpusize("report"), "-o", str(self.folder / name), "--json"]
        said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        found: dict[str, Any] = json.loads(said)
        return found

    def _phase(self, name: str, phase: str) -> pl.DataFrame:
        phases = pl.read_parquet(self.folder / name / "phases.parquet")
        return phases.filter(pl.col("phase") == phase)

    @staticmethod
    def _drawn(phases: pl.DataFrame, delays: Delays) -> NDArray[np.float64]:
        return np.array([delays.start_ns(f"default/{name}") / 1e9 for name in phases["workload"]])

    def _logged(self, workloads: Sequence[str]) -> NDArray[np.float64]:
        """From binding to start by the API server's audit log."""
        bound, begun = (
            {
                event["objectRef"]["name"]: datetime.fromisoformat(event["stageTimestamp"]).timestamp()
                for event in reversed(self.plane.audit("pods", verb, subresource))
                if event["responseStatus"]["code"] < httpx.codes.BAD_REQUEST
            }
            for verb, subresource in (("create", "binding"), ("patch", "status"))
        )
        return np.array([begun[each] - bound[each] for each in workloads])

    def _api_seconds(self, name: str, workloads: Sequence[str]) -> NDArray[np.float64]:
        """From binding to start by the times in the objects: whole seconds."""
        stamps = pl.read_parquet(self.folder / name / "stamps" / "*.parquet").filter(pl.col("kind") == "Pod")
        ends = [("scheduled", "condition PodScheduled"), ("started", "containerStatuses.startedAt")]
        first, last = (
            dict(
                stamps.filter(pl.col("moment") == moment, pl.col("source") == source)
                .select("name", "at_ns")
                .iter_rows()
            )
            for moment, source in ends
        )
        return np.array([(last[each] - first[each]) / 1e9 for each in workloads])


def _difference(drawn: NDArray[np.float64], measured: NDArray[np.float64], share: float) -> Interval:
    """Measured less drawn percentile; the interval by drawing pods again, each with both its values."""
    rng = np.random.default_rng(1)
    picks = rng.integers(0, len(drawn), (RESAMPLES, len(drawn)))
    errors = np.quantile(measured[picks], share, axis=1) - np.quantile(drawn[picks], share, axis=1)
    value = float(np.quantile(measured, share) - np.quantile(drawn, share))
    return Interval(value, float(np.quantile(errors, 0.025)), float(np.quantile(errors, 0.975)))


def _half(phases: pl.DataFrame) -> float:
    half = ((phases["hi_ns"] - phases["lo_ns"]) / 2e9).median()
    assert isinstance(half, float)
    return half


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.scheduler", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(SECTIONS), metavar=",".join(SECTIONS))
    parser.add_argument("--pods", type=int, default=400, help="of truth; censored has twice as many")
    parser.add_argument("--workloads", type=int, default=2000, help="of the seed's first command; half of it gangs")
    parser.add_argument("--folder", type=Path, help="where the tests' folders stay, to be looked at")
    parser.add_argument("--record", action="store_true", help="append to benches/RESULTS.md")
    options = parser.parse_args(arguments)
    given = sys.argv[1:] if arguments is None else arguments
    options.command = " ".join(["python -m benches.scheduler", *given])
    return options


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BenchFailed, httpx.HTTPError) as failed:
        sys.exit(f"benches.scheduler: {failed}")
