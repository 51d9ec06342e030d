from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

from gpusize.estimate.truth import Truth
from gpusize.report.page.html import render_html
from gpusize.report.summary.terminal import make_console, print_estimates, print_summary
from tests.report.results import LEVELS, P95_S, SLO, Source, console, crossing, frame, interrupted, row, slope, sweep


def summary(source: Source, width: int, encoding: str = "utf-8", estimates: Sequence[Any] = ()) -> str:
    out, raw = console(width, encoding)
    print_summary(source, out, estimates)
    return raw.getvalue().decode(encoding)


def estimates(*given: Any, width: int = 80, truth: Truth | None = None) -> str:
    out, raw = console(width)
    print_estimates(given, out, truth)
    return raw.getvalue().decode()


def test_people_who_pause_and_requests_in_flight_are_told_apart():
    """1 GPU for 500 users above a capacity of 64.1: the one in people, the other in requests in flight."""
    pausing = slope(gpus=1, users=500, capacity_concurrency=64.1, tested_gpus=1, think="exponential", think_s=30.0)
    said = words(estimates(pausing, width=200))
    assert "1 GPU for 500 users who pause 30 s on average" in said
    assert "64.1 requests in flight on the 1 GPU tested" in said


def words(text: str) -> str:
    """The text without frames and line breaks."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_line_is_wider_than_the_console(width: int) -> None:
    source = sweep(interrupted())
    assert max(map(len, summary(source, width).splitlines())) <= width
    text = estimates(slope(), crossing(), width=width, truth=Truth(80, 10.0))
    assert max(map(len, text.splitlines())) <= width


def test_eighty_columns_keep_what_matters_and_name_the_rest() -> None:
    text = summary(sweep(), 80)
    line = next(each for each in text.splitlines() if each.strip().startswith("8 "))
    assert line.split()[:6] == ["8", "1,234", "1.26", "6.33", "7.91", "0.791"]
    assert "99.0% ✓" in line
    head, units, *_ = table(text)
    assert head == ["level", "n", "achieved", "runtime", "runtime", "TTFT", "ITL", "output", "errors", "SLO"]
    assert " ".join(units) == "users req req/s p50 s p95 s p95 s p95 ms tok/s n met"
    assert "hidden, the terminal is too narrow: ITL p50, TTFT p50, runtime p99" in words(text)


@pytest.mark.parametrize("more", [{}, {"flags": ["generator-limited"]}, {"errors": 3}, {"delivered": False}])
@pytest.mark.parametrize("kind", ["closed", "open"])
def test_eighty_columns_have_ttft_itl_and_tokens_of_any_streamed_answers(more: dict[str, Any], kind: str) -> None:
    text = summary(sweep_of_one(row(8, 6.0, kind=kind, **more)), 80)
    head, units, cells, *_ = table(text)
    for name in ("TTFT", "ITL", "output", "SLO"):
        assert name in head, text
    assert "p95 s p95 ms tok/s" in " ".join(units)
    assert {"0.600", "37.5"} <= set(cells), "p95 of TTFT in s, of ITL in ms"
    assert ("errors" in head) or not more.get("errors")
    assert ("delivered" in units) == (more.get("delivered") is False)


def table(text: str) -> list[list[str]]:
    """The words of the two lines of header, and of the rows."""
    lines = text.splitlines()
    at = next(k for k, line in enumerate(lines) if line.lstrip().startswith(("level ", "rate ")))
    rule = at + 2
    return [line.split() for line in (*lines[at:rule], *lines[rule + 1 :])]


def sweep_of_one(one: dict[str, Any]) -> Source:
    return Source(frame([one]))


def test_answers_that_come_whole_keep_their_percentiles() -> None:
    text = summary(sweep_of_one(row(8, 6.0, tokens=False, delivered=True)), 80)
    head, units, *_ = table(text)
    assert head == ["level", "n", "achieved", "load", "runtime", "runtime", "runtime", "errors", "SLO"]
    assert " ".join(units) == "users req req/s delivered p50 s p95 s p99 s n met"


def test_the_percentile_that_an_slo_bounds_stands_in_the_narrow_table() -> None:
    slo = "p99 ttft <= 2s"
    one = row(8, 6.0, slo_0=slo, delivered=True)
    text = summary(Source(frame([one]), slos=(slo,)), 80)
    head, units, cells, *_ = table(text)
    assert ("runtime", "TTFT", "ITL") in zip(head, head[1:], head[2:], strict=False)
    assert "p95 s p99 s p95 ms tok/s" in " ".join(units)
    assert "0.660" in cells, "p99 of TTFT"


def test_requests_that_were_asked_again_have_a_column_where_there_were_any() -> None:
    assert "asked" not in summary(sweep(row(8, 6.0, asked_again=0)), 160)
    text = summary(sweep(row(8, 6.0), row(16, 9.0, asked_again=211)), 200)
    assert "asked again" in text
    assert "211" in text


def test_flags_go_over_several_lines_before_a_figure_leaves() -> None:
    flags = ["connection-limited", "generator-limited", "not-delivered", "saturated"]
    text = summary(sweep(row(64, 60.0, flags=flags, slo_0_attainment=0.0, slo_0_met=False)), 100)
    assert all(flag in text for flag in flags)
    assert "99.0% ✓" in text
    assert "achieved" in text.partition("not shown")[0]


def test_wide_table_has_every_column_in_its_own_unit() -> None:
    text = summary(sweep(), 160)
    head = text.splitlines()[1:3]
    assert head[0].split() == (
        ["level", "n", "achieved"] + ["runtime"] * 3 + ["TTFT"] * 2 + ["ITL"] * 2 + ["output", "errors", "SLO"]
    )
    assert re.findall(r"p\d\d m?s", head[1]) == ["p50 s", "p95 s", "p99 s", "p50 s", "p95 s", "p50 ms", "p95 ms"]
    first = text.splitlines()[4].split()
    assert first[:4] == ["1", "1,234", "0.310", "3.23"]
    assert "not shown" not in text


def test_marks_follow_the_summary_and_interrupted_levels_have_none() -> None:
    lines = {line.split()[0]: line for line in summary(sweep(interrupted()), 120).splitlines() if line.split()}
    assert "40.0% ✗" in lines["16"]
    assert "✗" not in lines["64"]
    assert "interrupted" in lines["64"]


def test_without_a_terminal_there_is_no_escape_and_hostile_text_is_harmless() -> None:
    text = summary(sweep(interrupted()), 160)
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert '! 64 users: red <script>alert(1)</script> [bold]big[/bold] & "quoted" $x^2$' in words(text)


def test_on_a_terminal_only_our_own_colours_reach_it() -> None:
    out = Console(
        file=io.StringIO(), force_terminal=True, color_system="standard", width=160, markup=False, emoji=False
    )
    print_summary(sweep(interrupted()), out)
    assert isinstance(out.file, io.StringIO)
    shown = out.file.getvalue()
    assert "\x1b[1;31m" in shown
    assert "\x1b[31mred" not in shown
    assert "owned" not in shown
    assert "[bold]big[/bold]" in shown


def test_ascii_output_has_no_other_marks() -> None:
    text = summary(sweep(interrupted()), 100, "ascii")
    assert "99.0% +" in text
    assert "40.0% x" in text


def test_output_that_is_no_terminal_is_wide_unless_columns_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    file = io.StringIO()
    assert make_console(file).width == 160
    monkeypatch.setenv("COLUMNS", "72")
    assert make_console(file).width == 72


def test_open_loop_shows_offered_and_achieved() -> None:
    rows = [row(r, 0.1, kind="open", achieved_rate=min(r, 40.0), tokens=False) for r in (20.0, 80.0)]
    text = summary(Source(frame(rows)), 120)
    assert re.search(r"^\s+80\s+1,234\s+80\.0\s+40\.0\s+80\.0\s+100\s+110", text, re.MULTILINE)
    assert "p95 ms" in text
    assert "TTFT" not in text


def test_a_summary_of_no_rows_is_still_a_table() -> None:
    assert "level" in summary(Source(frame([row(1, 1.0)]).clear()), 80)


def test_the_answer_comes_first_and_the_rest_explains_it() -> None:
    text = estimates(slope(), crossing(), truth=Truth(82, 9.75), width=100)
    assert text.splitlines()[1].strip("│ ") == f"76 GPUs for 100 users at {SLO}"
    said = words(text)
    assert "10.6 requests in flight on the 8 GPUs tested (inside the tested range)" in said
    assert "3.03 s + 0.657 s × concurrency, R² 0.995" in said
    assert "weakens it • only 8 requests at level 1" in said
    assert "measure next 10, 13 in flight" in said
    assert (
        "82 GPUs, by the simulated cluster's own model (9.75 requests in flight on the GPUs tested); "
        "the estimate is 6 too few" in said
    )
    assert re.search(r"slope 76 75\.4 10\.6 crossing 94 50 to 100 GPUs 93\.7 8\.54", said)


@pytest.mark.parametrize(
    "truth, shown",
    [
        (Truth(76), "76 GPUs, by the simulated cluster's own model; the estimate agrees"),
        (Truth(70, note="in virtual time"), "70 GPUs, in virtual time; the estimate is 6 too many"),
        (Truth(None), "no number of GPUs is enough, by the simulated cluster's own model"),
    ],
)
def test_the_truth_is_compared_with_the_estimate(truth: Truth, shown: str) -> None:
    assert f"true answer {shown}" in words(estimates(slope(), truth=truth, width=120))


def test_what_is_wanted_on_top_is_not_too_many() -> None:
    reserved = slope(gpus=92, details={"gpus_without_reserve": 76})
    assert "the estimate agrees" in words(estimates(reserved, truth=Truth(76), width=120))


def test_a_withheld_answer_gives_its_reason() -> None:
    text = words(estimates(slope(p95_s=[3.0] * 6)))
    assert f"No GPU count for 100 users at {SLO}: " in text
    reason = slope(p95_s=[3.0] * 6).reason
    assert reason is not None
    assert reason in text
    assert "assumes" not in text


def test_the_first_method_is_the_headline_though_it_refuses_and_another_answers() -> None:
    text = words(estimates(slope(p95_s=[3.0] * 6), crossing(), width=120))
    assert text.startswith(f"estimate No GPU count for 100 users at {SLO}: ")
    assert "crossing 94 50 to 100 GPUs" in text
    assert words(estimates(crossing(), slope())).startswith(f"estimate 94 GPUs for 100 users at {SLO} ")


def test_what_stands_in_and_what_would_change_it_is_said() -> None:
    fallback = "the twin method gives no number: imported. This is the crossing method's answer"
    text = words(
        estimates(crossing(fallback=fallback, changes=("above about 107 users it takes more", "other requests")))
    )
    assert f"falls back {fallback}" in text
    assert "changes it • above about 107 users it takes more • other requests" in text


def test_several_slos_are_shown_one_by_one() -> None:
    parts = (slope(), slope(slo="p95 ttft <= 1s", gpus=12))
    text = words(estimates(slope(per_slo=parts), width=120))
    assert re.search(r"slope p95 runtime <= 10s 76 75\.4 10\.6 slope p95 ttft <= 1s 12 ", text)


def test_reasons_of_several_slos_stand_below_the_table_and_name_their_slo_once() -> None:
    share = "share ok >= 99%"
    missing = slope(slo=share, gpus=None, gpus_raw=None, capacity_concurrency=None, reason="no line fits shares")
    joined = slope(slo=share, gpus=None, reason=f"{share}: no line fits shares", per_slo=(slope(), missing))
    text = words(estimates(joined))
    assert f"No GPU count for 100 users at {share}: no line fits shares " in text
    assert text.endswith(f"slope, {share}: no line fits shares")


def test_extrapolation_is_named() -> None:
    text = words(estimates(slope(outside_tested_range=True)))
    assert "outside the tested range: an extrapolation" in text


def test_no_estimates() -> None:
    assert "No estimate was requested" in estimates()


def test_an_answer_in_one_piece_has_no_time_to_its_first_part() -> None:
    whole: dict[str, Any] = {f"itl_{q}_s": None for q in ("p50", "p95", "p99")}
    rows = [row(c, 1.0, **whole, ttft_p50_s=0.8, ttft_p95_s=1.0) for c in (1, 2)]
    assert "TTFT" not in summary(Source(frame(rows)), 160)
    rows[1]["ttft_p50_s"] = 0.7
    assert "TTFT" in summary(Source(frame(rows)), 160)


def test_each_level_has_the_calculators_figure_of_its_own() -> None:
    """100 users within 10 s on 8 GPUs, from each level that keeps it alone; a level that misses it has none."""
    source = sweep(interrupted())
    assert "by level" not in summary(source, 200)
    beside = [slope(users=100)]
    text = summary(source, 200, estimates=beside)
    at = text.splitlines()[2].index("by level")
    found = {line.split()[0]: line[at : at + 8].strip() for line in text.splitlines()[4:11]}
    wanted = {c: f"{100 / c * p95 / 10 * 8:.3g}" for c, p95 in zip(LEVELS, P95_S, strict=True) if p95 <= 10}
    assert found == {str(c): wanted.get(c, "\u2013") for c in (*LEVELS, 64)}
    page = render_html(source, beside)
    assert all(f">{each}<" in page for each in wanted.values())
    assert "GPUs by level: users over the level" in page


@pytest.mark.parametrize(
    "question",
    [
        {"users": 100, "think": "exponential", "think_s": 30.0},
        {"users": 0, "rate": 40.0},
        # As the estimates of a run whose users stand in run.json, asked for a rate.
        {"users": 100, "rate": 40.0},
    ],
)
def test_pausing_users_and_rates_have_no_figure_of_a_level_alone(question: dict[str, Any]) -> None:
    """1,000 users who pause 30 s need one GPU; the column said 24 to 172 beside it."""
    source = sweep(interrupted())
    source.users = 100.0  # type: ignore[attr-defined]
    assert "by level" not in summary(source, 200, estimates=[slope(**question)])
    assert "GPUs by level" not in render_html(source, [slope(**question)])


def test_of_several_slos_the_most_gpus_stand_at_a_level() -> None:
    rows = [row(4, 5.0, slo_1="p50 ttft <= 1s", slo_1_attainment=1.0, slo_1_met=True)]
    source = Source(frame(rows), slos=(SLO, "p50 ttft <= 1s"))
    beside = [slope(users=100)]
    # By the runtime 100 / 4 x 5 / 10 x 8 = 100, by the first token 100 / 4 x 0.4 / 1 x 8 = 80.
    assert summary(source, 200, estimates=beside).splitlines()[3].split()[-1] == "100"
    source = Source(frame([{**rows[0], "ttft_p50_s": None}]), slos=source.slos)
    assert "by level" not in summary(source, 200, estimates=beside), "unknown beats known"
