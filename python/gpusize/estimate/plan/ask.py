"""Who answers a row of a plan: the twin, fitted once per SLOs, else a method that answers the same question.

That is crossing for users without pauses, and scaling for a rate, as in the default of an estimate: without an SLO,
which the twin cannot do without, or where only levels at rates were measured.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from gpusize.estimate.default import FINAL, unlike
from gpusize.estimate.level_quality import LevelFindings
from gpusize.estimate.measured_bounds import MeasuredBounds
from gpusize.estimate.methods import Comparable, Estimate, Question, comparable, estimate
from gpusize.estimate.question import as_bought
from gpusize.estimate.token_rate import mean_output_tokens, with_tokens
from gpusize.estimate.twin.method import Fitted, Twin

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.analysis.slo import Slo
    from gpusize.estimate.twin.performance import Performance

__all__ = ["Answers"]


class Answers:
    """Measured levels that are asked many questions.

    Args:
        levels: of one or several runs.
        question: any of those that will be asked: its ``gpus`` stands in where the levels have none.
        allow: what may differ between the runs.

    Raises:
        UsageError: runs were mixed that cannot be compared.
    """

    def __init__(self, levels: Sequence[LevelData], question: Question, allow: Collection[str] = ()) -> None:
        self._given = tuple(levels)
        self._question = question
        self._allow = allow
        closed = replace(question, users=question.users or 1, rate=None, token_rate=None) if question.slos else question
        self._levels, self._warnings, self._reason, self._left = comparable(self._given, closed, allow=allow)
        self._fits: dict[tuple[tuple[Slo, ...], bool], Fitted] = {}
        self._bounds = MeasuredBounds(self._levels, LevelFindings())

    @property
    def most_users(self) -> int:
        """The largest load that was measured, requests in flight; 1 where none was."""
        return max((level.concurrency or 1 for level in self._levels), default=1)

    @property
    def tokens(self) -> float | None:
        """Output tokens of a request, mean; None where the answers do not tell."""
        return mean_output_tokens(self._levels) or mean_output_tokens(self._given)

    def ask(self, question: Question) -> Estimate:
        """The answer to one question, with its reserve; its ``method`` says whose it is."""
        found = self._twin(question)
        if found.answered:
            return found
        if question.rate is not None:
            return self._scaling(question, found)
        if self._reason is not None or not _crossing_can(question):
            return found
        [other] = estimate(self._levels, question, "crossing", allow=self._allow)
        if other.answered:
            return self._beside(other, self._warnings, found)
        if question.headroom or question.spare:
            return found
        # Beyond what was measured it knows one end at least; of its reasons the twin's says as much.
        return replace(found, gpus_low=other.gpus_low, gpus_high=other.gpus_high)

    def _scaling(self, question: Question, twin: Estimate) -> Estimate:
        """The answer for a rate that the twin has none for; the twin's where nobody has one."""
        if twin.details.get("refusal") in FINAL or (question.together and len(question.slos) > 1):
            return twin
        levels, warnings, reason, _ = self._at_rates
        if reason is not None:
            return replace(twin, reason=reason)
        [other] = estimate(levels, question, "scaling", allow=self._allow)
        if not question.slos:
            return replace(other, warnings=tuple(dict.fromkeys((*other.warnings, *warnings))))
        if not other.answered:
            return twin
        other = replace(other, assumptions=(*other.assumptions, *unlike(levels, question, other)))
        return self._beside(other, warnings, twin)

    @cached_property
    def _at_rates(self) -> Comparable:
        """The levels that say something about a rate: closed loops and open ones."""
        asked = replace(self._question, users=0, rate=self._question.rate or 1.0, think="none", think_s=0.0)
        return comparable(self._given, asked, allow=self._allow)

    def _beside(self, other: Estimate, warnings: Sequence[str], twin: Estimate) -> Estimate:
        """Another method's answer, with what is said of the levels and why it is not the twin's."""
        said = (*other.warnings, *warnings, f"the twin does not answer: {twin.reason}")
        return replace(other, warnings=tuple(dict.fromkeys(said)))

    def performance(self, question: Question, gpus: int) -> Performance | None:
        """How so many GPUs fare under a question's load; None where nothing could be fitted."""
        return None if self._reason is not None else self._fitted(question).performance(question, gpus)

    def _twin(self, question: Question) -> Estimate:
        if self._reason is not None:
            users = question.users or None
            return Estimate(Twin.name, question.gpus or 0, users, reason=self._reason, rate=question.rate)
        answer = self._bounds.apply(self._fitted(question).answer(question), question)
        if self._left and not answer.answered:
            answer = replace(answer, reason=f"{answer.reason}; {self._left}")
        answer = replace(answer, warnings=tuple(dict.fromkeys((*answer.warnings, *self._warnings))))
        return with_tokens(as_bought(answer, question), question)

    def _fitted(self, question: Question) -> Fitted:
        key = tuple(question.slos), question.together
        if key not in self._fits:
            self._fits[key] = Fitted(self._levels, question)
        return self._fits[key]


def _crossing_can(question: Question) -> bool:
    """Whether the method without simulation answers this: users without pauses, each SLO for itself."""
    plain = question.think == "none" and question.router == "least_loaded" and not question.together
    return plain and question.rate is None
