"""What follows where no measured load misses an SLO: how times rise, what is enough at most, and where to look.

Nobody has seen the capacity, so there is no number. But as many users as were measured on the tested GPUs are carried
by them, which bounds the count from above; and a straight line says where it may lie. The sizing calculator takes that
line for the answer; here it is a guess, and says where to measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpusize.base.units import format_duration
from gpusize.estimate.question import Estimate, Question, gpus_text, scaled, whole_gpus
from gpusize.estimate.slope import level_value
from gpusize.estimate.users_in_flight import UsersInFlight

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.analysis.slo import Slo

__all__ = ["unmissed"]

RISES: Final = 0.1
"""Change over all levels, relative to the first, from which times are said to rise."""
FAR: Final = 4.0
"""A line is followed up to so many times the largest load; beyond it the next step is that."""


def unmissed(
    answer: Estimate, levels: Sequence[LevelData], question: Question, line: Estimate | None, *, measure: bool = True
) -> Estimate:
    """A refusal of the twin, as no measured load misses an SLO, with what follows from the levels all the same.

    Args:
        answer: the refusal.
        levels: those that it rests on, of one number of GPUs.
        question: what is asked.
        line: the slope method's answer from the same levels; None where it does not answer such questions.
        measure: whether the reason names what to measure next.
    """
    done = sorted((lv for lv in levels if lv.concurrency and lv.state == "done"), key=lambda lv: lv.concurrency or 0)
    if not done:
        return answer
    # A load that was asked for and not reached is none that was carried.
    asked = done[-1].concurrency or 1
    top = min(asked, int(answer.details.get("most_in_flight", asked)))
    users = UsersInFlight.of(done, question)
    rise = _rise(done, question.slos)
    texts = [f"{answer.reason}{'; ' if rise else ''}{rise}"]
    enough = None
    if question.rate is None and question.router == "least_loaded":
        raw = scaled(users.at_most(top), top, answer.tested_gpus)
        enough = whole_gpus(raw, question.gpus_per_replica)
        texts.append(f"So at most {gpus_text(enough)} {'is' if enough == 1 else 'are'} needed; how few is unknown")
    details, warnings = dict(answer.details), answer.warnings
    at = None if line is None or not line.answered else line.capacity_concurrency
    follow = answer.next_levels
    if line is not None and at is not None and at > top:
        details["extrapolated"] = {"method": line.method, "gpus": line.gpus, "capacity_concurrency": at}
        said = (
            f"{gpus_text(line.gpus or 0)}, as it meets the SLO at {at:.4g} in flight: an extrapolation, and no answer"
        )
        warnings = (f"a straight line through the levels, the sizing calculator's way, would say {said}", *warnings)
        follow = line.next_levels if at <= FAR * top and line.next_levels else follow
    if follow and measure:
        who = f"users who pause {users.measured_s:g} s" if users.measured_s else "in flight"
        texts.append(f"Measure {' and '.join(map(str, follow))} {who}")
    return replace(
        answer,
        reason=". ".join(texts),
        gpus_high=enough,
        next_levels=follow,
        details=details,
        warnings=warnings,
    )


def _rise(levels: Sequence[LevelData], slos: Sequence[Slo]) -> str:
    """How the times of the SLO that is nearest to being missed change over the levels; empty where none is a time."""
    found = []
    for slo in slos:
        if slo.kind == "share":
            continue
        bound, first, last = slo.bound_s, level_value(levels[0], slo), level_value(levels[-1], slo)
        if slo.op in ("<=", "<") and bound and first is not None and last is not None:
            found.append((last / bound, slo, first, last))
    if not found or len(levels) < 2:
        return ""
    _, slo, first, last = max(found, key=lambda each: each[0])
    what = f"{'the mean' if slo.kind == 'mean' else f'p{slo.share * 100:g}'} of {slo.metric}"
    ends = f"{_time(first)} at {levels[0].concurrency} to {_time(last)} at {levels[-1].concurrency}"
    if abs(last - first) < RISES * first:
        return f"{what} does not rise up to there: {ends}"
    way = "rises" if last > first else "falls"
    return f"{what} {way} from {ends}, where {_time(slo.bound_s or 0.0)} is asked for"


def _time(seconds: float) -> str:
    return format_duration(float(f"{seconds:.3g}"))
