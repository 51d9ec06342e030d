from __future__ import annotations

from pathlib import Path

import pytest

from gpusize.containers.recommend import Execution, recommend
from gpusize.containers.recommend.cpost_rule import cpost_rows
from gpusize.containers.recommend.types import MB
from gpusize.observe.usage.usage import usage_of
from gpusize.report.containers.cpost import (
    OperatorSummary,
    metrics_table,
    operator_table,
    pipeline_table,
    summarise,
    summarise_usage,
    title,
)
from tests.resources.made import S, execution, workload

EXPECTED = (Path(__file__).parents[1] / "fixtures" / "cpost" / "tables.txt").read_text("utf-8")
"""The tables of CPOST's documentation: four operators, then the pipeline."""

OPERATORS = (
    OperatorSummary("dicom-reader", 124.714, 1097.941, 91.057, 405.242, 11, 512),
    OperatorSummary("spleen-segmentation", 150.649, 1134.358, 1630.311, 4455.412, 12, 4608),
    OperatorSummary("dicom-writer", 190.224, 1017.747, 278.678, 552.313, 11, 768),
    OperatorSummary("register-volume-images-for-rendering", 12.667, 14.923, 2.633, 3.783, 1, 256, failed=True),
)


def test_all_tables_are_cposts_to_the_byte():
    made = [operator_table(each) for each in OPERATORS]
    assert "\n\n".join([*made, pipeline_table(OPERATORS)]) + "\n" == EXPECTED


def test_titles():
    assert title("Executing Operator dicom-reader") == "______________Executing Operator dicom-reader_______________"
    assert (
        title("Executing Operator spleen-segmentation")
        == "___________Executing Operator spleen-segmentation___________"
    )
    long = "x" * 70
    assert title(long) == long


def test_an_operator_from_its_readings():
    run = execution(1097.941, 405.242)
    made = summarise("dicom-reader", cpost_rows(run.readings), recommend([run], "cpost"))
    assert (made.cpu, made.memory) == (11, 512)
    assert "| 1097.941 % |" in operator_table(made)
    assert "| 405.242 MB |" in operator_table(made)
    # 20 rows of half the peak, one of them of the whole of it.
    assert made.cpu_mean == pytest.approx(1097.941 * 10.5 / 20)


def test_a_failed_operator_shows_what_it_used_and_requests_nothing():
    run = execution(14.923, 3.783, failed="exit code 126")
    made = summarise("renderer", cpost_rows(run.readings), recommend([run], "cpost"), failed=True)
    table = pipeline_table([made])
    assert "14.923 %" in table
    assert "| (Non-zero exitcode) |" in table
    assert table.count("| none ") == 2


def test_cores_and_memory_of_other_policies_are_whole_there():
    run = execution(230.0, 600.0)
    made = summarise("a", cpost_rows(run.readings), recommend([run]))
    advice = recommend([run])
    assert made.cpu >= advice.cpu_cores > made.cpu - 1
    assert made.memory >= advice.mem_mb > made.memory - 1


def test_a_spike_between_rows_is_in_the_figures_of_other_policies():
    run = workload(lambda _: 0.5, 2.0, memory=lambda at: (300 if 1.0 <= at < 1.02 else 20) * MB)
    usage = usage_of(run)
    made = summarise_usage("a", usage, recommend([Execution.of(run)]))
    halved = summarise("a", cpost_rows(run), recommend([Execution.of(run)], "cpost"))
    assert made.mem_max_mb == pytest.approx(300, abs=1)
    assert halved.mem_max_mb < 170
    assert made.mem_mean_mb == pytest.approx(20 + 280 * 0.02 / 2, rel=0.1)
    assert made.cpu_mean == pytest.approx(50, abs=0.5)
    assert made.cpu_max == pytest.approx(50, abs=0.5)


def test_an_operator_without_rows_has_a_table():
    run = workload(lambda _: 1.0, 1.0)
    made = summarise("short", [], recommend([execution(1, 1)], "cpost"))
    assert "0.0 %" in operator_table(made)
    assert len(cpost_rows(run)) == 5


def test_all_rows_as_cpost_prints_them():
    rows = cpost_rows(workload(lambda _: 0.5, 0.4))
    text = metrics_table("reader", rows, wall_ns=S)
    assert text.splitlines() == [
        "________________Operator reader Metrics Data________________",
        "+-------------+-------------+-----------+",
        "|  timestamp  | cpu_percent |  memory   |",
        "+-------------+-------------+-----------+",
        "| 1001.100000 |    50.0     | 67.108864 |",
        "| 1001.300000 |    50.0     | 67.108864 |",
        "+-------------+-------------+-----------+",
    ]


def test_a_hostile_name_stays_one_line():
    made = OperatorSummary("a\x1b[31m\nb", 1, 1, 1, 1, 1, 256)
    assert pipeline_table([made]).splitlines()[3].startswith("| a b ")
