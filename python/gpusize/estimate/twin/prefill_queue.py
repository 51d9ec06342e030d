"""The queue before servers of prompts, request by request: when first tokens come, and when caches are over."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpusize.estimate.twin.batch_limit import reported_tokens

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["Apart", "replay", "there_s"]


@dataclass(frozen=True, slots=True)
class Apart:
    """Servers of prompts.

    Attributes:
        servers: how many there are.
        base_s: a, s.
        per_prompt_token_s: p, s.
        batched_tokens: tokens of one of their iterations; None: one prompt at a time.
        transfer_s: d, s.
        transfer_per_token_s: q, s.
    """

    servers: int
    base_s: float
    per_prompt_token_s: float
    batched_tokens: int | None
    transfer_s: float = 0.0
    transfer_per_token_s: float = 0.0

    def to_json(self) -> dict[str, float | int | None]:
        """By the names that the simulated cluster's configuration has."""
        return {
            "servers": self.servers,
            "base_s": self.base_s,
            "max_batched_tokens": self.batched_tokens,
            "transfer_s": self.transfer_s,
            "transfer_per_token_s": self.transfer_per_token_s,
        }


def replay(sent_s: NDArray[np.float64], tokens: NDArray[np.float64], servers: Apart) -> NDArray[np.float64]:
    """From each prompt's sending to its first token; shape (n,).

    A prompt goes to the first of the servers that have the fewest, and waits there for those before it.

    Args:
        sent_s: ascending; shape (n,).
        tokens: shape (n,).
        servers: that compute them.
    """
    import numpy as np

    first = [0.0] * sent_s.size
    each = [_Queue(servers, first) for _ in range(servers.servers)]
    for number, (sent, size) in enumerate(zip(sent_s.tolist(), tokens.tolist(), strict=True)):
        for one in each:
            if one.ends <= sent:
                one.until(sent)
        if len(each) == 1:
            each[0].take(sent, number, size)
        else:
            min(each, key=_Queue.__len__).take(sent, number, size)
    for one in each:
        one.until(float("inf"))
    return np.array(first) - sent_s


class _Queue:
    """One server with what waits before it; first tokens go into a list that is shared."""

    __slots__ = ("_base_s", "_budget", "_first", "_one_by_one", "_per_token_s", "_under_way", "_waiting", "ends")

    def __init__(self, servers: Apart, first: list[float]) -> None:
        self._base_s, self._per_token_s = servers.base_s, servers.per_prompt_token_s
        self._one_by_one = servers.batched_tokens is None
        self._budget = float(servers.batched_tokens or "inf")
        self._first = first
        # What is left of each, and its number.
        self._waiting: deque[tuple[float, int]] = deque()
        self._under_way = 0
        self.ends = float("-inf")

    def __len__(self) -> int:
        return len(self._waiting) + self._under_way

    def take(self, sent: float, number: int, size: float) -> None:
        """A prompt that is sent when all that ends by then has ended."""
        self._waiting.append((size, number))
        if self.ends <= sent:
            self._begin(sent)

    def until(self, now: float) -> None:
        """Let iterations end that do by ``now``, and others begin."""
        while self.ends <= now:
            self._under_way = 0
            if not self._waiting:
                return
            self._begin(self.ends)

    def _begin(self, begun: float) -> None:
        room, waiting, through = self._budget, self._waiting, []
        end = begun + self._base_s
        while waiting and room > 0:
            left, number = waiting[0]
            part = min(left, room)
            room -= part
            end += self._per_token_s * part
            if part < left:
                waiting[0] = (left - part, number)
                break
            waiting.popleft()
            through.append(number)
            if self._one_by_one:
                break
        for number in through:
            self._first[number] = end
        self._under_way, self.ends = len(through), end


def there_s(visit: Observed, transfer_s: float, per_token_s: float) -> NDArray[np.float64]:
    """When each answer may go on: caches go over in the order of first tokens, one after the other; shape (m,).

    The n-th is over when those before it are and it itself is: sums and a running maximum (Lindley 1952).
    """
    import numpy as np

    found = visit.first_s.copy()
    known = np.flatnonzero(reported_tokens(visit))
    order = known[np.argsort(visit.first_s[known], kind="stable")]
    takes = per_token_s * np.nan_to_num(visit.tokens_in[order], nan=0.0)
    sent = np.cumsum(takes)
    found[order] = sent + np.maximum.accumulate(visit.first_s[order] - (sent - takes)) + transfer_s
    return np.minimum(found, visit.last_s)
