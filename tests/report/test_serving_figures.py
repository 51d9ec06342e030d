"""Figures of how levels were served: what is drawn is what the frames and the tools' own files say."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import gpusize
from gpusize.analysis.latency_split import PARTS, split_rows
from gpusize.base.errors import UsageError
from gpusize.report.figures import style
from gpusize.report.figures.across import across_frame, instances_figure, ratio_figure
from gpusize.report.figures.plots import figures

FIXTURES = Path(__file__).parents[1] / "fixtures"
SWEEP = FIXTURES / "perf_analyzer" / "http_c1-16.csv"
HEAD = "Concurrency,Inferences/Second,p50 latency,Avg latency"
GPU = "Avg GPU Utilization,Avg GPU Power Usage,Max GPU Memory Usage,Total GPU Memory"
ROWS = (
    "4,8,400000,500000,GPU-a:0.5;GPU-b:0.7;,GPU-a:200;GPU-b:250;,GPU-a:1e9;GPU-b:2e9;,GPU-a:4e9;GPU-b:4e9;\n"
    "1,10,99000,100000,GPU-a:0.2;GPU-b:0.4;,GPU-a:100;GPU-b:150;,GPU-a:1e9;GPU-b:1.5e9;,GPU-a:4e9;GPU-b:4e9;\n"
)


def lines(axes):
    """Points of the joined lines, in the order in which they were drawn."""
    kept = [each for each in axes.lines if each.get_linestyle() == "-" and len(each.get_xdata()) > 1]
    return [np.column_stack([each.get_xdata(), each.get_ydata()]).tolist() for each in kept]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return gpusize.read(SWEEP, tmp_path_factory.mktemp("runs"))


def raw():
    with SWEEP.open(newline="") as file:
        return sorted(csv.DictReader(file), key=lambda row: int(row["Concurrency"]))


def test_the_split_is_that_of_the_tools_own_columns(sweep):
    split = split_rows(sweep.levels)
    for row, found in zip(raw(), split.to_dicts(), strict=True):
        assert found["queue_s"] == pytest.approx(int(row["Server Queue"]) / 1e6)
        assert found["client_s"] == pytest.approx((int(row["Client Send"]) + int(row["Client Recv"])) / 1e6)
        # Its own network column is the rest too, of parts that were each rounded to a microsecond.
        assert found["network_s"] == pytest.approx(int(row["Network+Server Send/Recv"]) / 1e6, abs=15e-6)
        assert sum(found[part] or 0 for part in PARTS) == pytest.approx(found["residence_s"])
    (axes,) = figures(sweep)["split"].axes
    drawn = {bars.get_label(): [bar.get_height() for bar in bars] for bars in axes.containers}
    assert drawn["queue"] == pytest.approx([int(row["Server Queue"]) / 1e3 for row in raw()])
    assert drawn["compute"] == pytest.approx([int(row["Server Compute Infer"]) / 1e3 for row in raw()])
    tops = np.sum(list(drawn.values()), axis=0)
    assert tops == pytest.approx([int(row["Avg latency"]) / 1e3 for row in raw()])


def test_queue_and_percentiles_are_those_of_the_file(sweep):
    made = figures(sweep)
    [queue] = lines(made["queue"].axes[0])
    assert [y for _, y in queue] == pytest.approx([int(row["Server Queue"]) / 1e3 for row in raw()])
    drawn = lines(made["percentiles"].axes[0])
    assert len(drawn) == 7
    names = [f"{name} latency" for name in ("p50", "p90", "p95", "p99")]
    assert [y for _, y in drawn[0]] == pytest.approx([int(raw()[0][name]) / 1e3 for name in names])
    assert [y for _, y in drawn[-1]] == pytest.approx([int(raw()[-1][name]) / 1e3 for name in names])


def test_batches_are_inferences_over_executions(tmp_path):
    text = SWEEP.with_suffix(".txt")
    counts: dict[str, list[int]] = {name: [] for name in ("Inference", "Execution")}
    for line in text.read_text().splitlines():
        for name, found in counts.items():
            if line.strip().startswith(f"{name} count: "):
                found.append(int(line.split()[-1]))
    [batch] = lines(figures(gpusize.read(text, tmp_path))["batch"].axes[0])
    assert [y for _, y in batch] == pytest.approx(np.divide(counts["Inference"], counts["Execution"]).tolist())


def test_each_gpu_is_set_against_its_own_and_energy_is_power_over_rate(tmp_path):
    (tmp_path / "x.csv").write_text(f"{HEAD},{GPU}\n{ROWS}")
    made = figures(gpusize.read(tmp_path / "x.csv", tmp_path / "runs", gpus=2))
    busy, memory, power = made["gpus"].axes
    assert lines(busy) == [[[1, 20], [4, 50]], [[1, 40], [4, 70]]]
    assert lines(memory) == [[[1, 25], [4, 25]], [[1, 37.5], [4, 50]]]
    assert power.get_ylabel() == "power (W)"
    assert lines(power) == [[[1, 100], [4, 200]], [[1, 150], [4, 250]]]
    [energy] = lines(made["energy"].axes[0])
    assert energy == [[1, 250 / 10], [4, pytest.approx(450 / 8)]]
    assert "2 GPUs, each against its own" in made["gpus"].texts[1].get_text()


def test_what_nothing_tells_is_not_drawn(tmp_path):
    (tmp_path / "x.csv").write_text("Concurrency,Inferences/Second\n1,10\n2,20\n")
    assert list(figures(gpusize.read(tmp_path / "x.csv", tmp_path / "runs"))) == ["throughput"]


def test_the_dark_variant_has_the_same_figures_in_the_dark_colours(sweep):
    for kind in ("split", "queue", "percentiles", "runtime", "throughput"):
        light, dark = sweep.plot(kind), sweep.plot(kind, dark=True)
        assert dark.get_facecolor() == pytest.approx((0x14 / 255, 0x18 / 255, 0x1D / 255, 1))
        assert [lines(axes) for axes in light.axes] == [lines(axes) for axes in dark.axes]
        from matplotlib.colors import to_hex
        from matplotlib.lines import Line2D
        from matplotlib.text import Text

        left = [to_hex(each.get_color()) for each in (*dark.findobj(Line2D), *dark.findobj(Text))]
        assert not {style.INK, style.GRID, style.PAPER} & set(left)


def traccc():
    rows = json.loads((FIXTURES / "traccc" / "scaling.json").read_text())["rows"]
    schema = {"group": pl.String, "load": pl.Float64, "value": pl.Float64}
    return pl.DataFrame([(f"{r[0]} GPU", float(r[1]), r[2]) for r in rows], schema=schema, orient="row"), rows


def test_one_gpu_against_four():
    frame, rows = traccc()
    figure = ratio_figure(frame, "events/s", ideal={"4 GPU": 4.0})
    upper, lower = figure.axes
    assert lines(upper)[1] == [[r[1], r[2]] for r in rows if r[0] == 4]
    one = {r[1]: r[2] for r in rows if r[0] == 1}
    # Only where both were measured: 3 and 5 in flight have no ratio.
    assert lines(lower)[-1] == [[r[1], pytest.approx(r[2] / one[r[1]])] for r in rows if r[0] == 4 and r[1] in one]
    assert "2.30 times 1 GPU" in figure.texts[0].get_text()


def test_takes_are_averaged_and_their_range_is_shown():
    frame = pl.DataFrame({"group": ["a", "a", "b"], "load": [1.0, 1.0, 1.0], "value": [10.0, 20.0, 30.0]})
    figure = ratio_figure(frame, log=True)
    upper, lower = figure.axes
    assert upper.get_yscale() == "log"
    assert [1.0, 1.0] in [np.asarray(each.get_xdata()).tolist() for each in upper.lines]
    ratio = [np.asarray(each.get_ydata()).tolist() for each in lower.lines]
    assert [2.0] in ratio
    assert "up to 2 takes" in figure.texts[1].get_text()


def test_instances_against_concurrency_and_the_transpose(tmp_path):
    files = {str(n): FIXTURES / "perf_analyzer" / f"inst{n}_c1-8.csv" for n in (1, 2, 4)}
    results = {name: gpusize.read(file, tmp_path) for name, file in files.items()}
    frame = across_frame(results)
    assert frame.height == 8 * 3 - (8 - len(results["1"].levels))
    straight, turned = instances_figure(frame), instances_figure(frame, transpose=True)
    [_, two, four] = lines(straight.axes[0])
    told = {row["concurrency"]: row["achieved_rate"] for row in results["4"].summary.to_dicts()}
    assert four == [[c, rate] for c, rate in told.items()]
    at_8 = lines(turned.axes[0])[-1]
    assert at_8 == [[n, results[str(n)].summary["achieved_rate"].to_list()[-1]] for n in (1, 2, 4)]
    assert at_8[1] == [2, two[-1][1]]


def test_what_cannot_be_drawn_across():
    frame, _ = traccc()
    with pytest.raises(UsageError, match="no group 'x'"):
        ratio_figure(frame, baseline="x")
    with pytest.raises(UsageError, match="nothing beside it"):
        ratio_figure(frame.filter(pl.col("group") == "1 GPU"))
    with pytest.raises(UsageError, match="no column value"):
        ratio_figure(frame.drop("value"))
    with pytest.raises(UsageError, match="have to be numbers"):
        instances_figure(frame, transpose=True)


@pytest.mark.filterwarnings("error")
def test_the_axis_of_a_level_of_one_moment_has_a_length() -> None:
    """Requests of one moment have the rate 0, and matplotlib warned of an axis from 0 to 0 on the terminal."""
    with style.settings():
        _, (axes,) = style.new_figure("one", "moment")
        style.level_axis(axes, [0.0], "requests/s")
        assert axes.get_xlim() == (0.0, 1.0)
