"""A real Triton with one to four instances of a model, which take requests from one queue."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benches.lib.context import Context, say
from benches.lib.host import CpuTimes
from benches.lib.peers import peer_program
from benches.lib.procs import BenchFailed
from benches.real.judge import Judged, ask, tell
from benches.real.levels import Workload, measured, seconds, sweep
from benches.real.question import Asked, draw
from tests.servers.child import ChildFailed
from tests.servers.pytriton import PyTriton

__all__ = ["triton"]

INSTANCES = (1, 2, 3, 4)
IN_FLIGHT = (1, 2, 4, 8, 12, 16, 24, 36)
LEVEL_S = 8
QUESTIONS = 5
"""Of each workload."""
USERS = (6, 12, 20, 32)
PAUSING = (20, 40, 60, 100)
RATES = (30.0, 50.0, 80.0, 110.0)

WORKLOADS = {
    "sleep": Workload("equal times", (), "runtime", tuple(map(Asked, USERS))),
    "varied": Workload("varied times", (), "runtime", tuple(map(Asked, USERS))),
    "steps": Workload("batches", (), "runtime", tuple(Asked(n, think_s=0.5) for n in PAUSING)),
    "drawn": Workload("varied times at a rate", (), "runtime", tuple(Asked(rate, per_second=True) for rate in RATES)),
}
"""By model. A batch takes longer the more is in it; its users pause."""
SAME = {"drawn": "varied"}
"""Models under another name here."""


def triton(ctx: Context) -> None:
    """Five questions on each workload, told from one instance and held against one to four."""
    before, folder = CpuTimes.now(), ctx.fresh_dir("triton")
    judged: list[Judged] = []
    for number, (name, workload) in enumerate(list(WORKLOADS.items())[: ctx.size(len(WORKLOADS), 1)]):
        place = folder / name
        place.mkdir()
        judged += _judged(ctx, place, SAME.get(name, name), workload, number)
        say(f"triton: {workload.name}: {len(judged)} questions so far")
    note = (
        f"Shares are of the raw records, without the first quarter of a level of {LEVEL_S} s. Instances of a model are "
        "processes that sleep for as long as a request takes, so they do not share a core; Triton gives the next "
        f"request to one that is idle. Asked of one run on one instance, {LEVEL_S} s each at "
        f"{', '.join(map(str, IN_FLIGHT))} in flight."
    )
    tell(ctx, "triton", judged, note, before)


def _judged(ctx: Context, folder: Path, model: str, workload: Workload, seed: int) -> list[Judged]:
    level_s, names = ctx.size(LEVEL_S, 3), {count: f"{model}_{count}" for count in INSTANCES}
    try:
        with PyTriton(Path(peer_program("triton")), folder, instances=INSTANCES, only=tuple(names.values())) as server:
            of = {count: _of(workload, server.url, name) for count, name in names.items()}
            run = sweep(server.url, of[1], IN_FLIGHT, level_s, folder / "one", ctx.client_core)
            times: dict[int, dict[Asked, np.ndarray]] = {}
            for count, one in of.items():
                times |= measured({count: server.url}, one, level_s, folder / "more", ctx.client_core)
    except ChildFailed as error:
        raise BenchFailed(f"Triton did not start: {error}") from error
    alone = seconds(run / "levels" / "0000" / "records", workload.metric)
    drawn = draw(workload.name, times, alone, workload.metric, QUESTIONS, seed)
    return [Judged(question, truth, ask(run, question)) for question, truth in drawn]


def _of(workload: Workload, url: str, model: str) -> Workload:
    words = ("--api", "kserve", "--model", model, "--input", "random")
    return Workload(workload.name, (*words, *workload.words), workload.metric, workload.loads)
