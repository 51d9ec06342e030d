"""What ``gpusize run`` does without a target: a small simulated cluster, prompts, a sweep, and the true answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusize.dataset import Dataset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpusize.report.source import Truth
    from gpusize.result import Result

__all__ = ["CLUSTER", "OPTIONS", "prompts", "truth_of"]

CLUSTER: Final[Mapping[str, Any]] = {
    "model": "simulated",
    "gpus": 2,
    "iteration_base_s": 0.004,
    "iteration_per_sequence_s": 0.000_15,
    "prefill_per_token_s": 0.000_02,
    "max_batch": 32,
    "output_tokens": {"lognormal": {"median_tokens": 64.0, "sigma": 0.25, "max_tokens": 512}},
    "seed": 1,
}
"""The cluster: two GPUs with a batch of 32 each, answers of some 64 tokens in about half a second."""

OPTIONS: Final[Mapping[str, Any]] = {
    "concurrencies": [4, 8, 16, 32, 48, 64, 80, 96],
    "duration": "6s",
    "users": 100,
    "slo": ["p95 runtime <= 1.2s"],
}
"""The sweep and the question, where the user names none; options as ``--config`` takes them."""

_SENTENCE: Final = "Explain to a newcomer how many requests a GPU can serve at once and what decides it. "


def prompts() -> Dataset:
    """Prompts of some 20 to 250 tokens."""
    return Dataset.from_rows([{"prompt": _SENTENCE * k} for k in range(1, 13)], source="demo prompts")


def truth_of(result: Result) -> Truth | None:
    """The true answer to a result's question, when it was measured on a simulated cluster; else None.

    Prompts are as long as the measured ones were on average, answers as the cluster is configured.
    """
    from gpusize.report.source import Truth
    from gpusize.truth import true_gpus

    targets = result.meta.get("targets") or [{}]
    config = targets[0].get("simulated")
    if config is None or not result.can_estimate:
        return None
    prompt_tokens = max(1, round(_mean_tokens_in(result)))
    limited = _limited(config, (result.meta.get("options") or {}).get("max_tokens"))
    gpus = true_gpus(limited, round(result.users or 1), result.slos, prompt_tokens=prompt_tokens)
    note = f"by its model in virtual time, with prompts of {prompt_tokens} tokens"
    return Truth(gpus, note=note)


def _mean_tokens_in(result: Result) -> float:
    import polars as pl

    mean = result.scan().select(pl.col("tokens_in").mean()).collect(engine="streaming").item()
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
