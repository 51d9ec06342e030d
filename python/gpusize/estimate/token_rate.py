"""Tokens per second as a question: output tokens/s become requests/s by the measured length of answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from gpusize.base.errors import UsageError

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.estimate.question import Estimate, Question

__all__ = ["mean_output_tokens", "output_tokens", "with_tokens"]


def mean_output_tokens(levels: Iterable[LevelData]) -> float | None:
    """Output tokens of a steady request that ended ok, mean over all of them that tell; None where none does."""
    import polars as pl

    told = [
        visit.ok().select(pl.col("tokens_out").sum().cast(pl.Float64), n=pl.col("tokens_out").count())
        for level in levels
        if not level.imported
        for visit in level.visits()
    ]
    if not told:
        return None
    tokens, n = pl.concat(told).sum().collect(engine="streaming").row(0)
    return float(tokens) / n if n and tokens else None


def output_tokens(levels: Iterable[LevelData]) -> float:
    """As ``mean_output_tokens``, for a question that cannot do without.

    Raises:
        UsageError: no answer that was measured tells its tokens.
    """
    mean = mean_output_tokens(levels)
    if mean is None:
        raise UsageError(
            "no measured answer tells its tokens, so tokens/s cannot be turned into requests/s",
            "token_rate",
            "ask for requests per second instead, as --rate 40/s",
        )
    return mean


def with_tokens(answer: Estimate, question: Question) -> Estimate:
    """The answer with what its tokens/s were turned into; as it is where none were asked for."""
    if question.token_rate is None or not question.rate:
        return answer
    each = question.token_rate / question.rate
    text = (
        f"{question.token_rate:,.6g} output tokens/s are {question.rate:,.4g} requests/s, "
        f"at {each:,.4g} output tokens per request as measured"
    )
    details = {**answer.details, "token_rate": question.token_rate, "tokens_per_request": each}
    return replace(answer, assumptions=(*answer.assumptions, text), details=details)
