from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.observe.metrics.prometheus_text import MAX_LINE, MAX_SERIES, PageReader, canonical_labels, parse_labels

TRITON = Path(__file__).parents[1] / "fixtures/samples/triton_metrics_cpu.txt"
MODEL = 'model="numpy_mlp",version="1"'


def test_a_page_of_triton_is_read_whole():
    reader = PageReader()
    page = reader.read(TRITON.read_text("utf-8"))
    assert page.bad_lines == 0
    assert page.series == len(page.values) == 18
    assert page.values["nv_inference_request_success", MODEL] == 49367
    assert page.values["nv_inference_queue_duration_us", MODEL] == 118671277497
    assert page.values["nv_inference_request_failure", 'model="numpy_mlp",reason="BACKEND",version="1"'] == 0
    assert page.values["nv_cpu_utilization", ""] == 0.5625
    assert reader.kinds["nv_inference_count"] == "counter"
    assert reader.kinds["nv_cpu_utilization"] == "gauge"


def test_histograms_summaries_and_all_forms_of_numbers():
    page = PageReader().read(
        "# TYPE t histogram\n"
        't_bucket{le="0.1"} 3\n'
        't_bucket{le="+Inf"} 5 1700000000000\n'
        "t_sum 1.5e-3\n"
        "t_count 5\n"
        's{quantile="0.5"} NaN\n'
        "up_ +Inf\n"
        "down -Inf\r\n"
        "\n"
        "  \n"
        "half .5\n"
        'spaced   { a = "1" , }   7  \n'
    )
    assert page.bad_lines == 0
    assert page.values["t_bucket", 'le="+Inf"'] == 5
    assert page.values["t_sum", ""] == 0.0015
    assert math.isnan(page.values["s", 'quantile="0.5"'])
    assert page.values["up_", ""] == math.inf
    assert page.values["down", ""] == -math.inf
    assert page.values["half", ""] == 0.5
    assert page.values["spaced", 'a="1"'] == 7


def test_openmetrics_exemplars_and_its_end_are_passed_over():
    page = PageReader().read('a_bucket{le="1"} 4 # {trace_id="x"} 0.5 1700\na_total 4\n# EOF\n')
    assert page.values == {("a_bucket", 'le="1"'): 4, ("a_total", ""): 4}
    assert page.bad_lines == 0


def test_labels_are_sorted_and_hold_anything():
    page = PageReader().read('m{z="a } b, c=\\"d\\"",a="line\\nbreak \\\\ \u2028"} 1\n')
    ((_, labels),) = page.values
    assert parse_labels(labels) == {"a": "line\nbreak \\ \u2028", "z": 'a } b, c="d"'}
    assert labels.startswith("a=")


@pytest.mark.parametrize(
    "line",
    [
        "<html>",
        "m",
        "m one",
        "m 0x10",
        "m 1_000",
        'm{a="1" 2',
        "m{a=1} 2",
        'm{a="1"b="2"} 2',
        "9m 1",
        "m{} 1 then",
        "m 1" + " " * MAX_LINE,
        'm{a="' + "x" * MAX_LINE + '"} 1',
    ],
)
def test_what_is_no_sample_is_counted_and_passed_over(line: str):
    page = PageReader().read(f"good 1\n{line}\nbetter 2\n")
    assert page.values == {("good", ""): 1, ("better", ""): 2}
    assert page.bad_lines == 1


def test_a_large_page_keeps_the_known_names_only():
    lines = [f"go_thing_{k} {k}" for k in range(300)]
    page = PageReader().read("\n".join([*lines, "vllm:num_requests_running 3", 'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 40']))
    assert set(page.values) == {("vllm:num_requests_running", ""), ("DCGM_FI_DEV_GPU_UTIL", 'gpu="0"')}
    assert page.series == 302


def test_a_pattern_decides_for_pages_of_every_size():
    page = PageReader(re.compile("go_thing_1")).read("go_thing_1 1\ngo_thing_12 2\ngo_thing_2 3\nvllm:x 4\n")
    assert set(page.values) == {("go_thing_1", ""), ("go_thing_12", "")}


def test_series_that_never_end_are_bounded():
    reader = PageReader()
    page = reader.read("\n".join(f'nv_x{{id="{k}"}} 1' for k in range(MAX_SERIES + 5)))
    assert len(page.values) == MAX_SERIES
    assert page.bad_lines == 5
    again = reader.read('nv_x{id="7"} 2\nnv_x{id="new"} 1\n')
    assert again.values == {("nv_x", 'id="7"'): 2}


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


@given(st.dictionaries(NAMES, st.text(max_size=20), max_size=5))
def test_canonical_labels_come_back(labels: dict[str, str]):
    text = canonical_labels(labels)
    assert parse_labels(text) == labels
    assert canonical_labels(parse_labels(text) or {}) == text


@given(st.dictionaries(NAMES, st.text(max_size=20), max_size=5), st.floats(allow_nan=False))
def test_a_written_sample_is_read_back(labels: dict[str, str], value: float):
    text = {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, repr(value))
    page = PageReader().read(f"some_name{{{canonical_labels(labels)}}} {text}\n")
    assert page.values == {("some_name", canonical_labels(labels)): value}


@given(st.text(alphabet='ab{}"\\=, 0.9eE+-#\n\t', max_size=200))
def test_no_text_breaks_the_reader(text: str):
    page = PageReader().read(text)
    assert page.series <= len(text)


@pytest.mark.parametrize(
    "text",
    [
        "m " + "1" * 8000 + "e",
        "m " + "1" * 4000 + "." + "1" * 4000 + "x",
        "m{" + 'a="1",' * 1300,
        'm{a="' + "\\\\" * 4000,
        "m{" + '"' * 8000,
        "m" + "\t " * 4000 + "x y z",
    ],
)
def test_lines_made_to_be_slow_are_refused_in_linear_time(text: str):
    # A quadratic pattern needs seconds for each of these, and minutes for all of them.
    page = PageReader().read("\n".join([text] * 200))
    assert (page.series, page.bad_lines) == (0, 200)
