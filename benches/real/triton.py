"""A real Triton with one to four instances of a model, which take requests from one queue."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benches.lib.context import Context, say
from benches.lib.host import CpuTimes
from benches.lib.peers import peer_program
from benches.lib.procs import BenchFailed
from benches.real.judge import Judged, judged, tell
from benches.real.levels import Measured, Workload, measured
from benches.real.question import Asked
from tests.servers.child import ChildFailed
from tests.servers.pytriton import PyTriton

__all__ = ["triton"]

INSTANCES = (1, 2, 3, 4)
IN_FLIGHT = (1, 2, 4, 8, 12, 16, 24, 36, 64)
LEVEL_S, ROUNDS = 4, 2
QUESTIONS = 5
"""Of each workload."""
USERS = (6, 12, 20, 32)
PAUSING = (20, 40, 60, 100)
RATES = (30.0, 50.0, 80.0, 110.0)

WORKLOADS = {
    "sleep": Workload("equal times", (), "runtime", tuple(map(Asked, USERS)), "shared"),
    "varied": Workload("varied times", (), "runtime", tuple(map(Asked, USERS)), "shared"),
    "steps": Workload("batches", (), "runtime", tuple(Asked(n, think_s=0.5) for n in PAUSING), "shared"),
    "drawn": Workload("varied times at a rate", (), "runtime", tuple(Asked(rate, True) for rate in RATES), "shared"),
}
"""By model. A batch takes longer the more is in it; its users pause."""
SAME = {"drawn": "varied"}
"""Models under another name here."""


def triton(ctx: Context) -> None:
    """Five questions on each workload, told from one instance and held against one to four."""
    before, folder = CpuTimes.now(), ctx.fresh_dir("triton")
    answered: list[Judged] = []
    for number, (name, workload) in enumerate(list(WORKLOADS.items())[: ctx.size(len(WORKLOADS), 1)]):
        place = folder / name
        place.mkdir()
        found = _measured(ctx, place, SAME.get(name, name), workload)
        answered += judged(workload, found, QUESTIONS, seed=number)
        say(f"triton: {workload.name}: {len(answered)} questions so far")
    note = (
        f"{ROUNDS} rounds. Shares are of the raw records, without the first quarter of a level of {LEVEL_S} s. The "
        "instances are processes that sleep for as long as a request takes, so they do not share a core; Triton gives "
        f"the next request to one that is idle. Asked of the runs on one instance, {LEVEL_S} s each at "
        f"{', '.join(map(str, IN_FLIGHT))} in flight."
    )
    tell(ctx, "triton", answered, note, before)


def _measured(ctx: Context, folder: Path, model: str, workload: Workload) -> Measured:
    names = {count: f"{model}_{count}" for count in INSTANCES}
    python, only = Path(peer_program("triton")), tuple(names.values())
    try:
        with PyTriton(python, folder, instances=INSTANCES, only=only) as server:
            of = {count: _of(workload, server.url, name) for count, name in names.items()}
            level_s, rounds = ctx.size(LEVEL_S, 2), ctx.size(ROUNDS, 1)
            return measured(of, IN_FLIGHT, level_s, rounds, folder, ctx.client_core)
    except ChildFailed as error:
        raise BenchFailed(f"Triton did not start: {error}") from error


def _of(workload: Workload, url: str, model: str) -> Workload:
    words = ("--url", url, "--api", "kserve", "--model", model, "--input", "random")
    return replace(workload, words=(*words, *workload.words))
