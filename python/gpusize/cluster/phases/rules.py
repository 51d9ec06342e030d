"""Times that cannot be right, by named rules: which workloads each of them is about."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from gpusize.cluster.phases.clocks import SECOND_NS
from gpusize.cluster.phases.deltas import IMPOSSIBLE
from gpusize.cluster.tables import CLIENT_CLOCK, SERVER_CLOCK

if TYPE_CHECKING:
    import polars as pl

__all__ = ["RULES", "SKIPPED_BY", "broken_by"]

RULES: Final = {
    "pod_group_before_pod": "the pod group is older than the first pod: the pod was replaced",
    "decision_before_submission": "the pods were scheduled 2 s or more before the workload was submitted",
    "ended_before_begun": "a phase ended before it began, by more than its sources can be wrong",
}
"""Each rule and what it says. The first two are those of the Run:ai scale test tool, in whole seconds as there."""

SKIPPED_BY: Final = ("pod_group_before_pod", "decision_before_submission")
"""Rules by which a workload is left out; by the third only the phase is."""


def broken_by(table: pl.DataFrame, deltas: pl.DataFrame, own_groups: Collection[str] = ()) -> dict[str, list[str]]:
    """The workloads that break each rule, in the order of the table.

    Args:
        table: of `gpusize.cluster.phases.deltas.wide`.
        deltas: of `gpusize.cluster.phases.deltas.workload_deltas`.
        own_groups: workloads whose pod group was submitted with them, so that it comes first.
    """
    import polars as pl

    def second(clock: str, moment: str, end: str) -> pl.Expr:
        """The whole second, as that tool counts; of a narrower interval the end that speaks for the workload."""
        name = f"{clock}.{moment}.{end}"
        return pl.col(name) // SECOND_NS if name in table.columns else pl.lit(None, pl.Int64)

    group, pod = second(SERVER_CLOCK, "pod_group_created", "hi"), second(SERVER_CLOCK, "first_created", "lo")
    decision, submission = second(SERVER_CLOCK, "last_scheduled", "hi"), second(CLIENT_CLOCK, "submitted", "lo")
    own = pl.col("workload").is_in(list(own_groups))
    odd = set(deltas.filter(pl.col("state") == IMPOSSIBLE)["workload"])
    by_seconds = {
        "pod_group_before_pod": (group < pod) & ~own,
        "decision_before_submission": decision - submission < -1,
    }
    found = {name: table.filter(rule.fill_null(value=False))["workload"].to_list() for name, rule in by_seconds.items()}
    return {**found, "ended_before_begun": [each for each in table["workload"] if each in odd]}
