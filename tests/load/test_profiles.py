"""Loads by name, held against the shapes that the experiments' own descriptions give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.base.errors import UsageError
from gpusize.options.assemble import read_options
from gpusize.options.load import load_from_options
from gpusize.workload.dataset.distributions import parse_lengths
from gpusize.workload.load.profiles import profile_names, profile_options


def rate_of_pods(pods: list[tuple[float, float, float]], at_s: float) -> float:
    """Requests per second of generators that each send at a rate from a start for so long."""
    return sum(rate for rate, start_s, length_s in pods if start_s <= at_s < start_s + length_s)


# (rate, start, length) of each generator, as the experiments' pipelines start them.
PODS = {
    "stair": [(0.5, 600.0 * k, 3600.0 - 600 * k) for k in range(4)],
    "ramp": [(0.5, 600.0 * k, 3000.0 - 600 * k) for k in range(4)],
    "spike": [(0.1, 0.0, 2100.0), (1.0, 900.0, 600.0)],
    "burst-drain": [(1.0, 1200.0 * k, 600.0) for k in range(3)],
    "sustained": [(1.0, 0.0, 3600.0)],
    "mixed": [(1.0, 0.0, 3600.0)],
}


def rates(options: dict[str, object]) -> list[tuple[float, float]]:
    """(rate, length) of each stage of the load that options make."""
    return [(stage.start, stage.duration_s) for stage in load_from_options(options).stages]


def test_every_profile_is_known_here() -> None:
    assert set(profile_names()) == set(PODS)


@given(st.sampled_from(sorted(PODS)), st.sampled_from([0.5, 1, 4, 60]), st.sampled_from([0.25, 1, 3]))
def test_a_profile_is_what_its_generators_add_up_to(name: str, speed: float, rate_scale: float) -> None:
    stages = rates({"profile": name, "speed": speed, "rate_scale": rate_scale})
    ends = np.cumsum([length for _, length in stages])
    for (rate, length), end in zip(stages, ends, strict=True):
        for share in (0.01, 0.5, 0.99):
            at_s = float(end - length + share * length) * speed
            assert rate == pytest.approx(rate_of_pods(PODS[name], at_s) * speed * rate_scale)
    whole_s = max(start + length for _, start, length in PODS[name])
    assert ends[-1] * speed == pytest.approx(whole_s)
    requests = sum(rate * length for rate, length in stages)
    assert requests == pytest.approx(rate_scale * sum(rate * length for rate, _, length in PODS[name]))


def test_mixed_brings_its_prompts_unless_there_are_others() -> None:
    options, _ = read_options(None, {"profile": "mixed"})
    assert "normal(8000,8500,50,30000)" in options["synthetic"]
    options, _ = read_options(None, {"profile": "mixed", "prompt": ["Hello"]})
    assert "synthetic" not in options
    assert "synthetic" not in read_options(None, {"profile": "ramp"})[0]
    assert "rows=1000" in profile_options("mixed")["synthetic"]


def test_what_a_profile_cannot_be_beside() -> None:
    with pytest.raises(UsageError, match="a profile and rates are both given"):
        load_from_options({"profile": "ramp", "rates": "3"})
    with pytest.raises(UsageError, match='no profile "ramps"'):
        load_from_options({"profile": "ramps"})
    with pytest.raises(UsageError, match="speed"):
        load_from_options({"profile": "ramp", "speed": 0})


def test_one_on_the_command_line_takes_the_place_of_levels_in_a_file(tmp_path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('stages = "1/s@1s"\nprocess = "poisson"\n')
    options, _ = read_options(file, {"profile": "spike"})
    load = load_from_options(options)
    assert [stage.duration_s for stage in load.stages] == [900, 600, 600]
    assert load.process == "poisson"
    assert load_from_options({"profile": "spike"}).process == "constant"


def test_bounds_of_a_normal_hold_what_is_beyond_them() -> None:
    lengths = parse_lengths("normal(8000,8500,50,30000)", "input")
    assert [lengths.of(u) for u in (1e-9, 1 - 1e-9)] == [50, 30_000]
    assert lengths.of(0.5) == pytest.approx(8000)
    for text in ("normal(1,2,3)", "normal(5,1,9,2)", "normal(5,1,0,2)", "lognormal(5,1,1,2)"):
        with pytest.raises(UsageError):
            parse_lengths(text, "input")
