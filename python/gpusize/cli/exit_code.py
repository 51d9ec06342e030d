"""Whether a result is a yes or a measured no: the exit code of the commands that measure or estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpusize.estimate.methods import Estimate
    from gpusize.result import Result

__all__ = ["ExitStatus", "judge"]

INTERRUPTED = 130
NO = 1
MOST_REASONS: Final = 8
"""Levels whose reasons are told; the summary has them all."""


class ExitStatus(NamedTuple):
    """An exit code, and in one sentence why it is not 0; further lines, two spaces in, are reasons."""

    code: int
    why: str = ""


def judge(result: Result, estimates: Sequence[Estimate], *, strict: bool = False) -> ExitStatus:
    """The exit status for a result and what was asked of it.

    Args:
        result: what was measured.
        estimates: the answers; empty when none was asked for. The first one is the answer, others stand beside it.
        strict: whether a level whose load was not delivered, or that is flagged for another doubt, is a no as well.
            Findings about the target (``gpusize.analysis.checks.FINDINGS``) are none.
    """
    if result.cancelled:
        why = f"interrupted; what was measured is kept in {result.path}"
        return ExitStatus(INTERRUPTED, f"{why}, gpusize run --resume {result.path} goes on with it")
    failed = _failed(result)
    done = [row for row in result.summary.to_dicts() if row["state"] == "done"]
    no = _nothing(result, estimates, failed, measured=bool(done))
    if no:
        return ExitStatus(NO, no)
    for k, slo in enumerate(result.slos):
        known = [row[f"slo_{k}_met"] for row in done if row[f"slo_{k}_met"] is not None]
        if known and not any(known):
            return ExitStatus(NO, f"no measured level meets {slo}")
    if failed:
        return ExitStatus(NO, f"{failed}. What is said rests on the levels before")
    if strict:
        return _strict(done, _not_run(result))
    return ExitStatus(0)


def _nothing(result: Result, estimates: Sequence[Estimate], failed: str, *, measured: bool) -> str:
    """Why there is no answer at all; empty where there is one, or none was asked for."""
    if result.search is not None and result.search.reason == "single":
        return f"a single user misses {' and '.join(map(str, result.slos))} already"
    if failed and not (estimates and estimates[0].answered):
        return failed
    if result.search is not None and result.search.reason == "silent":
        return f"no request has data for {result.search.slo}"
    if not measured:
        return "no level was measured to its end"
    if estimates and not estimates[0].answered:
        return f"no estimate can be given: {estimates[0].reason}"
    return ""


def _strict(rows: Sequence[Mapping[str, Any]], left: str) -> ExitStatus:
    """A no where a load was not delivered, with the reasons, or where a level is in doubt otherwise."""
    from gpusize.analysis.checks import FINDINGS

    doubtful = {k: [flag for flag in row["flags"] if flag not in FINDINGS] for k, row in enumerate(rows)}
    doubtful = {k: flags for k, flags in doubtful.items() if flags}
    if not doubtful:
        return ExitStatus(0)
    names = ", ".join(sorted({flag for flags in doubtful.values() for flag in flags}))
    why = f"{len(doubtful)} of {len(rows)} levels cannot be believed as they stand: {names}{left}"
    reasons = [
        f"\n  {_level(rows[k])} was not delivered, because {rows[k]['delivery'].removeprefix('it was not, because ')}"
        for k in doubtful
        if rows[k].get("delivered") is False
    ]
    return ExitStatus(NO, why + "".join(reasons[:MOST_REASONS]))


def _failed(result: Result) -> str:
    """That the target had failed when the run ended, and what to do; nothing of several runs."""
    from gpusize.estimate.evidence import fails_alike, target_failed

    text = "" if len(result.paths) > 1 else target_failed(result.levels)
    if not text or fails_alike(result.levels):
        return text
    return f"{text}. Start it again; gpusize run --resume {result.path} goes on{_not_run(result)}"


def _not_run(result: Result) -> str:
    """How many planned levels there are no figures of; nothing of several runs, or where all were measured."""
    planned = result.meta.get("levels") or []
    missing = len(planned) - len({level.meta.get("step", level.visit) for level in result.levels})
    if missing <= 0 or len(result.paths) > 1:
        return ""
    return f"; {missing} of {len(planned)} planned levels {'was' if missing == 1 else 'were'} not run"


def _level(row: Mapping[str, Any]) -> str:
    if row.get("concurrency") is not None:
        return f"concurrency {row.get('ramp') or row['concurrency']}"
    if row.get("ramp"):
        return str(row["ramp"])
    return f"{row['rate']:g}/s" if row.get("rate") is not None else f"visit {row['visit']}"
