"""What a request takes, against the records themselves."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize.analysis.compare.comparison import Comparison, compare_sides
from gpusize.analysis.compare.figures import figure
from gpusize.analysis.compare.matching import Run
from gpusize.analysis.compare.spent import Spent
from gpusize.analysis.per_request import energy_per_request, power_w
from gpusize.analysis.pooling import pooled_visits
from gpusize.analysis.server_columns import server_figures
from gpusize.api.groups import grouped, prices_of, with_groups
from gpusize.base.errors import UsageError
from tests.compare.by_hand import about, geometric, measured, rate, run, said

PRICE = 2.5


def compared(runs: list[tuple[Run, dict[str, object]]], by: str, price: object = None) -> Comparison:
    groups = grouped(runs, by)
    return with_groups(compare_sides(groups.sides, shared=False), groups, prices_of(price, groups))  # type: ignore[arg-type]


def of(found: Comparison, side: str, name: str) -> Spent:
    [one] = [each for each in found.spent if (each.side, each.figure) == (side, name)]
    return one


watts = st.floats(20, 700, allow_nan=False)


@settings(max_examples=10)
@given(
    seed=st.integers(0, 10_000),
    users=st.sampled_from([1, 3, 8]),
    mean_ms=st.floats(20, 120),
    power=st.lists(watts, min_size=4, max_size=4),
    cores=st.floats(0.1, 8),
    tokens=st.integers(1, 400),
)
def test_what_a_request_takes_is_what_the_records_say(
    seed: int, users: int, mean_ms: float, power: list[float], cores: float, tokens: int
) -> None:
    takes = {
        gpus: [
            measured(
                users,
                mean_ms=mean_ms / gpus**0.7,
                seed=seed + 10 * gpus + k,
                gpus=gpus,
                watts=[each + k for each in power[:gpus]],
                cores=[cores, cores / 2],
                tokens=tokens,
                failed=0.05,
            )
            for k in range(3)
        ]
        for gpus in (1, 2)
    }
    runs = [(run(f"{g}-{k}", 3 * g + k, [lv]), about(g)) for g, each in takes.items() for k, lv in enumerate(each)]
    found = compared(runs, "gpus", f"{PRICE} EUR")
    for gpus, name in ((1, "1 GPU"), (2, "2 GPUs")):
        rates = [rate(each) for each in takes[gpus]]
        token_rates = [rate(each, "tokens_out") for each in takes[gpus]]
        drawn = [sum(each + k for each in power[:gpus]) for k in range(3)]
        by_hand = {
            "energy per request": [w / r for w, r in zip(drawn, rates, strict=True)],
            "energy per output token": [w / r for w, r in zip(drawn, token_rates, strict=True)],
            "GPU time per request": [gpus / r for r in rates],
            "GPU time per output token": [gpus / r for r in token_rates],
            "CPU time per request": [1.5 * cores / r for r in rates],
            # An hour of these GPUs costs PRICE each, and answers 3600 times the rate.
            "cost per million requests": [1e6 * PRICE * gpus / (3600 * r) for r in rates],
            "cost per million output tokens": [1e6 * PRICE * gpus / (3600 * r) for r in token_rates],
        }
        for figure_name, values in by_hand.items():
            one = of(found, name, figure_name)
            assert one.value == pytest.approx(geometric(values))
            assert one.runs == 3
            logs = [math.log(each) for each in values]
            assert one.spread == pytest.approx(math.expm1(statistics.stdev(logs)), rel=1e-6, abs=1e-9)
            # Student's t for 2 degrees of freedom.
            half = 4.302652729911275 * statistics.stdev(logs) / math.sqrt(3)
            assert math.log(one.high / one.value) == pytest.approx(half, rel=1e-6, abs=1e-9)
            assert math.log(one.value / one.low) == pytest.approx(half, rel=1e-6, abs=1e-9)
            first = of(found, "1 GPU", figure_name)
            assert one.ratio == pytest.approx(one.value / first.value)
            if name != "1 GPU":
                assert one.ratio_low < one.ratio < one.ratio_high
        assert of(found, name, "cost per million requests").unit == "EUR"


def test_energy_is_by_the_counters_where_there_are_some() -> None:
    both = measured(2, mean_ms=50, seed=1, gpus=2, watts=[100, 300], counters=[120, 280])
    assert power_w(both) == 400
    one = measured(2, mean_ms=50, seed=1, gpus=2, watts=[100, 300], counters=[120])
    assert power_w(one) == 420


@pytest.mark.parametrize("told", [1, 3, 5])
def test_the_energy_of_some_gpus_is_not_that_of_a_request(told: int) -> None:
    """Of four GPUs three told, or five did: neither sum is what the target drew."""
    partial = measured(2, mean_ms=50, seed=3, gpus=4, watts=[100.0] * told)
    whole = measured(2, mean_ms=50, seed=4, gpus=2, watts=[100.0] * 2)
    assert energy_per_request(partial) is None
    assert server_figures(partial)["server_energy_per_request_j"] is None
    assert server_figures(whole)["server_energy_per_request_j"] == pytest.approx(200 / rate(whole))
    found = compared([(run("a", 1, [whole]), about(2)), (run("b", 2, [partial]), about(4))], "gpus")
    assert {each.side for each in found.spent if each.figure == "energy per request"} == {"2 GPUs"}
    told_of = "1 GPU for the 4 behind its target told" if told == 1 else f"{told} GPUs for the 4 behind its target told"
    assert told_of in found.untold["4 GPUs"]


def test_energy_needs_the_number_of_gpus() -> None:
    runs = [
        (run(str(k), k, [measured(2, mean_ms=50, seed=k, gpus=k, watts=[100.0])]), about(k, device=str(k)))
        for k in (0, 1)
    ]
    found = compared(runs, "device")
    assert {each.side for each in found.spent if each.figure == "energy per request"} == {"device 1"}
    assert found.untold == {"device 0": "nobody said how many GPUs stand behind its target"}


def test_one_run_that_does_not_tell_leaves_its_side_without() -> None:
    pair = [measured(2, mean_ms=50, seed=k, gpus=1, watts=[100.0] * (k % 2)) for k in range(2)]
    other = measured(2, mean_ms=50, seed=9, gpus=2, watts=[100.0, 100.0])
    runs = [(run(str(k), k, [lv]), about(1)) for k, lv in enumerate(pair)]
    found = compared([*runs, (run("c", 5, [other]), about(2))], "gpus")
    assert {each.side for each in found.spent if each.figure == "energy per request"} == {"2 GPUs"}
    assert found.untold == {"1 GPU": "no GPU told of its power"}
    [one] = [each for each in found.spent if each.figure == "energy per request"]
    assert math.isnan(one.ratio)


def test_nothing_is_said_of_energy_that_nobody_measured() -> None:
    runs = [(run(str(g), g, [measured(2, mean_ms=50, seed=g, gpus=g)]), about(g)) for g in (1, 2)]
    found = compared(runs, "gpus")
    assert found.untold == {}
    assert {each.figure for each in found.spent} == {"GPU time per request"}


def test_visits_of_one_run_are_weighed_by_their_time() -> None:
    visits = [
        measured(2, mean_ms=50, seed=1, watts=[100.0], seconds=4),
        measured(2, mean_ms=50, seed=2, watts=[300.0], seconds=8),
    ]
    spans = [(v.window()[1] - v.window()[0]) / 1e9 for v in visits]
    joules = sum(w * s for w, s in zip((100, 300), spans, strict=True))
    answered = sum(rate(v) * s for v, s in zip(visits, spans, strict=True))
    assert energy_per_request(pooled_visits(visits)) == pytest.approx(joules / answered)


def test_cpu_time_needs_all_that_were_sampled() -> None:
    told = measured(2, mean_ms=50, seed=1, cores=[1.0, None])
    assert math.isnan(figure("CPU time per request").measure(told).value)
    assert math.isnan(figure("CPU time per request").measure(measured(2, mean_ms=50, seed=1)).value)


def test_empty_fields_of_an_import_are_no_figures() -> None:
    """perf_analyzer of a CPU or of a remote server leaves its GPU fields empty; the seed's scripts crashed on them."""
    runs = [(run(str(g), g, [said(4, 10.0 * g, gpus=g, more={"server": None})]), about(g)) for g in (1, 2)]
    found = compared(runs, "gpus")
    assert {each.figure for each in found.spent} == {"GPU time per request"}
    assert of(found, "2 GPUs", "GPU time per request").value == pytest.approx(2 / 20)


def test_a_price_for_each_device() -> None:
    levels = {"a100": said(4, 10.0), "h100": said(4, 25.0), "cpu": said(4, 1.0, gpus=0)}
    runs = [
        (run(name, k, [lv]), about(0 if name == "cpu" else 1, device=name))
        for k, (name, lv) in enumerate(levels.items())
    ]
    found = compared(runs, "device", "h100=3 EUR, a100=1.2 EUR")
    costs = {each.side: each for each in found.spent if each.figure == "cost per million requests"}
    assert costs["device a100"].value == pytest.approx(1e6 * 1.2 / 36_000)
    assert costs["device h100"].value == pytest.approx(1e6 * 3 / 90_000)
    assert costs["device h100"].ratio == pytest.approx((3 / 90_000) / (1.2 / 36_000))
    assert set(costs) == {"device a100", "device h100"}
    assert compared(runs, "device", {"h100": 3, "a100": 1.2}).spent[0].unit == found.spent[0].unit
    for price, match in (
        ("h100=3 EUR, a100=1 USD", "different currencies"),
        ("b200=3", "no run has device b200"),
        ("h100=much", "is not a price"),
        ("0", "above 0"),
    ):
        with pytest.raises(UsageError, match=match):
            compared(runs, "device", price)


def test_rates_and_failures_of_imports_are_compared() -> None:
    counts = {"counts": {"n": 200, "errors": 5, "tokens_out_per_s": 120.0}}
    level = said(4, 10.0, more=counts)
    assert figure("achieved rate").measure(level).value == 10
    assert figure("output rate").measure(level).value == 120
    assert figure("error share").measure(level).value == pytest.approx(0.025)
    wrong = replace(level, meta={**level.meta, "counts": {"n": 5, "errors": 9}})
    assert math.isnan(figure("error share").measure(wrong).value)
