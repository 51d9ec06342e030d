"""Native histograms against numpy over the raw observations, in windows, through the reader of answers."""

from __future__ import annotations

import numpy as np
import pytest

from gpusize.analysis.series import bucket_rises
from gpusize.observe.series.answer import samples_of
from gpusize.observe.series.definition import Definition, Source

TIME = Definition("time", "", "histogram", "s", (Source("t_seconds"),))
S = 1_000_000_000


def native(values: np.ndarray, schema: int) -> dict:
    """As the server shows it: buckets of base 2 ** 2 ** -schema, only those that hold something."""
    places = np.ceil(np.log2(values) * 2**schema - 1e-12).astype(int)
    found, counts = np.unique(places, return_counts=True)

    def bound(place: int) -> str:
        # Bounds of a coarser schema are among those of a finer one, to the last bit.
        return repr(2.0 ** (place / 2**schema))

    pairs = zip(found.tolist(), counts.tolist(), strict=True)
    buckets = [[0, bound(place - 1), bound(place), str(n)] for place, n in pairs]
    return {"count": str(values.size), "sum": str(float(values.sum())), "buckets": buckets}


@pytest.mark.parametrize("seed", range(30))
def test_percentiles_lie_in_the_bucket_that_is_told(seed: int):
    random = np.random.default_rng(seed)
    series, raw = [], []
    for pod in "ab":
        values = random.lognormal(-1, 1, 800)
        at = np.sort(random.uniform(0, 600, values.size))
        # A server halves the resolution when there are too many buckets.
        coarse = random.uniform(200, 500) if random.random() < 0.5 else 1e9
        points = []
        for t in range(15, 601, 15):
            seen = values[at <= t]
            points.append([float(t), native(seen, 3 if t < coarse else 2)])
        series.append({"metric": {"__name__": "t_seconds", "pod": pod}, "histograms": points})
        raw.append(values[(at > 150) & (at <= 450)])
    frame = samples_of({"resultType": "matrix", "result": series}, (TIME,), 0).frame
    [rise] = bucket_rises(frame, [(150 * S, 450 * S)], name="time")
    every = np.concatenate(raw)
    assert rise.count == every.size
    for bound, count in zip(rise.bounds, rise.counts, strict=True):
        assert count == (every <= bound * (1 + 1e-9)).sum()
    widths = []
    for share in (0.05, 0.5, 0.95, 0.99):
        told = rise.percentile(share)
        assert told is not None
        exact = float(np.quantile(every, share, method="inverted_cdf"))
        assert told.low * (1 - 1e-9) <= exact <= told.high * (1 + 1e-9)
        widths.append(told.high / told.low)
    # As narrow as the coarser of the two resolutions, where buckets are full.
    assert widths[1] <= 2**2**-2.0 + 1e-9
