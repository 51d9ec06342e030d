"""Static batches on a real Triton: its dynamic batcher is seen in the records, and an answer rests on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gpusize
from gpusize.analysis.slo import Slo
from gpusize.estimate.twin.static_batch_model import fit_static
from gpusize.estimate.twin.visit_data import Objective, Observed, observe
from tests.peers.inferences import KserveServer
from tests.peers.sizing import Gpusize
from tests.servers.pytriton import PyTriton

MAX_BATCH = 8
"""Of the model ``batched``, which takes 50 ms for a batch, whatever it holds."""
STEP_S = 0.050
SLO = Slo.parse("p95 runtime <= 275ms")
"""Four batches take some 240 ms, five 300."""
MOST_RUNS = 4
"""Of a measurement that neighbours of the machine disturbed there is no answer, as its generator was late; one without
is needed."""


@pytest.fixture(scope="module")
def run(triton: PyTriton, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("batches")
    server = KserveServer(triton.http_port, triton.grpc_port)
    # 32 in flight are four batches, just what the SLO allows: one level must be surely beyond it.
    load = ("--input", "random", "--concurrencies", "1,4,8,16,32,64", "--duration", "3s", "--gpus", 1)
    path = out
    for _ in range(MOST_RUNS):
        done = Gpusize(out).run(*server.target("kserve", "batched"), *load, "--out", out)
        assert done.code == 0, done.err
        path = Path(done.document["path"])
        found = fit_static(visits(path))
        if found is not None and found.max_batch is not None and _answer(path)["gpus"] is not None:
            break
    return path


def visits(run: Path) -> list[Observed]:
    return [visit for level in gpusize.open_run(run).levels for visit in observe(level, [Objective.of(SLO)])]


def _answer(run: Path) -> dict[str, Any]:
    [found] = gpusize.open_run(run).estimates(200, [SLO], "twin")
    return dict(found.to_json())


def test_batches_of_the_dynamic_batcher_are_seen(run: Path) -> None:
    found = fit_static(visits(run))
    assert found is not None
    assert found.max_batch == MAX_BATCH
    assert found.whole is not None
    # A batch costs its step and what Triton and the way there add; another member next to nothing.
    assert STEP_S < found.whole[0] + found.base_s + found.per_sequence_s < 2 * STEP_S
    assert found.whole[1] < STEP_S


def test_the_answer_rests_on_them_and_carries_what_was_measured(run: Path) -> None:
    told = _answer(run)
    assert told["details"]["model"] == "static"
    # Batches of 8 make the times rise in steps: 32 in flight are carried, and 33 are not, though 64 were measured next.
    assert told["gpus"] == 7
    # Least loaded and without pauses each of many replicas carries about what the measured one did.
    assert 200 / told["gpus_raw"] == pytest.approx(told["capacity_concurrency"], rel=0.4)
