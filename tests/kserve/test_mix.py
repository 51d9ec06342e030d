"""Several models in one run."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.base.errors import UsageError
from gpusize.targets.kserve.mix import interleave, parse_models


@pytest.mark.parametrize(
    "text,models",
    [
        ("m", {"m": 1}),
        ("a=3,b=1", {"a": 3, "b": 1}),
        ("a,b", {"a": 1, "b": 1}),
        ("a=2 , b", {"a": 2, "b": 1}),
        ("x=y=2", {"x=y": 2}),
    ],
)
def test_models_and_weights(text, models):
    assert parse_models(text) == models


@pytest.mark.parametrize("text", ["a=0,b=1", "a=x,b", "a=1,a=2", ",", "a=1,", "=2,b"])
def test_what_is_no_mix(text):
    with pytest.raises(UsageError):
        parse_models(text)


def test_shares_are_spread_evenly():
    models = [model for model, _ in interleave([3, 1], [1, 1])]
    assert models == [0, 0, 1, 0]
    assert [model for model, _ in interleave([5, 1, 1], [1, 1, 1])] == [0, 0, 1, 0, 2, 0, 0]


shares = st.lists(st.tuples(st.integers(1, 7), st.integers(1, 6)), min_size=1, max_size=4)


@given(shares)
def test_a_cycle_is_fair(given_shares):
    weights, lengths = ([pair[index] for pair in given_shares] for index in (0, 1))
    cycle = interleave(weights, lengths)
    rounds = len(cycle) // sum(weights)
    assert Counter(model for model, _ in cycle) == {number: rounds * weight for number, weight in enumerate(weights)}
    for number, length in enumerate(lengths):
        rows = [row for model, row in cycle if model == number]
        assert rows == [turn % length for turn in range(len(rows))]
        assert len(rows) % length == 0
    seen = [0] * len(weights)
    for position, (model, _) in enumerate(cycle, start=1):
        seen[model] += 1
        fair = [position * weight / sum(weights) for weight in weights]
        assert all(abs(have - want) < len(weights) for have, want in zip(seen, fair, strict=True))


def test_a_cycle_without_end_is_refused():
    with pytest.raises(UsageError, match="one cycle of this mix"):
        interleave([1, 1], [999_983, 999_979])
