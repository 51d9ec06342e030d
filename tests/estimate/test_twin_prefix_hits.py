"""Prompts that are in the cache in part: who costs what is drawn from those that had nobody beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpusize.analysis.slo import Slo
from gpusize.estimate.twin.attainment_curve import Curve
from gpusize.estimate.twin.batching_model import Fits
from gpusize.estimate.twin.mechanics import likest
from gpusize.estimate.twin.prefix_hits import with_hits
from gpusize.estimate.twin.simulate import Batching
from gpusize.estimate.twin.visit_data import Objective, Observed, observe
from tests.estimate.virtual import level

OBJECTIVES = [Objective.of(Slo.parse("p95 ttft <= 2s"))]
PER_TOKEN_S = 0.0004


def tables(hits: float, part: float, n: int = 3000) -> dict[str, bytes]:
    """Prompts of which a share has a part in the cache."""
    draws = np.random.default_rng(4)
    prompts = draws.integers(100, 1500, n).astype(np.uint32)
    cached = np.where(draws.random(n) < hits, np.floor(part * prompts), 0).astype(np.uint32)
    outputs = draws.integers(20, 120, n).astype(np.uint32)
    return {
        "prompt_tokens": prompts.tobytes(),
        "output_tokens": outputs.tobytes(),
        "cached_tokens": cached.tobytes(),
    }


def seen(hits: float, part: float, **more: Any) -> list[Observed]:
    brought = tables(hits, part)
    each = (level(n, requests=1500, brought=brought, prefill_per_token_s=PER_TOKEN_S, **more) for n in (1, 6, 10, 14))
    return [visit for one in each for visit in observe(one, OBJECTIVES)]


def likeliest(visits: list[Observed]) -> Batching:
    found = likest(visits, [Curve(OBJECTIVES[0], 0, visits)], 10, joint=False, shared=Fits(visits))
    assert found is not None
    return found.replica


def test_a_share_that_is_cached_is_found_with_the_price_of_what_is_not():
    found = likeliest(seen(0.5, 0.8, prefill_servers={"servers": 1, "base_s": 0.01}))
    assert found.cached_tokens is not None
    assert found.service.per_prompt_token_s == pytest.approx(PER_TOKEN_S, rel=0.06)
    parts = found.cached_tokens / found.prompt_tokens
    assert float((parts > 0.4).mean()) == pytest.approx(0.5, abs=0.07)
    assert float(np.median(parts[parts > 0.4])) == pytest.approx(0.8, abs=0.04)


def test_prompts_that_all_cost_their_tokens_are_left_alone():
    assert likeliest(seen(0.0, 0.0, prefill_servers={"servers": 1, "base_s": 0.01})).cached_tokens is None
    assert likeliest(seen(0.0, 0.0)).cached_tokens is None


def test_prompts_are_spread_as_those_that_were_alone_and_cost_as_much_together_as_before():
    visits = seen(0.3, 0.6)
    plain = likeliest(visits)
    draws = np.random.default_rng(9)
    tokens = draws.integers(100, 1500, 800).astype(float)
    parts = np.where(draws.random(800) < 0.3, draws.uniform(0.1, 0.9, 800), 1.0)
    cost_s = 3.0 * tokens * PER_TOKEN_S * parts
    found = with_hits(plain, tokens, cost_s)
    assert found is not None
    assert found.cached_tokens is not None
    computed = found.prompt_tokens - found.cached_tokens
    together_s = plain.service.per_prompt_token_s * found.prompt_tokens.sum()
    assert computed.sum() * found.service.per_prompt_token_s == pytest.approx(together_s, rel=1e-9)
    for share in (0.05, 0.1, 0.2, 0.5):
        spread = float(np.quantile(computed / found.prompt_tokens, share))
        assert spread == pytest.approx(float(np.quantile(parts, share)), abs=0.06)
    assert (found.cached_tokens < found.prompt_tokens).all()


def test_too_few_say_nothing():
    plain = likeliest(seen(0.0, 0.0))
    assert with_hits(plain, np.full(20, 100.0), np.full(20, 0.1)) is None
    assert with_hits(plain, np.full(200, 100.0), np.zeros(200)) is None
