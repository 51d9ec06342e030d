"""A second opinion: what the crossing method says of an answer of the slope method that deserves doubt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gpusize.estimate.question import Estimate, gpus_text

__all__ = ["with_second_opinion"]

LINE: Final = "slope"
OTHER: Final = "crossing"


def with_second_opinion(answers: Sequence[Estimate]) -> list[Estimate]:
    """The answers, the line's with a warning where the crossing method disagrees, or where the line was stretched.

    A line is stretched when it answers outside the tested range or has left levels out as outliers. A number that
    nobody else confirms is read first, so the doubt has to stand beside it and not in a table below.
    """
    other = next((each for each in answers if each.method == OTHER), None)
    if other is None:
        return list(answers)
    return [_doubted(each, other) if each.method == LINE and each.answered else each for each in answers]


def _doubted(line: Estimate, other: Estimate) -> Estimate:
    if line.gpus == other.gpus and not _stretched(line):
        return line
    if not other.answered and _seen(other) < _seen(line):
        # Imported levels have percentiles, and hardly any requests: there is nothing that the method could say.
        return line
    if not other.answered:
        text = f"the crossing method, which assumes no line, gives no number: {other.reason}"
    elif line.gpus == other.gpus:
        text = f"the crossing method, which assumes no line, answers {gpus_text(other.gpus or 0)} as well"
    else:
        carried = "" if other.capacity_concurrency is None else f" ({other.capacity_concurrency:.3g} users carried)"
        text = f"the crossing method, which assumes no line, answers {gpus_text(other.gpus or 0)}{carried}"
    return replace(line, warnings=(text, *line.warnings))


def _seen(answer: Estimate) -> int:
    return len(answer.details.get("points") or ())


def _stretched(line: Estimate) -> bool:
    parts = line.per_slo or (line,)
    return any(
        part.outside_tested_range or ((part.details.get("fit") or {}).get("outliers_removed") or ()) for part in parts
    )
