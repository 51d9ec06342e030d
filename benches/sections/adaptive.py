"""The search in real time: ``gpusize run`` against the simulated cluster over HTTP, its count against virtual time's.

Users are chosen so that the need lies in the middle between two whole numbers of replicas: half a replica more or less
of error gives another count.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benches.lib.bars import Bar
from benches.lib.cluster import pinned_cluster
from benches.lib.context import Context, say
from benches.lib.host import CpuTimes
from benches.lib.procs import BenchFailed, pinned, run_measured
from benches.lib.stats import Interval, plain
from gpusize.analysis.slo import Slo
from gpusize.estimate.truth import simulate_closed, true_gpus
from gpusize.result import open_run

__all__ = ["SETTINGS", "Setting", "adaptive", "asked_users"]

PROMPT_TOKENS = 8
PROMPT = "How many GPUs does it take, then"
"""As many tokens, of four characters each."""
BETWEEN = (0.3, 0.7)
LONG = 60_000
"""Requests of the virtual runs that tell the capacity."""
LIMIT_S = 900


@dataclass(frozen=True)
class Setting:
    """A cluster of one replica, an SLO, and how many replicas the users are to need."""

    name: str
    cluster: Mapping[str, Any]
    slo: str
    replicas: int


SETTINGS: Sequence[Setting] = (
    Setting(
        "queue",
        {
            "iteration_base_s": 0.01,
            "iteration_per_sequence_s": 0.000_5,
            "prefill_per_token_s": 0.0,
            "max_batch": 16,
            "output_tokens": {"lognormal": {"median_tokens": 20.0, "sigma": 0.3, "max_tokens": 100}},
        },
        "p95 runtime <= 1s",
        3,
    ),
    Setting(
        "batch",
        {
            "iteration_base_s": 0.006,
            "iteration_per_sequence_s": 0.000_6,
            "prefill_per_token_s": 0.000_05,
            "max_batch": 64,
            "output_tokens": {"uniform": {"min_tokens": 10, "max_tokens": 40}},
        },
        "p90 runtime <= 800ms",
        5,
    ),
    Setting(
        "first token",
        {
            "iteration_base_s": 0.012,
            "iteration_per_sequence_s": 0.000_4,
            "prefill_per_token_s": 0.000_1,
            "max_batch": 24,
            "output_tokens": {"lognormal": {"median_tokens": 16.0, "sigma": 0.4, "max_tokens": 80}},
        },
        "p95 ttft <= 250ms",
        4,
    ),
)


def adaptive(ctx: Context) -> None:
    """One search per setting; a bar on the difference of the counts."""
    rows: list[list[object]] = []
    before = CpuTimes.now()
    for setting in SETTINGS[: ctx.size(len(SETTINGS), 1)]:
        users = asked_users(setting)
        truth = true_gpus(setting.cluster, users, [Slo.parse(setting.slo)], prompt_tokens=PROMPT_TOKENS)
        search, gpus = _searched(ctx, setting, users)
        rows.append(_row(setting, users, truth, search, gpus))
        say(f"adaptive: {setting.name}: {gpus} GPUs, by virtual time {truth}")
        off = math.nan if gpus is None or truth is None else float(abs(gpus - truth))
        ctx.report.bar(Bar(f"adaptive_{setting.name.replace(' ', '_')}_gpus_off", Interval.exact(off), 0))
    note = (
        "`gpusize run --slo ... --gpus 1` without levels, budget and precision as they are by default, one replica "
        "over HTTP; the count is that of the method `twin`, the truth that of the cluster's model in virtual time. "
        "Capacity in users, with its 95 % interval. "
        f"Steal: {100 * CpuTimes.now().steal_share(before):.2f} %."
    )
    header = ["setting", "SLO", "users", "users over capacity", "capacity", "in virtual time", "GPUs", "truth",
              "requests", "levels", "ended by"]  # fmt: skip
    ctx.report.table("the search in real time", header, rows, note)


def asked_users(setting: Setting) -> int:
    """Users that need as many replicas, half of the last one."""
    users = round((setting.replicas - 0.5) * capacity(setting))
    part = (users / capacity(setting)) % 1
    if not BETWEEN[0] <= part <= BETWEEN[1]:
        raise BenchFailed(f"{setting.name}: {users} users are {part:.2f} of the last replica")
    return users


def capacity(setting: Setting) -> float:
    """Users that one replica carries, in virtual time."""
    low, high = 1, 2
    while _margin(setting.name, high) >= 0:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _margin(setting.name, middle) >= 0 else (low, middle)
    inside, outside = _margin(setting.name, low), _margin(setting.name, high)
    return low * high / (high - inside / (inside - outside))


@cache
def _margin(name: str, users: int) -> float:
    setting = next(each for each in SETTINGS if each.name == name)
    slo = Slo.parse(setting.slo)
    config = {**setting.cluster, "gpus": 1}
    records = simulate_closed(config, users, requests=LONG, prompt_tokens=PROMPT_TOKENS)
    return slo.attainment(records.lazy())[0] - slo.share


def _searched(ctx: Context, setting: Setting, users: int) -> tuple[dict[str, Any], int | None]:
    """What the command line found, and the count of the method ``twin``."""
    folder = ctx.fresh_dir("adaptive")
    with pinned_cluster(ctx.server_core, **setting.cluster, gpus=1) as cluster:
        words = [sys.executable, "-m", "gpusize", "run", "--url", f"{cluster.url}/v1", "--model", "simulated"]
        words += ["--prompt", PROMPT, "--gpus", "1", "--users", str(users), "--slo", setting.slo]
        words += ["--metrics-url", "none", "--no-gpu-sample", "--no-plots", "--quiet", "--json"]
        done = run_measured(pinned([*words, "--out", str(folder)], ctx.client_core), timeout_s=LIMIT_S)
    document = json.loads(done.stdout)
    answer = open_run(Path(document["path"])).estimate(method="twin")
    found: dict[str, Any] = document["search"]
    return found, answer.gpus


def _row(setting: Setting, users: int, truth: int | None, search: Mapping[str, Any], gpus: int | None) -> list[object]:
    true = capacity(setting)
    return [
        setting.name,
        f"`{setting.slo}`",
        users,
        plain(users / true),
        f"{_users(search['capacity'])} ({_users(search['low'])} to {_users(search['high'])})",
        plain(true),
        gpus,
        truth,
        search["requests"],
        search["levels"],
        search["reason"],
    ]


def _users(value: float | None) -> str:
    return "open" if value is None else plain(value)
