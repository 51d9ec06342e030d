"""Whether a result is a yes or a measured no: the exit code of the commands that measure or estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpusize.estimate import Estimate
    from gpusize.result import Result

__all__ = ["Verdict", "judge"]

INTERRUPTED = 130
NO = 1


class Verdict(NamedTuple):
    """An exit code, and in one sentence why it is not 0."""

    code: int
    why: str = ""


def judge(result: Result, estimates: Sequence[Estimate], *, strict: bool = False) -> Verdict:
    """The verdict over a result and what was asked of it.

    Args:
        result: what was measured.
        estimates: the answers; empty when none was asked for.
        strict: whether a flagged level is a no as well.
    """
    if result.cancelled:
        return Verdict(INTERRUPTED, f"interrupted; what was measured is kept in {result.path}")
    done = [row for row in result.summary.to_dicts() if row["state"] == "done"]
    if not done:
        return Verdict(NO, "no level was measured to its end")
    if estimates and not any(each.answered for each in estimates):
        return Verdict(NO, f"no estimate can be given: {estimates[0].reason}")
    for k, slo in enumerate(result.slos):
        known = [row[f"slo_{k}_met"] for row in done if row[f"slo_{k}_met"] is not None]
        if known and not any(known):
            return Verdict(NO, f"no measured level meets {slo}")
    if strict and (flagged := [row for row in done if row["flags"]]):
        names = ", ".join(sorted({flag for row in flagged for flag in row["flags"]}))
        return Verdict(NO, f"{len(flagged)} of {len(done)} levels cannot be believed as they stand: {names}")
    return Verdict(0)
