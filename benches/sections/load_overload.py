"""Twice what a simulated cluster can serve: what is answered, waits and is shed, against the model in virtual time.

The model's client takes no time, so there are more connections than the GPU has places: the GPU's own queue hides how
long ours takes from an answer to the next request.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.lib.bars import Bar
from benches.lib.cluster import pinned_cluster
from benches.lib.context import Context, say
from benches.lib.host import CpuTimes
from benches.lib.procs import BenchFailed, pinned, run_measured
from benches.lib.stats import plain
from benches.lib.turns import whole_range
from gpusize.targets.simulated.open_load import OpenTruth, simulate_open

__all__ = ["OverloadFound", "compare", "overload"]

CLUSTER: dict[str, Any] = {
    "gpus": 1,
    "max_batch": 16,
    "iteration_base_s": 0.01,
    "iteration_per_sequence_s": 0.000_5,
    "prefill_per_token_s": 0.000_02,
}
PROMPT = "How many GPUs does it take? " * 4
OUTPUT_TOKENS = (4, 12)
"""Shortest and longest answer; each request's own is drawn, and asked for with ``ignore_eos``."""
ROWS = 997
CONNECTIONS = 32
QUEUES = {"queue": 60, "shed": 0}
SECONDS, SECONDS_QUICK = 12, 6
SEEDS = (1, 2, 3)
TIMES = 2.0
BOUND = 0.03

# In a process of its own, so that Polars is no neighbour of the next measurement.
_RECORDS = """
import json, sys, polars as pl
from pathlib import Path
from gpusize.records.schema import OUTCOMES
(meta,) = Path(sys.argv[1]).glob('*/levels/*/level.json')
start = json.loads(meta.read_text())['start_ns']
rows = pl.read_parquet(meta.parent / 'records' / '*.parquet').sort('seq')
print(json.dumps({
    'due_ns': (rows['due_ns'] - start).to_list(), 'row': rows['row'].to_list(),
    'sent_ns': (rows['sent_ns'] - start).to_list(), 'end_ns': (rows['end_ns'] - start).to_list(),
    'outcome': [OUTCOMES[k] for k in rows['outcome']], 'tokens_in': rows['tokens_in'].to_list(),
    'tokens_out': rows['tokens_out'].to_list()}))
"""


@dataclass(frozen=True)
class OverloadFound:
    """Of a run or of the model: answered per second of the window, seconds from due to sent (p50), requests shed."""

    achieved_per_s: float
    waiting_s: float
    shed: int


def overload(ctx: Context) -> None:
    """Rounds with arrivals and lengths of their own under each policy; bars on the largest relative differences."""
    rows: list[list[object]] = []
    errors: dict[str, list[float]] = {"achieved": [], "waiting": [], "shed": []}
    before = CpuTimes.now()
    rate = TIMES * _capacity()
    for policy in QUEUES:
        for seed in SEEDS[: ctx.size(len(SEEDS), 1)]:
            due_ns, tokens = _arrivals(rate, ctx.size(SECONDS, SECONDS_QUICK), seed)
            found, truth = _round(ctx, policy, due_ns, tokens)
            for name, error in compare(found, truth).items():
                errors[name].append(error)
            rows.append([policy, seed, *_cells(found, truth)])
            say(f"overload: {policy}, seed {seed}: {found}, by the model {truth}")
    steal = CpuTimes.now().steal_share(before)
    note = (
        f"Each cell: measured / by the model. Poisson arrivals at {plain(rate)}/s for "
        f"{ctx.size(SECONDS, SECONDS_QUICK)} s, {TIMES:g} times what the cluster serves, handed over as recorded "
        f"arrivals; answers of {OUTPUT_TOKENS[0]} to {OUTPUT_TOKENS[1]} tokens; {CONNECTIONS} connections for "
        f"{CLUSTER['max_batch']} places. Under `queue` {QUEUES['queue']} requests may wait, under `shed` none, so that "
        f"their waiting is no figure. Shed and answered always made what was offered. Steal: {100 * steal:.2f} %."
    )
    header = ["policy", "seed", "answered/s", "waiting p50, s", "shed"]
    ctx.report.table("offered twice what can be served", header, rows, note)
    for name, found_errors in errors.items():
        ctx.report.bar(Bar(f"overload_{name}_error", whole_range(found_errors), BOUND))


def compare(found: OverloadFound, truth: OverloadFound) -> dict[str, float]:
    """Relative differences; waiting only where the model has some."""
    pairs = {
        "achieved": (found.achieved_per_s, truth.achieved_per_s),
        "waiting": (found.waiting_s, truth.waiting_s),
        "shed": (found.shed, truth.shed),
    }
    return {name: abs(ours / model - 1) for name, (ours, model) in pairs.items() if model}


def _capacity() -> float:
    """Requests per second that the cluster answers when it never lacks any: by the model, all of them due at once."""
    count = 2_000
    tokens = _arrivals(1.0, count, 0)[1]
    truth = simulate_open(CLUSTER, [0] * len(tokens), prompt_tokens=_prompt_tokens(), output_tokens=tokens)
    return len(tokens) / truth.runtime_s["max"]


def _prompt_tokens() -> int:
    """As the cluster counts them: four characters each, rounded up."""
    return -(-len(PROMPT) // 4)


def _arrivals(rate: float, seconds: int, seed: int) -> tuple[list[int], list[int]]:
    """Due times in ns, at whole microseconds, and the tokens of each answer: row k modulo ROWS."""
    draws = random.Random(seed)
    lengths = [draws.randint(*OUTPUT_TOKENS) for _ in range(ROWS)]
    due, at_s = [0], draws.expovariate(rate)
    while at_s < seconds:
        due.append(round(at_s * 1e6) * 1000)
        at_s += draws.expovariate(rate)
    return due, [lengths[k % ROWS] for k in range(len(due))]


def _round(
    ctx: Context, policy: str, due_ns: Sequence[int], tokens: Sequence[int]
) -> tuple[OverloadFound, OverloadFound]:
    folder = ctx.fresh_dir("overload")
    said = _run(ctx, policy, folder, due_ns, tokens)
    if said["due_ns"] != list(due_ns) or said["row"] != [k % ROWS for k in range(len(due_ns))]:
        raise BenchFailed("what was due, or its row, is not what was handed over")
    outcomes = set(said["outcome"])
    if not outcomes <= {"ok", "shed"}:
        raise BenchFailed(f"requests ended otherwise than answered or shed: {sorted(outcomes)}")
    ok = [k for k, outcome in enumerate(said["outcome"]) if outcome == "ok"]
    prompt = {said["tokens_in"][k] for k in ok}
    if len(prompt) != 1 or any(said["tokens_out"][k] != tokens[k] for k in ok):
        raise BenchFailed(f"answers have other lengths than asked for; prompts of {prompt} tokens")
    window_s = due_ns[-1] / 1e9
    waits = sorted((said["sent_ns"][k] - said["due_ns"][k]) / 1e9 for k in ok)
    middle = (waits[(len(waits) - 1) // 2] + waits[len(waits) // 2]) / 2
    answered = sum(said["end_ns"][k] <= due_ns[-1] for k in ok) / window_s
    found = OverloadFound(answered, middle, len(due_ns) - len(ok))
    queue = QUEUES[policy]
    truth = simulate_open(
        CLUSTER, due_ns, connections=CONNECTIONS, queue=queue, prompt_tokens=prompt.pop(), output_tokens=list(tokens)
    )
    return found, _of_model(truth)


def _of_model(truth: OpenTruth) -> OverloadFound:
    return OverloadFound(truth.achieved_rate, truth.waiting_s["p50"], truth.shed)


def _run(ctx: Context, policy: str, folder: Path, due_ns: Sequence[int], tokens: Sequence[int]) -> dict[str, list[Any]]:
    """The command line against a fresh cluster; its records, times in ns after the level's start."""
    trace, dataset = folder / "arrivals.csv", folder / "rows.jsonl"
    trace.write_text("due_s\n" + "".join(f"{due / 1e9:.6f}\n" for due in due_ns), encoding="utf-8")
    lines = [json.dumps({"prompt": PROMPT, "output_tokens": tokens[k]}) for k in range(min(ROWS, len(tokens)))]
    dataset.write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = [sys.executable, "-m", "gpusize", "run", "--model", "simulated", "--dataset", str(dataset)]
    words += ["--dataset-key", "prompt", "--output-length", "exact", "--api", "openai-completions", "--no-stream"]
    words += ["--arrivals", str(trace), "--overload", policy, "--connections", str(CONNECTIONS), "--workers", "1"]
    words += ["--queue", str(QUEUES[policy])] if policy == "queue" else []
    words += [
        "--max-error-rate",
        "1",
        "--warmup",
        "0s",
        "--metrics-url",
        "none",
        "--no-gpu-sample",
        "--no-plots",
        "--quiet",
        "--json",
    ]
    with pinned_cluster(ctx.server_core, **CLUSTER) as cluster:
        command = [*words, "--url", f"{cluster.url}/v1", "--out", str(folder / "runs")]
        run_measured(pinned(command, ctx.client_core), timeout_s=300)
    said: dict[str, list[Any]] = json.loads(run_measured([sys.executable, "-c", _RECORDS, str(folder / "runs")]).stdout)
    return said


def _cells(found: OverloadFound, truth: OverloadFound) -> list[object]:
    return [
        f"{plain(found.achieved_per_s)} / {plain(truth.achieved_per_s)}",
        f"{plain(found.waiting_s)} / {plain(truth.waiting_s)}" if truth.waiting_s else "none",
        f"{found.shed} / {truth.shed}",
    ]
