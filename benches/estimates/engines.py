"""Draws replicas of engines: a GPU and a model that fit, the settings people give them, and how they are used.

What the parts mean stands in ``rust/bench-worlds/src/engine``. Nothing here is simulated: a draw is a pure function of
the generator that it is given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from benches.estimates.hardware import GPUS, MODELS, Gpu, Model, fits
from benches.estimates.mechanics import log_uniform
from benches.estimates.traffic import pairs_of

__all__ = ["KINDS", "Replica"]

BLOCK = 16
WATERMARK = 0.01
CHUNKED, FIRST, SPLIT = "chunked", "prompts first", "disaggregated"
KINDS = {CHUNKED: 0.6, FIRST: 0.17, SPLIT: 0.23}
"""How prompts and answers share a replica, and how often."""
_USES = {
    "chat": 0.24,
    "documents": 0.15,
    "long prompts": 0.17,
    "code": 0.1,
    "writing": 0.1,
    "chat and documents": 0.14,
    "fixed": 0.1,
}


def _one_of(rng: np.random.Generator, shares: dict[str, float]) -> str:
    return str(rng.choice(list(shares), p=list(shares.values())))


@dataclass(frozen=True)
class Replica:
    """One replica.

    Attributes:
        kind: how prompts and answers share it.
        traits: what else is special about it, for tables.
        spec: its world, as ``ForeignWorld`` takes it.
        gpus: GPUs of one.
        in_flight: requests in flight at the edge.
    """

    kind: str
    traits: tuple[str, ...]
    spec: dict[str, Any]
    gpus: int
    in_flight: float

    @classmethod
    def draw(cls, rng: np.random.Generator, kind: str, most_in_flight: float) -> Replica:
        """One of that kind, with an edge of at most so many requests in flight."""
        use = _one_of(rng, _USES)
        gpu, model, together, weight_bytes = _machine(rng)
        pairs, prefix = _prompts(rng, use)
        speculative = _speculative(rng) if rng.random() < 0.17 else None
        decoders = int(rng.integers(1, 4)) if kind == SPLIT else 1
        tokens, sequences = _limits(rng, kind, 1 + (speculative or {"tokens": 0})["tokens"])
        context = float(np.mean([prompt + output / 2 for prompt, output in pairs])) - prefix.get("common", 0)
        cache = fits(gpu, model, together, weight_bytes)
        most = min(1.4 * decoders * min(sequences, cache / context), 256 * decoders, most_in_flight)
        in_flight = log_uniform(rng, 1.5, max(3.0, most))
        tight = rng.random() < 0.3
        scarce = log_uniform(rng, 0.7, 1.4) * in_flight / decoders * context
        # An engine says how long a context may be, and has room for that.
        least = max(prompt + output for prompt, output in pairs) + prefix.get("common", 0) + 8 * BLOCK
        engine: dict[str, Any] = {
            "roof": _roof(rng, gpu, model, together, weight_bytes),
            "batched_tokens": tokens,
            "sequences": sequences,
            "cache_tokens": math.ceil(max(least, min(cache, scarce) if tight else cache)),
            "block": BLOCK,
            "watermark": WATERMARK,
            "prompts": "first" if kind == FIRST else "chunked",
            "prefix": prefix,
            "speculative": speculative,
            "split": _split(rng, decoders) if kind == SPLIT else None,
            "jitter_sigma": float(rng.choice([0.0, 0.03, 0.1, 0.25], p=[0.3, 0.3, 0.25, 0.15])),
            "speed_sigma": float(rng.choice([0.0, 0.005, 0.01], p=[0.6, 0.2, 0.2])),
        }
        spec: dict[str, Any] = {"mechanics": {"engine": engine}, "lengths": {"pairs": pairs}}
        if rng.random() < 0.2:
            # As collectors of garbage and host jobs make them.
            spec["pauses"] = {
                "every_s": log_uniform(rng, 5, 60),
                "mean_s": log_uniform(rng, 0.02, 0.2),
                "sigma": 0.5,
            }
        special = {
            "scarce cache": tight,
            "prefix": bool(prefix),
            "speculative": speculative is not None,
            "experts": model.expert_parameters > 0,
            "pauses": "pauses" in spec,
        }
        traits = (use, *(name for name, there in special.items() if there))
        gpus = together * ((engine["split"] or {"prefillers": 0})["prefillers"] + decoders)
        return cls(kind, traits, spec, gpus, in_flight)


def _machine(rng: np.random.Generator) -> tuple[Gpu, Model, int, float]:
    """A GPU, a model, how many GPUs share it, and bytes of a parameter, so that a cache of some size is left."""
    while True:
        gpu, model = GPUS[str(rng.choice(list(GPUS)))], MODELS[str(rng.choice(list(MODELS)))]
        weight_bytes = 2.0 if rng.random() < 0.7 else 1.0
        counts = [n for n in (1, 2, 4, 8) if fits(gpu, model, n, weight_bytes) >= 16_000]
        if counts:
            # The fewest that will do, or twice as many.
            return gpu, model, counts[min(len(counts) - 1, int(rng.random() < 0.2))], weight_bytes


def _roof(rng: np.random.Generator, gpu: Gpu, model: Model, together: int, weight_bytes: float) -> dict[str, Any]:
    """What is reached of the data sheet: a third to two thirds of the FLOP/s, 60 to 85 % of the bandwidth."""
    parallel = together * 0.94 ** math.log2(together)
    roof: dict[str, Any] = {
        "flops": gpu.flops * parallel * rng.uniform(0.35, 0.65),
        "bandwidth": gpu.bandwidth * parallel * rng.uniform(0.6, 0.85),
        "weight_bytes": (model.parameters - model.expert_parameters) * weight_bytes,
        "token_flops": 2 * model.active,
        "attention_flops": model.attention_flops,
        "kv_bytes": model.kv_bytes,
        # The scheduler and its launches; two sums over the GPUs in each layer.
        "overhead_s": log_uniform(rng, 0.001, 0.006) + (2 * model.layers * rng.uniform(6e-6, 15e-6)) * (together > 1),
        "sequence_s": log_uniform(rng, 3e-6, 4e-5),
    }
    if model.expert_parameters:
        experts = {"bytes": model.expert_parameters * weight_bytes, "active_share": model.expert_share}
        roof["experts"] = experts
    return roof


def _prompts(rng: np.random.Generator, use: str) -> tuple[list[tuple[int, int]], dict[str, Any]]:
    """Lengths, and what of the prompts is found in the cache; a common beginning makes all of them longer."""
    pairs = pairs_of(rng, use)
    kind = _one_of(rng, {"none": 0.6, "common": 0.18, "turns": 0.22})
    if kind == "none":
        return pairs, {}
    if kind == "common":
        common = int(log_uniform(rng, 100, 2000))
        return [(prompt + common, output) for prompt, output in pairs], {"common": common}
    low = rng.uniform(0.2, 0.6)
    turns = {"turn_share": rng.uniform(0.3, 0.8), "turn_low": low, "turn_high": rng.uniform(low, 0.97)}
    return pairs, {**turns, "evicts": bool(rng.random() < 0.5)}


def _speculative(rng: np.random.Generator) -> dict[str, Any]:
    tokens = int(rng.integers(2, 6))
    accept = {"accept": rng.uniform(0.5, 0.8), "spread": float(rng.choice([0.0, 0.1]))}
    return {"tokens": tokens, **accept, "draft_s": log_uniform(rng, 0.0005, 0.004)}


def _limits(rng: np.random.Generator, kind: str, step_tokens: int) -> tuple[int, int]:
    """Most tokens of an iteration, and most sequences (vLLM's ``max_num_batched_tokens`` and ``max_num_seqs``)."""
    choices = [2048, 4096, 8192] if kind == FIRST else [512, 1024, 2048, 4096, 8192]
    tokens = int(rng.choice(choices))
    sequences = int(rng.choice([16, 32, 64, 128, 256], p=[0.1, 0.15, 0.2, 0.2, 0.35]))
    return tokens, min(sequences, tokens // step_tokens - 1)


def _split(rng: np.random.Generator, decoders: int) -> dict[str, Any]:
    """One to three engines for prompts; caches go by a network card of 100 to 400 Gbit/s."""
    return {
        "prefillers": int(rng.integers(1, 4)),
        "decoders": decoders,
        "link_bandwidth": float(rng.choice([12.5e9, 25e9, 50e9])) * rng.uniform(0.5, 0.9),
        "link_s": log_uniform(rng, 0.001, 0.01),
    }
