"""The tables of a result beside its summary: levels taken apart, and what was measured beside the requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING

from gpusize.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from gpusize.analysis.breakdown import Part
    from gpusize.analysis.level import LevelData

__all__ = ["LevelTables"]


class LevelTables(ABC):
    """What can be told from levels alone."""

    @property
    @abstractmethod
    def levels(self) -> tuple[LevelData, ...]:
        """The level visits."""

    @cached_property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """Tables of levels beside the summary, those that have rows.

        ``delivery``, ``replicas`` and ``models`` (of ``breakdown``), ``model_stats``, ``lengths``, ``tokens``,
        ``server``, ``resources``.
        """
        made = {
            "delivery": self.delivery(),
            "replicas": self.breakdown("target"),
            "models": self.breakdown("model"),
            "model_stats": self.model_stats(),
            "lengths": self.lengths(),
            "tokens": self.tokens(),
            "server": self.server(),
            "resources": self.resources(),
        }
        return {name: frame for name, frame in made.items() if frame.height}

    def breakdown(self, by: Part = "target") -> pl.DataFrame:
        """The levels taken apart by replica or by model: one row each, see ``gpusize.analysis.breakdown.breakdown``.

        Args:
            by: ``target`` or ``model``.

        Raises:
            UsageError: it is something else.
        """
        from gpusize.analysis.breakdown import breakdown

        if by not in ("target", "model"):
            raise UsageError(f"a breakdown by {by!r} does not exist", "by", "use target or model")
        return breakdown(self.levels, by)

    def server(self) -> pl.DataFrame:
        """What servers and GPUs did in each level: see ``gpusize.analysis.tables.server_rows``."""
        from gpusize.analysis.tables import server_rows

        return server_rows(self.levels)

    def resources(self) -> pl.DataFrame:
        """What containers and processes used in each level: see ``gpusize.analysis.tables.resource_rows``."""
        from gpusize.analysis.tables import resource_rows

        return resource_rows(self.levels)

    def model_stats(self) -> pl.DataFrame:
        """What each model did by a KServe server's own statistics: see ``gpusize.analysis.tables.model_stats``."""
        from gpusize.analysis.tables import model_stats

        return model_stats(self.levels)

    def lengths(self) -> pl.DataFrame:
        """Lengths asked for beside lengths reported, per level: see ``gpusize.analysis.tables.level_lengths``."""
        from gpusize.analysis.tables import level_lengths

        return level_lengths(self.levels)

    def delivery(self) -> pl.DataFrame:
        """What was held against the load that was asked for: see ``gpusize.analysis.tables.level_delivery``."""
        from gpusize.analysis.tables import level_delivery

        return level_delivery(self.levels)

    def tokens(self) -> pl.DataFrame:
        """Counts of tokens side by side, per level: see ``gpusize.analysis.tables.level_tokens``."""
        from gpusize.analysis.tables import level_tokens

        return level_tokens(self.levels)

    def calls(self) -> pl.LazyFrame:
        """The calls inside requests, of every kind; columns as in docs/reference/calls.md, after ``run``."""
        from gpusize.analysis.tables import all_calls

        return all_calls(self.levels)

    def samples(self) -> pl.LazyFrame:
        """Every reading of servers and GPUs; columns as in docs/reference/samples.md, after ``visit`` and ``run``."""
        from gpusize.analysis.tables import all_samples

        return all_samples(self.levels)
