from __future__ import annotations

import itertools
import random

from gpusize.observe.series.intervals import cut, joined, without


def points(intervals) -> set[int]:
    return {at for low, high in intervals for at in range(low + 1, high + 1)}


def drawn(random_: random.Random) -> list[tuple[int, int]]:
    return [(low, low + random_.randrange(12)) for low in random_.sample(range(60), random_.randrange(8))]


def test_they_are_the_same_points_of_time():
    for seed in range(500):
        random_ = random.Random(seed)
        wanted, have = drawn(random_), drawn(random_)
        whole, rest = joined(wanted), without(wanted, have)
        assert points(whole) == points(wanted)
        assert points(rest) == points(wanted) - points(have)
        for each in (whole, rest):
            assert all(low < high for low, high in each)
        assert all(before[1] < after[0] for before, after in itertools.pairwise(whole))
        # Pieces neither overlap nor leave a gap.
        pieces = [piece for interval in whole for piece in cut(interval, 1 + random_.randrange(9))]
        assert points(pieces) == points(whole)
        assert sum(high - low for low, high in pieces) == len(points(whole))
