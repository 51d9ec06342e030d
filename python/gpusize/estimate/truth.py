"""What a simulated cluster would really do and need: its model in virtual time, judged by the same SLOs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.metrics import METRICS
from gpusize.engine.session import core
from gpusize.targets.simulated.config import config_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from gpusize.analysis.slo import Slo

__all__ = ["Truth", "simulate_closed", "true_gpus", "truth_of"]

MAX_GPUS: Final = 100_000
MOST_USERS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Truth:
    """What the simulated cluster would really need.

    ``gpus`` is None when no number meets the SLO. ``capacity_concurrency`` is what the tested GPUs really carry.
    ``note`` says how the truth was found and goes on after a comma: "by its model in virtual time".
    """

    gpus: int | None
    capacity_concurrency: float | None = None
    note: str = ""


def simulate_closed(
    config: Mapping[str, Any],
    users: int,
    *,
    requests: int,
    prompt_tokens: int = 100,
    load: Mapping[str, Any] | None = None,
) -> pl.DataFrame:
    """What a closed loop of ``users`` would measure on this cluster: records in virtual time, warm-up left out.

    Args:
        config: the cluster's configuration.
        users: requests in flight at all times.
        requests: requests that are counted.
        prompt_tokens: length of every prompt.
        load: further fields of the load, such as ``output_tokens``.

    Returns:
        The columns of records that metrics and SLOs need, one row per request.
    """
    import polars as pl

    from gpusize.records.schema import OUTCOMES, outcome_dtype

    asked = {
        "arrivals": {"closed": {"users": users}},
        "requests": requests,
        "warmup_requests": 2 * users,
        "prompt_tokens": {"fixed": {"tokens": prompt_tokens}},
        **(load or {}),
    }
    stream, _summary = core().simulate(config_text(config), json.dumps(asked))
    rows = pl.DataFrame(stream).filter(~pl.col("warmup"))
    names = pl.Series(OUTCOMES, dtype=outcome_dtype())
    return rows.with_columns(
        sent_ns=pl.col("due_ns"),
        fired_ns=pl.col("due_ns"),
        last_token_ns=pl.col("end_ns"),
        events=pl.col("tokens_out"),
        tokens_in=pl.col("prompt_tokens"),
        outcome=names.gather(rows["outcome"]),
    )


def true_gpus(
    config: Mapping[str, Any],
    users: int,
    slos: Sequence[Slo],
    *,
    prompt_tokens: int = 100,
    load: Mapping[str, Any] | None = None,
) -> int | None:
    """The fewest GPUs of this kind with which ``users`` requests in flight keep every SLO, by virtual time.

    Doubling, then bisection: more GPUs never make a closed loop slower in this model. None when no number does.
    """

    def enough(gpus: int) -> bool:
        # So many that the share beyond a p99 is counted in dozens; each user is seen several times.
        requests = max(4000, 20 * users)
        records = simulate_closed(
            # All of them, from the start: the question is how many are needed.
            {**config, "gpus": gpus, "replicas": []},
            users,
            requests=requests,
            prompt_tokens=prompt_tokens,
            load=load,
        )
        return all(slo.met(records) for slo in slos)

    high = 1
    while not enough(high):
        # With a GPU for each user nobody waits for anybody: more cannot help.
        if high >= min(users, MAX_GPUS):
            return None
        high = min(2 * high, users, MAX_GPUS)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def truth_of(
    config: Mapping[str, Any], users: float, slos: Sequence[Slo], records: pl.LazyFrame, max_tokens: int | None
) -> Truth | None:
    """The true answer to the question that was put to a run on a simulated cluster.

    Prompts are as long as the measured ones were on average, answers as the cluster is configured.

    Args:
        config: the cluster's configuration.
        users: requests in flight that are asked for.
        slos: what they have to keep.
        records: what was measured.
        max_tokens: what the requests allowed, None for no bound.

    Returns:
        None where an SLO is on something that virtual time does not have, such as connections, and for more than
        ``MOST_USERS``, whose whole cluster takes minutes.
    """
    if users > MOST_USERS:
        return None
    simulated = set(simulate_closed(config, 1, requests=1).columns)
    if any(not simulated.issuperset(slo.columns) or _of_calls(slo) for slo in slos):
        return None
    prompt_tokens = max(1, round(_mean_tokens_in(records)))
    gpus = true_gpus(_limited(config, max_tokens), max(1, round(users)), slos, prompt_tokens=prompt_tokens)
    return Truth(gpus, note=f"by its model in virtual time, with prompts of {prompt_tokens} tokens")


def _of_calls(slo: Slo) -> bool:
    """Whether it is on the calls inside a request: a simulated one makes none."""
    return slo.kind != "share" and METRICS[slo.metric].table == "calls"


def _mean_tokens_in(records: pl.LazyFrame) -> float:
    import polars as pl

    mean = records.select(pl.col("tokens_in").mean()).collect(engine="streaming").item()
    return 1.0 if mean is None else float(mean)


def _limited(config: Mapping[str, Any], max_tokens: int | None) -> dict[str, Any]:
    """The configuration with its answers cut to what the requests allowed."""
    if max_tokens is None or "output_tokens" not in config:
        return dict(config)
    [(kind, length)] = config["output_tokens"].items()
    name = "tokens" if kind == "fixed" else "max_tokens"
    cut = {**length, name: min(length[name], max_tokens)}
    if kind == "uniform":
        cut["min_tokens"] = min(cut["min_tokens"], max_tokens)
    return {**config, "output_tokens": {kind: cut}}
