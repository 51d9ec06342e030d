"""Draws what a GPU does: parameters around the number of requests that it is to have in flight at the SLO's edge.

Each mechanism gets its regimes: batches that are never full and batches that are always full, prompts that cost nothing
and prompts that cost more than answers, caches that never matter and caches that decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benches.estimates.worlds import ForeignWorld, OwnWorld, World

__all__ = ["FOREIGN", "Shape", "foreign_world", "log_uniform", "own_world", "with_pairs"]

LONGEST = 5.0
"""Lengths are cut at so many times their median."""


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """A number whose logarithm is uniform."""
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))


@dataclass(frozen=True)
class Shape:
    """What all mechanisms are drawn around.

    Attributes:
        in_flight: requests in flight per replica at the edge.
        base_s: time of an iteration with one sequence, about.
        prompt: mean tokens of a prompt.
        output: mean tokens of an answer.
        lengths: ``fixed``, ``lognormal``, ``geometric``, ``uniform``, ``bimodal`` or ``trace``.
        sigma: spread of the logarithm of a lognormal length.
        noise_sigma: spread of a request's own cost.
    """

    in_flight: float
    base_s: float
    prompt: float
    output: float
    lengths: str
    sigma: float
    noise_sigma: float

    @classmethod
    def draw(cls, rng: np.random.Generator, in_flight: float, lengths: str) -> Shape:
        """One of them."""
        noise = float(rng.choice([0.0, 0.1, 0.3, 0.6], p=[0.5, 0.25, 0.15, 0.1]))
        prompt, output = log_uniform(rng, 50, 3000), log_uniform(rng, 16, 400)
        sigma = log_uniform(rng, 0.15, 0.6)
        return cls(in_flight, log_uniform(rng, 0.004, 0.04), prompt, output, lengths, sigma, noise)

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt with the longest answer."""
        return round(LONGEST * self.prompt) + round(LONGEST * self.output) + 2

    def full_batch(self, rng: np.random.Generator) -> int:
        """A batch limit around the requests in flight: some batches are never full, some always."""
        return int(np.clip(round(self.in_flight * log_uniform(rng, 0.3, 4)), 1, 1024))


# ------------------------------------------------------------------------------------------------ lengths


def _pairs(rng: np.random.Generator, shape: Shape) -> list[tuple[int, int]]:
    """Pairs as a trace has them: some kinds of requests, each with lengths of its own that belong together."""
    kinds = int(rng.integers(2, 5))
    shares = rng.dirichlet(np.full(kinds, 2.0))
    drawn: list[tuple[int, int]] = []
    for share in shares:
        scale = np.exp(rng.normal(0, 0.7, size=2))
        link = rng.uniform(-0.5, 0.8)
        for _ in range(max(1, round(share * 300))):
            first, second = rng.normal(size=2)
            prompt = shape.prompt * scale[0] * math.exp(0.5 * first)
            output = shape.output * scale[1] * math.exp(0.5 * (link * first + math.sqrt(1 - link**2) * second))
            drawn.append((_tokens(prompt, shape.prompt), _tokens(output, shape.output)))
    return drawn


def _tokens(value: float, mean: float) -> int:
    return int(np.clip(round(value), 1, max(1, round(LONGEST * mean))))


def _two_kinds(rng: np.random.Generator, shape: Shape) -> list[tuple[int, int]]:
    """Short answers and long ones, of which the prompts know nothing."""
    share, ratio = rng.uniform(0.05, 0.4), log_uniform(rng, 4, 12)
    low = shape.output / (1 - share + share * ratio)
    drawn = []
    for k in range(400):
        middle = low * ratio if k < share * 400 else low
        output = middle * math.exp(0.15 * rng.normal())
        prompt = shape.prompt * math.exp(0.3 * rng.normal())
        drawn.append((_tokens(prompt, shape.prompt), _tokens(output, shape.output)))
    return drawn


def with_pairs(rng: np.random.Generator, shape: Shape) -> list[tuple[int, int]] | None:
    """The table of a bimodal mix or of a trace; None where lengths are drawn from a distribution."""
    if shape.lengths == "trace":
        return _pairs(rng, shape)
    return _two_kinds(rng, shape) if shape.lengths == "bimodal" else None


def _foreign_size(lengths: str, mean: float, sigma: float) -> dict[str, Any]:
    most = max(1.0, LONGEST * mean)
    if lengths == "fixed":
        return {"fixed": {"value": max(1.0, mean)}}
    if lengths == "geometric":
        return {"exponential": {"mean": max(1.0, mean), "max": most}}
    return {"lognormal": {"median": max(1.0, mean), "sigma": sigma, "max": most}}


def _foreign_lengths(rng: np.random.Generator, shape: Shape) -> dict[str, Any]:
    pairs = with_pairs(rng, shape)
    if pairs is not None:
        return {"pairs": pairs}
    return {
        "apart": {
            "prompt": _foreign_size("fixed" if shape.lengths == "fixed" else "lognormal", shape.prompt, shape.sigma),
            "output": _foreign_size(shape.lengths, shape.output, shape.sigma),
        }
    }


# ------------------------------------------------------------------------------------------------ our own


def own_world(rng: np.random.Generator, shape: Shape, contention: Mapping[str, float] | None) -> OwnWorld:
    """The project's model: a base, a share per sequence, prefill, a batch limit and a reserved cache."""
    grows = log_uniform(rng, 0.3, 4)
    per_sequence_s = shape.base_s * grows / max(shape.in_flight, 2)
    prefill = log_uniform(rng, 0.03, 1.0)
    tight = rng.random() < 0.35
    cached = log_uniform(rng, 0.6, 1.5) * shape.in_flight * (shape.prompt + shape.output) if tight else 4e6
    blocks = math.ceil(max(cached, shape.longest) / 16) + 1
    prompt = _own_length("fixed" if shape.lengths == "fixed" else "lognormal", shape.prompt, shape.sigma)
    output = _own_length(shape.lengths, shape.output, shape.sigma)
    pairs = with_pairs(rng, shape)
    config = {
        "iteration_base_s": shape.base_s,
        "iteration_per_sequence_s": per_sequence_s,
        "prefill_per_token_s": prefill * per_sequence_s * shape.output / shape.prompt,
        "max_batch": shape.full_batch(rng),
        "kv_blocks": blocks,
        "noise_sigma": shape.noise_sigma,
        "output_tokens": output,
    }
    return OwnWorld(config, prompt, contention, None if pairs is None else tuple(pairs))


def _own_length(lengths: str, mean: float, sigma: float) -> dict[str, Any]:
    tokens, most = max(1, round(mean)), max(1, round(LONGEST * mean))
    if lengths == "fixed":
        return {"fixed": {"tokens": tokens}}
    if lengths == "geometric":
        return {"geometric": {"mean_tokens": max(1.0, mean), "max_tokens": most}}
    if lengths == "uniform":
        return {"uniform": {"min_tokens": max(1, tokens // 2), "max_tokens": max(1, tokens * 3 // 2)}}
    return {"lognormal": {"median_tokens": max(1.0, mean), "sigma": sigma, "max_tokens": most}}


# ------------------------------------------------------------------------------------------------ foreign ones


def _roofline(rng: np.random.Generator, shape: Shape) -> dict[str, Any]:
    """Bound by memory up to some number of tokens, by computing beyond; context costs; prompts come in chunks."""
    per_token_s = shape.base_s / (max(shape.in_flight, 2) * log_uniform(rng, 0.25, 1.5))
    context = shape.prompt + shape.output / 2
    batch = shape.full_batch(rng)
    # A prompt's computing may not dwarf its answer's.
    per_token_s = min(per_token_s, 3 * shape.base_s * shape.output / (shape.prompt * max(shape.in_flight, 2)))
    budget = int(rng.choice([0, 256, 512, 2048]))
    tight = rng.random() < 0.3
    cached = log_uniform(rng, 0.6, 1.5) * shape.in_flight * (shape.prompt + shape.output)
    return {
        "batching": {
            "base_s": 0.1 * shape.base_s,
            "floor_s": 0.9 * shape.base_s,
            "per_token_s": per_token_s,
            "context_token_s": rng.uniform(0, 1) * shape.base_s / (max(shape.in_flight, 2) * context),
            "max_batch": batch,
            "token_budget": budget if budget == 0 else max(budget, 2 * batch),
            "kv_tokens": round(max(cached, shape.longest)) if tight else 4_000_000,
        }
    }


def _preempting(rng: np.random.Generator, shape: Shape) -> dict[str, Any]:
    """The cache fills token by token; when it is full the youngest leaves and is computed again."""
    per_token_s = shape.base_s * log_uniform(rng, 0.3, 4) / max(shape.in_flight, 2)
    cached = log_uniform(rng, 0.6, 1.3) * shape.in_flight * (shape.prompt + shape.output / 2)
    return {
        "batching": {
            "base_s": shape.base_s,
            "per_token_s": min(per_token_s, 2 * shape.base_s * shape.output / (shape.prompt * shape.in_flight)),
            "max_batch": 1024,
            "kv_tokens": round(max(cached, shape.longest)),
            "grow": True,
        }
    }


def _fixed_batches(rng: np.random.Generator, shape: Shape) -> dict[str, Any]:
    """Batches are put together, wait for more, and run to the end of their longest member."""
    batch = shape.full_batch(rng)
    member_s = shape.base_s * log_uniform(rng, 0.2, 4) / max(shape.in_flight, 2)
    alone_s = shape.output * shape.base_s
    return {
        "fixed_batches": {
            "base_s": shape.base_s,
            "per_prompt_token_s": log_uniform(rng, 0.03, 1) * member_s * shape.output / shape.prompt,
            "step_s": shape.base_s,
            "step_per_member_s": member_s,
            "max_batch": batch,
            "delay_s": float(rng.choice([0.0, 0.05, 0.3])) * alone_s,
        }
    }


def _disaggregated(rng: np.random.Generator, shape: Shape) -> dict[str, Any]:
    """Prompts are computed by servers of their own and sent over."""
    servers = int(rng.integers(1, 4))
    per_token_s = shape.base_s * log_uniform(rng, 0.3, 4) / max(shape.in_flight, 2)
    decode_s = shape.output * (shape.base_s + per_token_s * shape.in_flight)
    # At the edge the prefill servers are this busy, about.
    prefill_s = rng.uniform(0.15, 0.8) * servers * decode_s / shape.in_flight
    return {
        "disaggregated": {
            "prefill_servers": servers,
            "prefill_base_s": 0.2 * prefill_s,
            "prefill_per_token_s": 0.8 * prefill_s / shape.prompt,
            "transfer_base_s": 0.002,
            "transfer_per_token_s": 0.05 * prefill_s / shape.prompt,
            "decode": {
                "base_s": shape.base_s,
                "per_token_s": per_token_s,
                "max_batch": shape.full_batch(rng),
                "kv_tokens": 4_000_000,
            },
        }
    }


def _sharing(rng: np.random.Generator, shape: Shape) -> dict[str, Any]:
    """All active requests share a rate that rises ever more slowly; sizes are known to nobody."""
    half = max(1.0, shape.in_flight * log_uniform(rng, 0.1, 2))
    active = np.arange(1, 4 * math.ceil(shape.in_flight) + 8)
    curves = {
        "hyperbola": active / (active + half),
        "exponential": 1 - np.exp(-active / half),
        "corner": np.minimum(active, half) / half,
    }
    rates = curves[str(rng.choice(list(curves)))] / (shape.base_s * shape.output)
    works: dict[str, dict[str, Any]] = {
        "fixed": {"fixed": {"value": 1.0}},
        "geometric": {"exponential": {"mean": 1.0, "max": 20.0}},
        "lognormal": {"lognormal": {"median": 0.75, "sigma": 0.75, "max": 20.0}},
        "bimodal": {"bimodal": {"low": 0.4, "high": 4.0, "high_share": 0.15, "sigma": 0.2, "max": 20.0}},
    }
    limit = shape.full_batch(rng) if rng.random() < 0.5 else 100_000
    work = works.get(shape.lengths, works["lognormal"])
    return {"sharing": {"rates": [float(rate) for rate in rates], "max_active": limit, "work": work}}


FOREIGN: dict[str, Callable[[np.random.Generator, Shape], dict[str, Any]]] = {
    "roofline": _roofline,
    "preempting": _preempting,
    "fixed batches": _fixed_batches,
    "disaggregated": _disaggregated,
    "sharing": _sharing,
}
"""Mechanisms that the project's model does not have, by name."""


def foreign_world(
    rng: np.random.Generator, kind: str, shape: Shape, contention: Mapping[str, float] | None, *, pauses: bool
) -> World:
    """One of ``FOREIGN``, with pauses of whole GPUs where asked for."""
    spec: dict[str, Any] = {
        "mechanics": FOREIGN[kind](rng, shape),
        "lengths": _foreign_lengths(rng, shape),
        "noise_sigma": shape.noise_sigma,
    }
    if contention:
        spec["contention"] = dict(contention)
    if pauses:
        alone_s = shape.output * shape.base_s
        spec["pauses"] = {
            "every_s": alone_s * log_uniform(rng, 10, 100),
            "mean_s": alone_s * log_uniform(rng, 0.1, 1),
            "sigma": 0.8,
        }
    return ForeignWorld(spec)
