"""What ``gpusize run`` does without a target: a small simulated cluster, prompts, a sweep, and the true answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusize.workload.dataset import Dataset

if TYPE_CHECKING:
    from collections.abc import Mapping


__all__ = ["CLUSTER", "OPTIONS", "prompts"]

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
