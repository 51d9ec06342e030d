"""Three counts of the same tokens side by side: events with content, the dataset's own count, the server's usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.analysis.throughput import of_another_tool

if TYPE_CHECKING:
    import polars as pl

    from gpusize.analysis.level import LevelData

__all__ = ["TOLERANCE", "TokenCounts", "token_counts"]

TOLERANCE: Final = 0.02
"""Share by which two counts may differ before they are flagged."""
UNSEEN: Final = 1.0
"""Tokens of an answer that no event shows: most servers count the one that ends it."""
_STREAMED: Final = 2
"""Events from which an answer surely came as a stream; one event may be a whole answer."""
_SIDES: Final = (("input", "input_tokens", "tokens_in"), ("output", "output_tokens", "tokens_out"))


class TokenCounts(NamedTuple):
    """Mean counts per request of one side, all over the same requests; None for a count that does not exist.

    Attributes:
        name: ``input`` or ``output``.
        requests: steady requests that ended ok and have every count that exists here.
        events_mean: stream events with content, of streamed answers.
        dataset_mean: what the dataset says, by its tokenizer or its file: length of the prompt, or of the answer that
            was asked for or recorded.
        usage_mean: what the server reported; of another tool's requests what that tool's file says.
        by: whose count that is, in words.
    """

    name: str
    requests: int
    events_mean: float | None
    dataset_mean: float | None
    usage_mean: float | None
    by: str = "by the server's usage"

    @property
    def events_off(self) -> float | None:
        """How far events are from the usage, as a share of it; the token that ends an answer may have no event.

        None where the usage is 0: every count is infinitely far from it.
        """
        if self.events_mean is None or not self.usage_mean:
            return None
        missing = self.usage_mean - self.events_mean
        off = -max(0.0, missing - UNSEEN) if missing > 0 else -missing
        return off / self.usage_mean

    @property
    def dataset_off(self) -> float | None:
        """The dataset's count over the usage, less 1."""
        if self.dataset_mean is None or not self.usage_mean:
            return None
        return self.dataset_mean / self.usage_mean - 1

    @property
    def flagged(self) -> bool:
        """Whether a count differs from the usage by more than ``TOLERANCE``, or there is one of nothing."""
        return self._differs(self.events_mean, self.events_off) or self._differs(self.dataset_mean, self.dataset_off)

    @property
    def events_flagged(self) -> bool:
        """Whether events and usage do: then times between events are not times between tokens."""
        return self._differs(self.events_mean, self.events_off)

    def _differs(self, mean: float | None, off: float | None) -> bool:
        if self.usage_mean == 0:  # no share of it says how far a count is from it
            return bool(mean)
        return off is not None and abs(off) > TOLERANCE

    def __str__(self) -> str:
        named = (
            ("events with content", self.events_mean),
            ("by the dataset", self.dataset_mean),
            (self.by, self.usage_mean),
        )
        said = ", ".join(f"{mean:.4g} {name}" for name, mean in named if mean is not None)
        return f"{self.name} tokens: {said} per request"


def token_counts(level: LevelData) -> list[TokenCounts]:
    """The counts of each side that has at least two; empty for an import. Of a sampled level, over its rows."""
    if level.imported:
        return []
    found = level.kept.once("tokens", lambda: _counts(level))
    return [each._replace(by="as the file says") for each in found] if of_another_tool(level) else list(found)


def _counts(level: LevelData) -> list[TokenCounts]:
    import polars as pl

    rows = level.ok().select("row", "events", "tokens_in", "tokens_out")
    known = [] if level.rows is None else level.rows.columns
    if level.rows is not None:
        local = level.rows.lazy().select(
            pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"), pl.col([c for _, c, _ in _SIDES if c in known])
        )
        rows = rows.join(local, on="row", how="left")
    found = [_side(rows, name, local if local in known else None, usage) for name, local, usage in _SIDES]
    return [each for each in found if each is not None]


def _side(rows: pl.LazyFrame, name: str, local: str | None, usage: str) -> TokenCounts | None:
    import polars as pl

    counts = {"usage": pl.col(usage)}
    if local is not None:
        counts["dataset"] = pl.when(pl.col(local) > 0).then(pl.col(local))
    if name == "output":
        counts["events"] = pl.when(pl.col("events") >= _STREAMED).then(pl.col("events"))
    made = rows.select(expr.cast(pl.Float64).alias(key) for key, expr in counts.items())
    present = made.select(pl.col(key).count() for key in counts).collect(engine="streaming").row(0, named=True)
    kept = [key for key in counts if present[key]]
    if len(kept) < 2:
        return None
    both = made.drop_nulls(kept).select(pl.len().alias("n"), *(pl.col(key).mean() for key in kept))
    means = both.collect(engine="streaming").row(0, named=True)
    if not means["n"]:
        return None
    return TokenCounts(name, means["n"], means.get("events"), means.get("dataset"), means.get("usage"))
