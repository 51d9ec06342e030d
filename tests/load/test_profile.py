"""Rates as straight lines."""

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpusize.workload.schedule.rate_profile import RateProfile

NS = 10**9
RATES = st.floats(0, 1e5).map(lambda rate: round(rate, 3))
PHASES = st.lists(
    st.tuples(st.integers(1, 100 * NS), RATES, RATES).map(lambda p: {"duration_ns": p[0], "from": p[1], "to": p[2]}),
    min_size=1,
    max_size=5,
)


def test_totals_of_a_ramp_and_of_bursts():
    ramp = RateProfile(
        [{"duration_ns": 10 * NS, "from": 0.0, "to": 10.0}, {"duration_ns": None, "from": 3.0, "to": 3.0}]
    )
    assert [ramp.total(at * NS) for at in (0, 5, 10, 20)] == [0, Fraction(25, 2), 50, 80]
    bursts = RateProfile(
        [{"duration_ns": 9 * NS, "from": 1.0, "to": 1.0}, {"duration_ns": NS, "from": 11.0, "to": 11.0}], repeat=True
    )
    assert bursts.total(25 * NS) == 45
    assert (ramp.length_ns, bursts.length_ns) == (None, None)
    assert RateProfile(ramp.phases[:1]).length_ns == 10 * NS


@given(PHASES, st.booleans(), st.integers(0, 200 * NS), st.integers(1, 200 * NS))
def test_a_part_has_what_the_whole_has_there(phases, repeat, start, length):
    whole = RateProfile(phases, repeat)
    if not repeat and whole.length_ns is not None and start >= whole.length_ns:
        return
    part = whole.between(start, start + length)
    expected = float(whole.total(start + length) - whole.total(start))
    assert abs(float(part.total(length)) - expected) <= 1e-9 * max(expected, 1)


@given(PHASES, st.lists(st.integers(1, 400 * NS), max_size=6))
def test_parts_add_up(phases, cuts):
    whole = RateProfile(phases)
    end = whole.length_ns
    assert end is not None
    marks = sorted({0, end, *(cut for cut in cuts if cut < end)})
    parts = [float(whole.between(a, b).total(b - a)) for a, b in pairwise(marks)]
    total = float(whole.total(end))
    assert abs(sum(parts) - total) <= 1e-9 * max(total, 1)
