"""How fast workloads are created: ``python -m benches.cluster_submit [--count 5000] [--rounds 15]``.

``gpusize cluster submit`` beside Kubernetes' own client in threads, in turns, against a canned API server that answers
at once. Tables go to standard output, and with ``--record`` to benches/RESULTS.md. The exit code is 1 when a bar is
short.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benches.lib.bars import Bar, exit_code
from benches.lib.context import say
from benches.lib.host import ROOT, facts
from benches.lib.procs import run_measured
from benches.lib.results import Report
from benches.lib.stats import Interval, bootstrap_median, plain
from gpusize.cluster.folder import read_facts

AT_ONCE = 32
LEAST_OVER_OFFICIAL = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure in turns, and print."""
    options = _options(arguments)
    report = Report()
    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    server = subprocess.Popen(
        [sys.executable, "-m", "benches.programs.canned_kube"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        address = server.stdout.readline().decode().strip()
        with tempfile.TemporaryDirectory() as place:
            config = _kubeconfig(Path(place), address)
            for turn in range(options.rounds):
                out = Path(place) / f"out-{turn}"
                ours.append(_ours(config, out, options.count))
                theirs.append(_theirs(config, options.count))
                say(f"turn {turn}: {ours[-1][0]:.0f}/s, official client {theirs[-1][0]:.0f}/s")
    finally:
        server.communicate()
    rows = [
        [name, bootstrap_median([rate for rate, _ in found]), bootstrap_median([cpu for _, cpu in found])]
        for name, found in (("gpusize cluster submit", ours), ("kubernetes, 32 threads", theirs))
    ]
    note = f"{options.count:,} pods, {AT_ONCE} at once, {options.rounds} turns; loading and rendering do not count."
    report.table("creations", ["client", "per second", "CPU, us each"], rows, note)
    ratios = sorted(mine[0] / official[0] for mine, official in zip(ours, theirs, strict=True))
    middle = bootstrap_median(ratios).value
    over = Interval(middle, ratios[0], ratios[-1])
    report.bar(Bar("submit_over_official", over, LEAST_OVER_OFFICIAL, at_least=True))
    say(f"fastest turn {plain(max(rate for rate, _ in ours))}/s")
    if options.record:
        report.append_to(ROOT / "benches" / "RESULTS.md", facts(), options.command)
    return exit_code(report.bars)


def _ours(config: str, out: Path, count: int) -> tuple[float, float]:
    """Creations per second, and microseconds of CPU for each."""
    how = ["-t", "pod", "-n", str(count), "-p", str(AT_ONCE), "--namespace", "default"]
    where = ["--kubeconfig", config, "-o", str(out)]
    run_measured([sys.executable, "-m", "gpusize", "cluster", "submit", *how, *where])
    (session,) = read_facts(out)["submit"]["sessions"]
    return count / session["elapsed_s"], session["cpu_s"] / count * 1e6


def _theirs(config: str, count: int) -> tuple[float, float]:
    command = [sys.executable, "-m", "benches.programs.official_kube", config, str(count), str(AT_ONCE)]
    found = json.loads(run_measured(command).stdout)
    return count / found["elapsed_s"], found["cpu_s"] / count * 1e6


def _kubeconfig(folder: Path, address: str) -> str:
    file = folder / "kubeconfig"
    content = {
        "clusters": [{"name": "c", "cluster": {"server": address}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file.write_text(json.dumps(content), encoding="utf-8")
    return str(file)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benches.cluster_submit")
    parser.add_argument("--count", type=int, default=5000, help="pods of a turn")
    parser.add_argument("--rounds", type=int, default=15, help="turns")
    parser.add_argument("--record", action="store_true", help="append to benches/RESULTS.md")
    options = parser.parse_args(given)
    options.command = " ".join(["python -m benches.cluster_submit", *given])
    return options


if __name__ == "__main__":
    sys.exit(main())
