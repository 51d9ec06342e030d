"""What happened to answers between their first token and their last: iterations, tokens of all, prompts taken in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpusize.estimate.twin.batch_limit import reported_tokens

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["Lives"]


@dataclass(frozen=True, slots=True, eq=False)
class Lives:
    """Answers of one visit from first to last token, over a time line that changes where one begins or ends.

    Attributes:
        n: tokens after the first; shape (m,).
        took: seconds for them.
        beside: other answers that ran when it had its first token.
        begin: index of the piece of the time line at which each begins.
        end: likewise, the one after its last.
        lasts: length of each piece, s; shape (p,).
        running: answers that run in it.
        joined: answers that began before or at the beginning of each piece, running sum; shape (p + 1,).
        prompts: the tokens of their prompts, running sum.
    """

    n: NDArray[np.float64]
    took: NDArray[np.float64]
    beside: NDArray[np.float64]
    begin: NDArray[np.intp]
    end: NDArray[np.intp]
    lasts: NDArray[np.float64]
    running: NDArray[np.float64]
    joined: NDArray[np.float64]
    prompts: NDArray[np.float64]

    @classmethod
    def of(cls, visit: Observed, *, begun_s: NDArray[np.float64] | None = None) -> Lives | None:
        """The answers of a visit with at least three tokens; None without any.

        Args:
            visit: with tokens.
            begun_s: from when on each runs, shape (m,); None: from its first token.
        """
        import numpy as np

        known = reported_tokens(visit)
        if known.sum() < 3:
            return None
        begun = visit.first_s if begun_s is None else begun_s
        first, last, n = begun[known], visit.last_s[known], visit.tokens_out[known]
        prompts = np.nan_to_num(visit.computed[known], nan=0.0)
        counted = (n >= 3) & (last > first)
        if not counted.any():
            return None
        times = np.unique(np.concatenate([first, last]))
        begin, end = np.searchsorted(times, first), np.searchsorted(times, last)
        size = times.size
        change = np.bincount(begin, minlength=size) - np.bincount(end, minlength=size)
        running = np.cumsum(change)[:-1].astype(float)
        return cls(
            n[counted] - 1,
            (last - first)[counted],
            running[begin[counted]] - 1,
            begin[counted],
            end[counted],
            np.diff(times),
            running,
            np.concatenate([[0.0], np.cumsum(np.bincount(begin, minlength=size))]),
            np.concatenate([[0.0], np.cumsum(np.bincount(begin, weights=prompts, minlength=size))]),
        )

    @property
    def scale(self) -> NDArray[np.float64]:
        """What rows are multiplied by: the error of a time grows with the root of its iterations."""
        import numpy as np

        return 1.0 / np.sqrt(self.n)

    def design(self, costs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Iterations, tokens of all and prompt tokens of each answer's life, scaled; shape (m, 3).

        How a life's iterations are spread over the pieces of the time line follows from the costs so far.
        """
        import numpy as np

        base_s, per_sequence_s, per_prompt_token_s = costs
        # What joins at the end of a piece was taken in during it.
        taken_s = per_prompt_token_s * np.diff(self.prompts)[1:]
        busy_s = np.maximum(self.lasts - taken_s, 0.05 * self.lasts)
        # Where nobody runs nothing is made: in no life, and the time there must not drown the others in the sums.
        cost_s = base_s + per_sequence_s * np.maximum(self.running, 1.0)
        made = np.where(self.running > 0, busy_s / cost_s, 0.0)
        passed = np.concatenate([[0.0], np.cumsum(made)])
        tokens = np.concatenate([[0.0], np.cumsum(made * self.running)])
        ratio = self.n / np.maximum(passed[self.end] - passed[self.begin], 1e-300)
        joined = self.joined[self.end + 1] - self.joined[self.begin + 1]
        others = (tokens[self.end] - tokens[self.begin]) * ratio + joined
        taken = self.prompts[self.end + 1] - self.prompts[self.begin + 1]
        return np.stack([self.n, others, taken], axis=1) * self.scale[:, None]
