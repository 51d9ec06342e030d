"""Lengths of answers, sharper than their own histogram: by what the histogram of runtimes says in calm times.

Where nobody waits a request takes as long as its answer is, so the edges of runtimes are further edges of lengths. Of a
replay it is known which length fell between which edges at which load; lengths are weighted until the replay's shares
are those of the pages, by the algorithm of Richardson (1972) and Lucy (1974), which climbs the likelihood. Shares of
the buckets of lengths, and their mean, stay what they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpusize.estimate.telemetry.lengths import Lengths

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.telemetry.production import Production
    from gpusize.estimate.telemetry.replay import Replayed

__all__ = ["sharper"]

ROUNDS: Final = 25
"""More of them would follow chance."""
BINS: Final = 150
"""Of lengths."""
CALM: Final = 0.1
"""Groups with so many waiting for each at work, or fewer, are calm."""
FEWEST: Final = 300
PAIRS: Final = 20_000


def sharper(lengths: Lengths, production: Production, replays: Sequence[Replayed]) -> Lengths:
    """Lengths whose replay has the runtimes of the pages; as they are where these tell nothing, or a log told them."""
    import numpy as np

    buckets = production.steps.buckets.get("request_time")
    calm = _calm(production)
    if lengths.told_by != "histograms" or buckets is None or not calm.size:
        return lengths
    known = np.isfinite(buckets.counts).all(axis=1)
    rows = [each.requests() for each in replays]
    output, prompt, took, group = (np.concatenate([each[k] for each in rows]) for k in range(4))
    inside = np.isin(group, calm)
    output, prompt, took, group = output[inside], prompt[inside], took[inside], group[inside]
    cell = np.searchsorted(buckets.bounds, took, "left") + buckets.bounds.size * np.searchsorted(calm, group)
    wanted = []
    for each in calm:
        counts = buckets.counts[known & (production.of_step == each)].sum(axis=0)
        found = np.diff(counts, prepend=0.0)
        mine = float((group == each).sum())
        wanted.append(np.maximum(found, 0.0) / max(1.0, found.sum()) * mine)
        if found.sum() < FEWEST or mine < FEWEST:
            return lengths
    edges = np.unique(np.quantile(output, np.linspace(0, 1, BINS + 1), method="inverted_cdf"))
    place = np.searchsorted(edges, output, "left")
    table = np.zeros((edges.size, len(calm) * buckets.bounds.size))
    np.add.at(table, (place, cell), 1.0)
    weight = _weighed(table, np.concatenate(wanted))
    own = production.steps.buckets["output_length"].bounds
    weight = _as_before(weight, table.sum(axis=1), np.searchsorted(own, edges, "left"), edges)
    chosen = weight[place] / weight[place].sum()
    rng = np.random.default_rng(2)
    # Evenly through the weights: no draw adds chance of its own.
    at = np.searchsorted(np.cumsum(chosen), (np.arange(PAIRS) + rng.random()) / PAIRS)
    at = np.minimum(at, output.size - 1)
    return Lengths(prompt[at].astype(np.uint32), output[at].astype(np.uint32), lengths.told_by)


def _calm(production: Production) -> NDArray[np.int64]:
    """Groups in which hardly anybody waits, ascending."""
    import numpy as np

    waiting, running = np.nan_to_num(production.waiting), np.nan_to_num(production.running)
    sums = [np.bincount(production.of_step, weights=each, minlength=production.groups) for each in (waiting, running)]
    return np.flatnonzero(sums[0] <= CALM * np.maximum(sums[1], 1.0))


def _weighed(table: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of lengths by which the table's columns sum to what is wanted, as far as they can."""
    import numpy as np

    weight, total = np.ones(table.shape[0]), np.maximum(table.sum(axis=1), 1e-12)
    for _ in range(ROUNDS):
        found = weight @ table
        ratio = np.where(found > 0, wanted / np.maximum(found, 1e-12), 1.0)
        weight = weight * np.clip((table @ ratio) / total, 0.02, 50.0)
    return weight


def _as_before(
    weight: NDArray[np.float64], n: NDArray[np.float64], bucket: NDArray[np.int64], lengths: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The weights with each bucket's share of lengths, and their mean, as without them."""
    import numpy as np

    mean = float((n @ lengths) / n.sum())
    share = np.bincount(bucket, weights=n)

    def kept(tilt: float) -> NDArray[np.float64]:
        bent = weight * np.exp(tilt * (lengths / mean - 1))
        now = np.bincount(bucket, weights=n * bent)
        return np.asarray(bent * (share / np.maximum(now, 1e-12))[bucket])

    low, high = -20.0, 20.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        found = kept(middle)
        low, high = (middle, high) if float((n * found) @ lengths) / n.sum() < mean else (low, middle)
    return kept(0.5 * (low + high))
