"""What servers said, as columns of the summary: for several GPUs, for some that say nothing, beside our own times."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from gpusize.analysis.server_columns import SERVER_COLUMNS
from gpusize.report.figures.plots import figures
from gpusize.report.summary.sections import sections
from gpusize.result import Result
from tests.report.folders import gpus, level_columns, run_folder, server_row
from tests.report.test_plots import texts


def summary(place, facts):
    return Result([run_folder(place / "r", {c: level_columns(c) for c in facts}, facts=facts)]).summary


def test_shares_of_several_gpus_stay_shares_and_power_adds_up(tmp_path):
    rows = gpus([0.9, 0.5, 0.5, 0.1], [300, 200, 200, 100], [60, 20, 20, 10], [80, 80, 80, 20])
    found = summary(tmp_path, {4: {"server": rows}}).row(0, named=True)
    assert found["server_gpus"] == 4
    assert found["server_gpu_utilization"] == pytest.approx(0.5)
    assert found["server_gpu_utilization_max"] == 0.9
    assert found["server_gpu_power_w"] == 800
    assert found["server_gpu_memory_used_bytes"] == 110 * 2**30
    assert found["server_gpu_memory_share"] == pytest.approx(110 / 260)
    assert found["residence_s"] == pytest.approx(0.1)


def test_power_stands_beside_its_limit_and_the_servers_cpu_beside_its_gpus(tmp_path):
    """Of the third GPU nobody tells the limit: its power is in the sum, and in no share."""
    limits = [server_row("gpu_power_limit", "W", f'gpu="{k}"', mean=watts) for k, watts in enumerate((700, 300))]
    rows = [*gpus([0.9, 0.5, 0.5], [350, 240, 200], [], []), server_row("gpu_power_limit", "W", mean=1000), *limits]
    rows.append(server_row("cpu_utilization", "share", mean=0.83))
    result = Result([run_folder(tmp_path / "r", {c: level_columns(c) for c in (1, 4)}, facts={4: {"server": rows}})])
    found = result.summary.filter(pl.col("concurrency") == 4).row(0, named=True)
    assert (found["server_gpu_power_w"], found["server_gpu_power_limit_w"]) == (790, 1000)
    assert found["server_gpu_power_share"] == pytest.approx((350 + 240) / (700 + 300))
    assert found["server_cpu_utilization"] == 0.83
    cells = {f"{each.title} {each.unit}": each.cells[-1].text for part in sections(result) for each in part.columns}
    assert cells["limit W, all"] == "1,000"
    assert cells["power of limit"] == "59.0%"
    assert cells["CPU busy"] == "83.0%"
    drawn = figures(result)["server"]
    assert {"power, all GPUs (W)", "server CPU busy (%)"} <= {axes.get_ylabel() for axes in drawn.axes}
    assert {"power", "limit"} <= set(texts(drawn))


def test_memory_is_shared_out_over_the_gpus_that_tell_both(tmp_path):
    rows = gpus([0.5], [100], [40, 40], [80])
    assert summary(tmp_path, {1: {"server": rows}})["server_gpu_memory_share"].to_list() == [0.5]


def test_figures_stay_with_their_level_whatever_the_order_of_rates(tmp_path):
    facts = {c: {"server": gpus([share], [power], [], [])} for c, share, power in ((8, 0.6, 60), (1, 0.1, 10))}
    found = summary(tmp_path, facts)
    by_level = {
        row["concurrency"]: (row["server_gpu_utilization"], row["server_gpu_power_w"]) for row in found.to_dicts()
    }
    assert by_level == {8: (0.6, 60), 1: (0.1, 10)}


def test_a_level_without_figures_has_nulls_and_a_run_without_has_no_columns(tmp_path):
    found = summary(tmp_path, {1: {"server": gpus([0.2], [], [], [])}, 2: {"server": []}})
    assert found["server_gpu_utilization"].to_list() == [0.2, None]
    assert found["residence_s"].to_list() == [0.1, None]
    plain = Result([run_folder(tmp_path / "plain", {1: level_columns(1)})])
    assert not set(SERVER_COLUMNS) & set(plain.summary.columns)
    assert set(plain.tables) == {"delivery"}


@pytest.mark.parametrize(
    "told, compute_s",
    [
        ({"compute_input_time": 0.001, "compute_infer_time": 0.02, "compute_output_time": 0.002}, 0.023),
        ({"compute_infer_time": 0.02}, 0.02),
        ({"prefill_time": 0.1, "decode_time": 1.5}, 1.6),
        ({}, None),
    ],
)
def test_compute_is_the_sum_of_what_the_server_tells_of(tmp_path, told, compute_s):
    rows = [server_row("queue_time", "s", mean=0.004), *(server_row(name, "s", mean=s) for name, s in told.items())]
    found = summary(tmp_path, {1: {"server": rows}}).row(0, named=True)
    assert found["server_queue_s"] == 0.004
    assert found["server_compute_s"] == (None if compute_s is None else pytest.approx(compute_s))


def test_the_reference_names_every_column():
    text = (Path(__file__).parents[2] / "docs" / "reference" / "python.md").read_text("utf-8")
    assert [name for name in SERVER_COLUMNS if f"`{name}`" not in text] == []
