"""The twin's fit by a server's own metrics, in real time: a simulated cluster that streams nothing."""

from __future__ import annotations

import json

import pytest

import gpusize
from gpusize.analysis.slo import Slo
from gpusize.estimate.twin.batching_model import fit_service, streamed
from gpusize.estimate.twin.server_figures import served_limit
from gpusize.estimate.twin.visit_data import Objective, observe
from gpusize.observe.metrics import server_metrics

CLUSTER = {
    "gpus": 1,
    "max_batch": 4,
    "iteration_base_s": 0.010,
    "iteration_per_sequence_s": 0.002,
    "prefill_per_token_s": 0.0001,
    "output_tokens": {"uniform": {"min_tokens": 10, "max_tokens": 20}},
}
OBJECTIVES = [Objective.of(Slo.parse("p95 runtime <= 2s"))]


@pytest.mark.timeout(120)
def test_limit_and_costs_are_those_of_the_cluster(tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("\n".join(json.dumps({"prompt": "word " * n}) for n in (20, 60, 150)))
    with gpusize.SimulatedCluster(CLUSTER) as cluster:
        facts = [{"url": cluster.url, "api": "openai-chat", "simulated": {}}]
        metrics, _ = server_metrics(facts, interval_s=0.1)
        result = gpusize.run(
            gpusize.Target(f"{cluster.url}/v1/chat/completions", model="m", gpus=1, stream=False),
            prompts,
            gpusize.Load(concurrencies=(1, 2, 8), duration_s=2.5),
            out=tmp_path / "runs",
            observers=[metrics],
        )
    visits = [visit for each in result.levels for visit in observe(each, OBJECTIVES)]
    assert not streamed(visits)
    assert served_limit([visit.served for visit in visits]) == (4, False)
    found = fit_service(visits)
    assert found is not None
    assert found.max_batch == 4
    # A machine that is late makes iterations longer, never shorter.
    took = found.base_s + 4 * found.per_sequence_s
    assert 0.9 * 0.018 < took < 2 * 0.018
