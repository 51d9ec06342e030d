"""The text form of stages and think times."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from gpusize.base.errors import UsageError
from gpusize.workload.load import Bursts, Stage, Think, parse_stages, parse_think

RATES = st.floats(0, 1e8, allow_nan=False).map(lambda rate: round(rate, 6))
TIMES = st.integers(1, 10**9).map(lambda ms: ms / 1000)


@st.composite
def open_stages(draw):
    start = draw(RATES)
    bursts = None
    end = draw(st.none() | RATES)
    if end is None and draw(st.booleans()):
        length = draw(TIMES)
        bursts = Bursts(draw(RATES), length, round(length + draw(TIMES), 3))
    process = draw(st.sampled_from([None, "constant", "poisson", "gamma"]))
    shape = draw(st.none() | st.floats(1e-3, 1e3)) if process == "gamma" else None
    return Stage(start, end, draw(TIMES), process=process, shape=shape, bursts=bursts)


@given(st.lists(open_stages(), min_size=1, max_size=5))
def test_what_is_written_is_read_back(stages):
    assert parse_stages(", ".join(map(str, stages))) == tuple(stages)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6), TIMES), min_size=1, max_size=5))
def test_concurrencies_are_read_back(values):
    stages = [Stage(start, end, time, kind="closed") for start, end, time in values]
    assert parse_stages(",".join(map(str, stages))) == tuple(stages)


def test_the_forms_of_the_reference():
    stages = parse_stages("0.5/s@10m, 60/m .. 50/s@5m, 10/s burst 100/s for 1s every 10s gamma(0.5)@1h30m, 0/s@90,")
    assert stages == (
        Stage(0.5, None, 600),
        Stage(1, 50, 300),
        Stage(10, None, 5400, process="gamma", shape=0.5, bursts=Bursts(100, 1, 10)),
        Stage(0, None, 90),
    )
    assert parse_stages("8@1m,\n8..64@5m") == (Stage(8, 8, 60, "closed"), Stage(8, 64, 300, "closed"))


@pytest.mark.parametrize(
    "text, column, what",
    [
        ("", 1, "a stage is missing"),
        ("1/s", 4, "the duration is missing"),
        ("1/x@3m", 3, "'x' is not a unit of time"),
        ("1/s@", 5, "a duration is missing"),
        ("1/s @ 10 parsecs", 7, '"10 parsecs" is not a duration'),
        ("1/s@0s", 5, "duration must be positive, not 0 s"),
        ("8@1m, 1/s@2m", 7, "rates and concurrencies are mixed"),
        ("1/s..8@1m", 6, "a ramp goes from a rate to a count"),
        ("1/s..@1m", 6, "the end of the ramp is missing"),
        ("8.5@1m", 1, "8.5 is not a count of requests"),
        ("0@1m", 1, "concurrency must be 1 or more, not 0"),
        ("1/s foo@1m", 5, "'foo' is not an arrival process"),
        ("1/s poisson poisson@1m", 13, "'poisson' is given twice"),
        ("8 poisson@1m", 3, "'poisson' belongs to a rate"),
        ("1/s gamma(0)@1m", 11, "'0' is not a burstiness"),
        ("1/s gamma(1@1m", 12, "a bracket is not closed"),
        ("1/s burst@1m", 10, "the rate of the bursts is missing"),
        ("1/s burst 3@1m", 11, "bursts have a rate"),
        ("1/s burst 3/s@1m", 14, "the length of a burst is missing"),
        ("1/s burst 3/s for 1s@1m", 21, "the period of the bursts is missing"),
        ("1/s burst 3/s for 2s every 1s@1m", 5, "a burst is as long as its period"),
        ("1/s..2/s burst 3/s for 1s every 2s@1m", 10, "a ramp cannot have bursts"),
        ("1/s@1m 2/s@1m", 8, "'2' is not expected here"),
        ("1/s$@1m", 4, "unexpected '$'"),
        ("999999999/s@1m", 1, "a rate must be at most 1e+08/s, not 1e+09/s"),
    ],
)
def test_errors_point_at_the_column(text, column, what):
    with pytest.raises(UsageError) as caught:
        parse_stages(text)
    assert (caught.value.what[: len(what)], caught.value.where) == (what, f"stages, column {column}")
    pointer = str(caught.value).splitlines()[-1]
    assert pointer == f"  {' ' * (column - 1)}^"


def test_errors_in_a_text_of_several_lines_name_the_line():
    with pytest.raises(UsageError) as caught:
        parse_stages("1/s@1m,\n  2/q@1m\n")
    assert caught.value.where == "stages, line 2, column 5"
    assert str(caught.value).splitlines()[-2:] == ["    2/q@1m", "      ^"]


@given(
    st.one_of(
        st.builds(Think, st.just("fixed"), TIMES),
        st.builds(Think, st.just("exponential"), TIMES),
        st.builds(lambda low, more: Think("uniform", low, round(low + more, 3)), TIMES, TIMES),
        st.builds(Think, st.just("lognormal"), TIMES, st.integers(0, 1000).map(lambda n: n / 100)),
        st.just(Think("recorded")),
    )
)
def test_think_times_are_read_back(think):
    assert parse_think(str(think)) == think


@pytest.mark.parametrize(
    "text, wire",
    [
        ("2s", {"fixed": 2_000_000_000}),
        ("exp(2s)", {"exponential": 2_000_000_000}),
        ("uniform(1s, 3s)", {"uniform": [1_000_000_000, 3_000_000_000]}),
        ("lognormal(500ms,0.5)", {"lognormal": [500_000_000, 0.5]}),
        ("recorded", "recorded"),
    ],
)
def test_think_times_of_the_engine(text, wire):
    assert parse_think(text).wire() == wire


@pytest.mark.parametrize(
    "text, column",
    [("", 1), ("soon", 1), ("exp", 4), ("exp(", 5), ("exp(2s", 7), ("uniform(1s)", 11), ("uniform(3s,1s)", 1),
     ("lognormal(1s,x)", 14), ("lognormal(1s,99)", 1), ("2s 3s", 4), ("exp(2s) 1", 9)],
)  # fmt: skip
def test_think_times_that_cannot_be_meant(text, column):
    with pytest.raises(UsageError) as caught:
        parse_think(text)
    assert caught.value.where == f"think, column {column}"
    assert caught.value.todo


@pytest.mark.parametrize(
    "think, pauses",
    [
        (Think("fixed", 2.0), lambda share: np.full_like(share, 2.0)),
        (Think("uniform", 1.0, 4.0), lambda share: 1 + 3 * share),
        (Think("exponential", 2.0), lambda share: -2 * np.log1p(-share)),
        (Think("lognormal", 2.0, 0.5), lambda share: 2 * np.exp(0.5 * scipy.stats.norm.ppf(share))),
    ],
)
def test_mean_and_deviation_are_those_of_the_pauses(think, pauses):
    # The pauses that so large a share is shorter than, for shares in even steps.
    all_s = pauses((np.arange(1_000_000) + 0.5) / 1_000_000)
    assert think.mean_s == pytest.approx(all_s.mean(), rel=1e-3)
    assert think.deviation_s == pytest.approx(all_s.std(), rel=1e-3, abs=1e-9)


@pytest.mark.parametrize(
    "make, what",
    [
        (lambda: Stage(1, 2, 60, process="bursty"), "not an arrival process"),
        (lambda: Stage(1, 2, 60, shape=0.5), "belongs to gamma"),
        (lambda: Stage(1, 1, 60, process="gamma", shape=0), "burstiness:? must be at least 0.001, not 0"),
        (lambda: Stage(8, 8, 60, "closed", process="poisson"), "a concurrency has no arrival process"),
        (lambda: Stage(1, 2, 60, bursts=Bursts(1, 1, 2)), "a ramp cannot have bursts"),
        (lambda: Think("later"), "is not a think time"),
        (lambda: Think("uniform", 1), "does not take these values"),
        (lambda: Think("fixed", 1, 2), "does not take these values"),
    ],
)
def test_values_that_cannot_be_meant(make, what):
    with pytest.raises(UsageError, match=what):
        make()
