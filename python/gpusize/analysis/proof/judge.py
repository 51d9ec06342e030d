"""Whether requests keep an SLO, by all that was measured so far, with stated chances of being wrong; and why not yet.

What is known of each request comes in parts without a gap. A part's first requests are its warm-up and do not count.
The rest is cut into blocks (`gpusize.analysis.proof.blocks`), and their shares are what is bet on
(`gpusize.analysis.proof.betting`). It may be asked after any request: the chances of being wrong are of all times
together. Why it is done like this: docs/decisions/0043-proofs-by-betting.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from gpusize.analysis.proof.betting import Bets
from gpusize.analysis.proof.blocks import LEAST_BLOCKS, block_length, block_means
from gpusize.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Judged", "Part", "PartCalls", "SloJudged", "Terms", "Verdict", "judge"]

Verdict = Literal["kept", "not kept", "undecided"]

LEAST_ERROR: Final = 1e-6
MOST_ERROR: Final = 0.5
MOST_MARGIN: Final = 0.1


@dataclass(frozen=True, slots=True)
class Terms:
    """What a proof promises, and what it rests on.

    Attributes:
        alpha: chance of saying "kept" of what is not, over all looks together.
        beta: chance of saying "not kept" of what is.
        margin: where the share is known to lie within this of what is asked for, it is left undecided; 0.005 is half
            a per cent of the requests.
        warmup_rounds: rounds at the start of each part that do not count. A round is as many requests as are in flight.
        least_rounds: rounds that count before anything is said.

    Raises:
        UsageError: a number is out of its range.
    """

    alpha: float = 0.05
    beta: float = 0.05
    margin: float = 0.005
    warmup_rounds: float = 8.0
    least_rounds: float = 20.0

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if not LEAST_ERROR <= value <= MOST_ERROR:
                raise UsageError(f"{name} must be from {LEAST_ERROR:g} to {MOST_ERROR:g}, not {value:g}", name,
                                 "give a chance of being wrong, as 0.05 or 5%")  # fmt: skip
        if not 0 <= self.margin <= MOST_MARGIN:
            raise UsageError(f"the margin must be from 0 to {MOST_MARGIN:g}, not {self.margin:g}", "margin",
                             "give a share of the requests, as 0.5%")  # fmt: skip
        for name in ("warmup_rounds", "least_rounds"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise UsageError(f"{name} must not be below 0", name, "leave it out for the usual number")

    def to_json(self) -> dict[str, float]:
        """Plain JSON types."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class PartCalls(NamedTuple):
    """The calls inside the requests of a part, request by request.

    Attributes:
        of: the place of its request, ascending; shape (n,).
        within: 1 where a call kept the SLO and 0 where not; NaN where it does not tell. Likewise.
        took_s: how long it took, seconds; likewise.
    """

    of: NDArray[np.intp]
    within: NDArray[np.float64]
    took_s: NDArray[np.float64]

    def after(self, skipped: int) -> PartCalls:
        """Those without the calls of the first requests, which count no more."""
        kept = self.of >= skipped
        return PartCalls(self.of[kept] - skipped, self.within[kept], self.took_s[kept])


class Part(NamedTuple):
    """Requests of one load without a gap, in the order in which they were due.

    Attributes:
        within: by SLO, 1 where a request kept it and 0 where not; NaN where it does not tell, as without a token;
            shape (SLOs, n).
        runtime_s: from when each was due to its end, seconds; what never ended counts as long as the longest.
            Shape (n,).
        calls: by the number of its SLO, where that is about calls inside requests: then these are judged.
    """

    within: NDArray[np.float64]
    runtime_s: NDArray[np.float64]
    calls: Mapping[int, PartCalls] = MappingProxyType({})

    def after(self, skipped: int) -> Part:
        """The part without its first requests."""
        calls = {number: each.after(skipped) for number, each in self.calls.items()}
        return Part(self.within[:, skipped:], self.runtime_s[skipped:], calls)

    def told(self, number: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Which requests or calls kept an SLO, and how long they took; shape (n,) each."""
        import numpy as np

        calls = self.calls.get(number)
        within, took_s = (self.within[number], self.runtime_s) if calls is None else (calls.within, calls.took_s)
        return np.asarray(within, dtype=float), np.asarray(took_s, dtype=float)


@dataclass(frozen=True, slots=True)
class SloJudged:
    """One SLO.

    Attributes:
        slo: its text.
        share: the share of requests within its bound that is asked for.
        verdict: by this SLO alone.
        attainment: the share that was measured; NaN for none.
        low: no lower share is believed, with ``alpha``, at whatever time one looks.
        high: no higher share is believed, with ``beta``.
        requests: that count; calls where the SLO is about those. So are the following.
        missed: of these, how many were not within the bound.
        unknown: how many do not tell; against "kept" they count as missed, against "not kept" as within.
        block: requests in a block.
        blocks: how many there are.
        of: ``requests`` or ``calls``.
    """

    slo: str
    share: float
    verdict: Verdict
    attainment: float
    low: float
    high: float
    requests: int
    missed: int
    unknown: int
    block: int
    blocks: int
    of: str = "requests"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**found, "attainment": None if math.isnan(self.attainment) else self.attainment}


@dataclass(frozen=True, slots=True)
class Judged:
    """All SLOs of one load.

    Attributes:
        verdict: ``kept`` where all are; ``not kept`` where one is not; ``undecided``.
        why: in words.
        slos: one by one.
        requests: that count.
        warmup: requests that were left out as warm-up.
        in_flight: requests in a round.
        settled: whether more requests would not change ``undecided``: the share lies within the margin.
        enough: whether as many requests count as are the least.
    """

    verdict: Verdict
    why: str
    slos: tuple[SloJudged, ...]
    requests: int
    warmup: int
    in_flight: float
    settled: bool = False
    enough: bool = True

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**found, "slos": [each.to_json() for each in self.slos]}


def judge(
    parts: Sequence[Part],
    slos: Sequence[tuple[str, float]],
    terms: Terms,
    *,
    in_flight: float,
    blocks: Mapping[int, int] | None = None,
) -> Judged:
    """Judge by all that there is.

    Args:
        parts: what was measured.
        slos: text and share of each, in the order of the rows of ``within``.
        terms: what is promised.
        in_flight: requests in a round: the users, or those in flight at the rate.
        blocks: least length of a block by SLO, from an earlier look.
    """
    skipped = math.ceil(terms.warmup_rounds * in_flight)
    counted = [each.after(skipped) for each in parts]
    counted = [each for each in counted if each.runtime_s.size]
    requests = sum(each.runtime_s.size for each in counted)
    warmup = sum(min(skipped, each.runtime_s.size) for each in parts)
    least = math.ceil(terms.least_rounds * in_flight)
    enough = requests >= max(least, LEAST_BLOCKS)
    found = tuple(
        _one(k, text, share, counted, terms, len(slos), (blocks or {}).get(k, 1), enough=enough)
        for k, (text, share) in enumerate(slos)
    )
    verdict, why, settled = _together(found, terms)
    if not enough:
        why = f"{requests:,} of the {least:,} requests that are the least, {terms.least_rounds:g} for each in flight"
    return Judged(verdict, why, found, requests, warmup, in_flight, settled and enough, enough)


def _one(
    k: int,
    text: str,
    share: float,
    parts: Sequence[Part],
    terms: Terms,
    several: int,
    least: int,
    *,
    enough: bool,
) -> SloJudged:
    import numpy as np

    told, took = [each.told(k)[0] for each in parts], [each.told(k)[1] for each in parts]
    worst = [np.nan_to_num(each, nan=0.0) for each in told]
    best = [np.nan_to_num(each, nan=1.0) for each in told]
    requests = sum(each.size for each in told)
    unknown = sum(int(np.isnan(each).sum()) for each in told)
    good = sum(int(each.sum()) for each in worst)
    length = block_length(worst, took, least)
    low_means = block_means(worst, length)
    low = Bets(low_means).low(terms.alpha)
    # One SLO that is said to be missed is enough for a wrong "not kept": they share beta.
    high = Bets(block_means(best, length)).high(terms.beta / several)
    verdict: Verdict = "undecided"
    if enough and low_means.size >= LEAST_BLOCKS:
        if low >= share and _later(worst) >= share:
            verdict = "kept"
        elif high < share:
            verdict = "not kept"
    judged = requests - unknown
    attainment = good / judged if judged else math.nan
    of = "calls" if any(k in each.calls for each in parts) else "requests"
    return SloJudged(text, share, verdict, attainment, low, high, requests, judged - good, unknown, length,
                     int(low_means.size), of)  # fmt: skip


def _later(parts: Sequence[NDArray[np.float64]]) -> float:
    """The share in the second half: what still worsens is not kept by its better beginning."""
    import numpy as np

    whole = np.concatenate(parts) if parts else np.zeros(0)
    half = whole[whole.size // 2 :]
    return float(half.mean()) if half.size else 0.0


def _open_text(each: SloJudged) -> str:
    """What is known of an SLO without a verdict; where its bounds alone would be one, why they are none."""
    if each.blocks < LEAST_BLOCKS:
        blocks = f"{each.blocks} block{'' if each.blocks == 1 else 's'} of {each.block:,} {each.of}"
        return (
            f"{each.slo}: {100 * each.attainment:.4g} % of the {each.of} so far are within, "
            f"{100 * each.share:.6g} % are asked for, but what happens to one tells of the next ones, so that they "
            f"count as {blocks}, and {LEAST_BLOCKS} are the least: measure for longer"
        )
    text = (
        f"between {100 * each.low:.4g} and {100 * each.high:.4g} % are within {each.slo}, "
        f"{100 * each.share:.6g} % are asked for"
    )
    return f"{text}, of the later half of the {each.of} fewer are" if each.low >= each.share else text


def _together(found: Sequence[SloJudged], terms: Terms) -> tuple[Verdict, str, bool]:
    missed = [each for each in found if each.verdict == "not kept"]
    if missed:
        worst = min(missed, key=lambda each: each.high - each.share)
        what = f"at most {100 * worst.high:.4g} % of the {worst.of} are within {worst.slo}"
        return "not kept", f"{what}, {100 * worst.share:.6g} % are asked for", False
    if found and all(each.verdict == "kept" for each in found):
        text = "; ".join(f"at least {100 * each.low:.4g} % are within {each.slo}" for each in found)
        return "kept", text, False
    open_ = [each for each in found if each.verdict == "undecided"]
    if not open_:
        return "undecided", "there is no SLO", True
    named = "; ".join(map(_open_text, open_))
    close = [each for each in open_ if max(each.share - each.low, each.high - each.share) <= terms.margin]
    if close and len(close) == len(open_):
        return "undecided", f"{named}: too near to tell, the margin is {100 * terms.margin:.4g} %", True
    return "undecided", named, False
