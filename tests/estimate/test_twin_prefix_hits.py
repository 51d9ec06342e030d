"""Prompts that are in the cache in part: who costs what is drawn from those that had nobody beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from gpusize.analysis.level import LevelData
from gpusize.analysis.slo import Slo
from gpusize.estimate.twin.attainment_curve import Curve
from gpusize.estimate.twin.batching_model import Fits
from gpusize.estimate.twin.common_prefix import common_prefix
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
    visits = seen(0.0, 0.0)
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


def test_where_answers_share_the_iterations_prompts_are_spread_as_well():
    found = likeliest(seen(0.5, 0.8, max_batch=32))
    assert found.service.apart is None
    assert found.cached_tokens is not None
    assert found.service.per_prompt_token_s == pytest.approx(PER_TOKEN_S, rel=0.08)
    parts = found.cached_tokens / found.prompt_tokens
    assert float((parts > 0.4).mean()) == pytest.approx(0.5, abs=0.1)


def common(tokens: int, **more: Any) -> list[Observed]:
    """Prompts that all begin with so many tokens that are in the cache."""
    draws = np.random.default_rng(4)
    prompts = draws.integers(tokens + 50, tokens + 2000, 3000).astype(np.uint32)
    brought = {
        "prompt_tokens": prompts.tobytes(),
        "output_tokens": draws.integers(20, 120, 3000).astype(np.uint32).tobytes(),
        "cached_tokens": np.full(3000, tokens, dtype=np.uint32).tobytes(),
    }
    each = (level(n, requests=1500, brought=brought, prefill_per_token_s=PER_TOKEN_S, **more) for n in (1, 6, 10, 14))
    return [visit for one in each for visit in observe(one, OBJECTIVES)]


@pytest.mark.parametrize("tokens", [300, 1000])
def test_a_beginning_that_all_prompts_share_is_found_by_where_their_line_begins(tokens):
    visits = common(tokens)
    assert common_prefix(visits) == pytest.approx(tokens, rel=0.03)
    found = likeliest(visits)
    assert found.cached_tokens is not None
    assert float(found.cached_tokens.mean()) == pytest.approx(tokens, rel=0.03)
    assert found.service.per_prompt_token_s == pytest.approx(PER_TOKEN_S, rel=0.03)


def test_without_a_shared_beginning_and_with_prompts_that_are_all_as_long_none_is_found():
    assert common_prefix(seen(0.0, 0.0)) == 0
    fixed = {"prompt_tokens": np.full(500, 800, dtype=np.uint32).tobytes()}
    brought = {**fixed, "output_tokens": np.full(500, 40, dtype=np.uint32).tobytes()}
    visits = [visit for n in (1, 6) for visit in observe(level(n, brought=brought), OBJECTIVES)]
    assert common_prefix(visits) == 0


def test_what_the_server_says_it_had_in_the_cache_is_taken_off_the_prompts():
    """Half of the prompts are in the cache to four fifths; answers say which, and nothing has to be guessed."""
    told = [with_cached(visit_level) for visit_level in (telling(n) for n in (1, 6, 10, 14))]
    visits = [visit for one in told for visit in observe(one, OBJECTIVES)]
    for visit in visits:
        parts = visit.computed / visit.tokens_in
        assert set(np.unique(np.round(parts, 1))) == {0.2, 1.0}
    found = likeliest(visits)
    assert found.service.per_prompt_token_s == pytest.approx(PER_TOKEN_S, rel=0.02)
    assert found.service.noise < 0.05
    assert found.cached_tokens is not None
    assert float((found.cached_tokens / found.prompt_tokens).mean()) == pytest.approx(0.4, abs=0.03)


def telling(users: int) -> LevelData:
    return level(users, requests=1500, brought=tables(0.5, 0.8), prefill_per_token_s=PER_TOKEN_S)


def with_cached(told: LevelData) -> LevelData:
    """The level with the column that answers fill, from the table that its requests were drawn from."""
    brought = {name: np.frombuffer(each, np.uint32) for name, each in tables(0.5, 0.8).items()}
    names = {"prompt_tokens": "tokens_in", "output_tokens": "tokens_out", "cached_tokens": "tokens_cached"}
    table = pl.DataFrame({names[name]: each for name, each in brought.items()})
    table = table.unique(["tokens_in", "tokens_out"], keep="none")
    rows = told.records.drop("tokens_cached").collect().join(table, on=["tokens_in", "tokens_out"], how="inner")
    return replace(told, records=rows.sort("due_ns").lazy())
