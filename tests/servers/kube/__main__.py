"""A control plane by hand: prints where its kubeconfig is, and runs until Ctrl-C.

python -m tests.servers.kube [--folder FOLDER] [--scheduler NAME ...] [--no-controllers] [--runai] [--kueue]
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from scripts.peers import peer_folder, peer_pieces
from tests.servers.kube.control_plane import DEFAULT_SCHEDULER, ControlPlane
from tests.servers.kube.crds import JOBS, RUNAI, install
from tests.servers.kube.kueue import Kueue
from tests.servers.kube.provisioner import Provisioner
from tests.servers.kube.runai_operator import RunaiOperator


def main() -> int:
    """0 after Ctrl-C; 3 when the peer is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers.kube", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, help="for its state and its logs (default: a temporary one)")
    parser.add_argument("--scheduler", action="append", metavar="NAME", help=f"(default: {DEFAULT_SCHEDULER})")
    parser.add_argument("--no-controllers", action="store_true", help="start no controller manager")
    parser.add_argument(
        "--runai", action="store_true", help="Run:ai's kinds, with doubles of its operator and of a provisioner"
    )
    parser.add_argument("--kueue", action="store_true", help="Kueue, for Jobs of Kubernetes")
    asked = parser.parse_args()
    peer, kueue = peer_folder("kube"), peer_folder("kueue")
    for name, folder in (("kube", peer), *((("kueue", kueue),) if asked.kueue else ())):
        if "program" not in peer_pieces(folder):
            print(f"the peer {name} is not there: make peers PEERS={name}", file=sys.stderr)
            return 3
    # Blocked from here on, so that none is missed between the start and the wait.
    signals = {signal.SIGINT, signal.SIGTERM}
    with tempfile.TemporaryDirectory(prefix="kube-") as fresh:
        folder = asked.folder or Path(fresh)
        folder.mkdir(parents=True, exist_ok=True)
        schedulers = asked.scheduler or [DEFAULT_SCHEDULER]
        plane = ControlPlane(peer / "bin" / "kube", folder, schedulers=schedulers, controllers=not asked.no_controllers)
        with ExitStack() as running:
            running.enter_context(plane)
            if asked.kueue:
                running.enter_context(Kueue(kueue, plane))
            if asked.runai:
                with plane.client() as client:
                    install(client, RUNAI, JOBS)
                running.enter_context(RunaiOperator(plane.client))
                running.enter_context(Provisioner(plane.client))
            print(f"export KUBECONFIG={plane.kubeconfig()}", flush=True)
            signal.pthread_sigmask(signal.SIG_BLOCK, signals)
            signal.sigwait(signals)
    return 0


if __name__ == "__main__":
    sys.exit(main())
