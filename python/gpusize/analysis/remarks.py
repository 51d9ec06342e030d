"""What a reader of a level's figures should know, without the load itself being in doubt: tokens, lengths, calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpusize.analysis.delivery.intended import ramp_text

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData

__all__ = ["length_remarks", "remarks"]

MANY_SHARE: Final = 0.01
"""Share of answers with several tokens to an event from which it is worth a word: a stream may hold a token back until
its characters are whole."""
_UNSEEN: Final = 1
"""Tokens that no event shows: the one that ends an answer counts in the usage of most servers and has no content."""
_STREAMED: Final = 2
"""Events from which an answer surely came as a stream; one event may be a whole answer."""


def remarks(level: LevelData) -> list[str]:
    """One text per thing to know about a single visit; none for an import."""
    if level.imported:
        return []
    return list(level.kept.once("remarks", lambda: _remarks(level)))


def _remarks(level: LevelData) -> list[str]:
    return [
        *_ramp_remarks(level),
        *_sample_remarks(level),
        *_token_remarks(level),
        *length_remarks(level),
        *_call_remarks(level),
    ]


def _ramp_remarks(level: LevelData) -> list[str]:
    ramp = ramp_text(level.setting)
    return [] if ramp is None else [f"a ramp from {ramp}: figures cover all its requests; no steady state is assumed"]


def _sample_remarks(level: LevelData) -> list[str]:
    """What the figures of a level are of, when not every request has a row."""
    if level.sampled == 1:
        return []
    how = "percentiles and SLO attainment are from histograms, to 0.8 %, the rest is from the rows"
    return [f"1 in {level.sampled} requests has a row: counts are of all requests, {how}"]


def _token_remarks(level: LevelData) -> list[str]:
    """Whether events and tokens are the same thing here, by what the server counted and never by guess."""
    import polars as pl

    events, tokens = pl.col("events").cast(pl.Int64), pl.col("tokens_out").cast(pl.Int64)
    many, unknown = (tokens > events + _UNSEEN).fill_null(value=False), tokens.is_null()
    streamed = level.ok().filter(events >= _STREAMED)
    counts = streamed.select(pl.len(), many.sum().alias("many"), unknown.sum().alias("unknown"))
    answers, several, silent = counts.collect(engine="streaming").row(0)
    texts = []
    if several and several >= MANY_SHARE * answers:
        texts.append(
            f"{_share(several, answers)} of the streamed answers have several tokens to an event: "
            "itl is the gap between events, itl_mean that between tokens"
        )
    if silent and level.llm:
        which = "no usage" if silent == answers else f"no usage for {_share(silent, answers)} of the streamed answers"
        texts.append(f"the server reported {which}: itl_mean then counts events, and tokens/s lacks their tokens")
    return [*texts, *_whole_remarks(level)]


def _whole_remarks(level: LevelData) -> list[str]:
    """Whether some of the answers that came whole lack the count of their tokens, where others have it."""
    import polars as pl

    whole = level.ok().filter(pl.col("events") < _STREAMED)
    answers, known = (
        whole.select(pl.len(), pl.col("tokens_out").count().alias("known")).collect(engine="streaming").row(0)
    )
    silent = answers - known
    if not level.llm or not known or not silent:
        return []
    return [f"the server reported no usage for {_share(silent, answers)} of the answers: tokens/s lacks their tokens"]


def length_remarks(level: LevelData) -> list[str]:
    """Whether the answers are as long as asked for; an estimate holds for the lengths that were measured."""
    return [str(each) for each in level.lengths() if each.flagged and each.name == "output"]


def _call_remarks(level: LevelData) -> list[str]:
    """Whether some requests have no call of a language model, where others have."""
    import polars as pl

    from gpusize.records.calls import WITHIN_VISIT

    if level.calls is None:
        return []
    key = WITHIN_VISIT
    ok = level.ok().select(key)
    without = ok.join(level.calls.select(key), on=key, how="anti").select(pl.len()).collect().item()
    answered = ok.select(pl.len()).collect(engine="streaming").item()
    if not without or without == answered:
        return []
    return [f"{_share(without, answered)} of the requests that ended ok have no LLM call: llm_latency is of the others"]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if part < whole else "all"
