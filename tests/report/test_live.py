from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from rich.cells import cell_len

from gpusize.report.live.facts import Schedule
from gpusize.report.live.live import LiveProgress, progress_line, setting_text
from gpusize.report.live.pace import Pace, RunRates
from gpusize.report.live.view import LevelView, Minute, sparkline
from tests.report.results import HOSTILE

SETTING = {"kind": "closed", "concurrency": 8, "passes": 5, "count": None, "duration_s": None}
S = 1_000_000_000


@dataclass(frozen=True)
class Event:
    position: int
    total: int
    setting: Mapping[str, Any]
    progress: Mapping[str, Any] | None = None
    level: Mapping[str, Any] | None = None
    step: int = 0
    before: tuple[Event, ...] = ()
    search: Mapping[str, Any] | None = None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def running(seconds: float, done: int, **more: Any) -> dict[str, Any]:
    facts = {"state": "running", "elapsed_ns": int(seconds * S), "done": done, "sent": done + 8, "in_flight": 8}
    return {**facts, "rate": 3.2, "p50_ns": 800_000_000, "p95_ns": 1_230_000_000, "failed": {}, **more}


def test_plain_lines_once_per_level_and_every_five_seconds() -> None:
    out, clock = io.StringIO(), [0.0]
    with LiveProgress(out, now=lambda: clock[0]) as live:
        for tick in range(121):
            clock[0] = tick / 10
            live.update(0, 2, SETTING, running(clock[0], tick))
        live.update(0, 2, SETTING, running(12.5, 125, state="done"))
        live.update(0, 2, SETTING, running(12.5, 125, state="done"))
    lines = out.getvalue().splitlines()
    assert [line.split("  ")[2] for line in lines] == ["5 s", "10 s", "12.5 s"]
    assert lines[0] == "level 1/2  8 users  5 s  50 done  3.20/s  p50 0.800 p95 1.23 s  8 in flight"
    assert lines[-1] == "level 1/2  8 users  12.5 s  125 done  10.0/s  p50 0.800 p95 1.23 s"


def test_a_level_that_follows_closes_the_one_before() -> None:
    out = io.StringIO()
    with LiveProgress(out, now=lambda: 0.0) as live:
        live.update(0, 2, SETTING, running(2, 10))
        live.update(1, 2, {**SETTING, "concurrency": 16}, running(1, 4))
    assert [line[:19] for line in out.getvalue().splitlines()] == ["level 1/2  8 users ", "level 2/2  16 users"]


def test_events_of_a_sweep_end_with_the_committed_counts() -> None:
    out = io.StringIO()
    level = {"state": "interrupted", "rows": 41, "outcomes": {"ok": 40, "timeout": 1}, "start_ns": 0, "end_ns": 10 * S}
    with LiveProgress(out, now=lambda: 0.0) as live:
        live.event(Event(1, 1, SETTING, progress=running(9, 30)))
        live.event(Event(1, 1, SETTING, level={**level, "alerts": [f"interrupted: {HOSTILE}"]}))
    first, second = out.getvalue().splitlines()
    assert first == "level 1/1  8 users  10 s  41 done  4.10/s  p50 0.800 p95 1.23 s  failed: 1 timeout  interrupted"
    assert second.startswith("! 8 users: interrupted: red <script>")


def test_the_last_word_waits_for_the_record_and_names_how_it_ended() -> None:
    out = io.StringIO()
    level = {"state": "cancelled", "rows": 4, "outcomes": {"ok": 38, "cancelled": 2}, "start_ns": 0, "end_ns": 10 * S}
    with LiveProgress(out, now=lambda: 0.0) as live:
        live.event(Event(1, 2, SETTING, progress=running(9, 30)))
        live.event(Event(1, 2, SETTING, progress=running(9.5, 38, state="done")))
        assert out.getvalue() == ""
        ended = running(10, 40, state="done")
        live.event(Event(1, 2, SETTING, progress=ended, level={**level, "alerts": ["cancelled by the user"]}))
    [line] = out.getvalue().splitlines()
    assert line == "level 1/2  8 users  10 s  40 done  4.00/s  p50 0.800 p95 1.23 s  cancelled"


def test_the_rate_of_a_finished_level_leaves_out_its_first_answer_and_its_end() -> None:
    pace = Pace()
    for progress in (running(0.5, 0), running(1.0, 5), running(1.5, 10), running(3.0, 25)):
        pace.seen(progress)
    pace.seen(running(4.0, 27, state="draining"))
    assert pace.rate() == 10.0
    short = Pace()
    short.seen(running(1.0, 5))
    short.seen(running(1.9, 9))
    assert short.rate() is None


def test_what_is_shed_is_neither_done_nor_achieved() -> None:
    pace = Pace()
    seen: Mapping[str, Any] = {}
    for tick in range(41):
        seen = pace.seen(running(tick / 10, tick * 40, ok=tick * 6, shed=tick * 34, rate=400.0))
    assert seen["done"] == 240
    assert seen["rate"] == pytest.approx(60)
    assert pace.rate() == pytest.approx(60)
    assert pace.seen({"state": "queued"}) == {"state": "queued"}
    out = io.StringIO()
    level = {"state": "done", "outcomes": {"ok": 240, "shed": 1360, "timeout": 2}, "start_ns": 0, "end_ns": 4 * S}
    with LiveProgress(out, now=lambda: 0.0) as live:
        live.event(Event(1, 1, SETTING, progress=running(4, 1600), level=level))
    assert "  242 done  60.5/s  " in out.getvalue()
    assert out.getvalue().endswith("1,360 shed  failed: 2 timeout\n")


def plain(out: io.StringIO) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())


def counted(seconds: float, due: int, ok: int, **more: Any) -> dict[str, Any]:
    facts = {"due": due, "sent": due, "ok": ok, "in_flight": due - ok, "offered_rate": 0.0, "sent_rate": 0.0}
    return running(seconds, ok, **{**facts, **more})


def test_the_newest_level_is_drawn_while_one_before_drains() -> None:
    out, clock = Terminal(), [0.0]
    two = [{**RAMP, "duration_s": 2.0}, {**RAMP, "duration_s": 8.0}]
    with LiveProgress(out, settings=two, now=lambda: clock[0]) as live:
        for tick in range(41):
            clock[0] = tick / 10
            first = Event(1, 2, two[0], progress=counted(clock[0], min(tick, 20), tick // 5))
            if tick < 20:
                live.event(first)
                continue
            progress = {**first.progress, "state": "draining"}  # type: ignore[dict-item]
            now = counted(clock[0] - 2, tick - 20, 0, recent=dict.fromkeys(RECENT))
            event = Event(2, 2, two[1], progress=now, step=1, before=(Event(1, 2, two[0], progress=progress),))
            live.event(event)
        last = plain(out).rpartition("level 2/2")[2]
        assert "2.0 s of 8 s" in last
        assert "4 s of 10 s, 6 s left" in last
        assert "level 1 drains, 12 in flight" in last
        assert "offered 10.0/s  sent 10.0/s  achieved 2.00/s" in last, "of both levels"
        record = {"state": "done", "outcomes": {"ok": 20}, "start_ns": 0, "close_ns": 2 * S, "end_ns": 6 * S}
        live.event(Event(1, 2, two[0], progress=counted(6, 20, 20, state="done"), level={**record, "setting": two[0]}))
        assert "level 2/2" in plain(out).rpartition("level 1/2  1..9/s poisson  6 s  20 done")[2], "still drawn"
    text = plain(out)
    assert text.count("level 1/2  1..9/s poisson  6 s  20 done  1.43/s") == 1
    assert "level 2/2  1..9/s poisson  2 s  0 done" in text


def test_each_level_has_a_pace_of_its_own() -> None:
    out = io.StringIO()
    record = {"state": "done", "start_ns": 0, "close_ns": 4 * S, "end_ns": 9 * S, "setting": RAMP}
    with LiveProgress(out, now=lambda: 0.0) as live:
        for tick in range(1, 41):
            live.event(Event(1, 2, RAMP, progress=counted(tick / 10, tick, tick)))
        draining = Event(1, 2, RAMP, progress=counted(4.1, 40, 40, state="draining"))
        for tick in range(1, 41):
            live.event(Event(2, 2, RAMP, progress=counted(tick / 10, 9 * tick, 9 * tick), step=1, before=(draining,)))
        live.event(Event(1, 2, RAMP, level={**record, "outcomes": {"ok": 45}}))
        live.event(Event(2, 2, RAMP, level={**record, "outcomes": {"ok": 362}}))
    first, second = out.getvalue().splitlines()
    assert first.startswith("level 1/2  1..9/s poisson  9 s  45 done  10.0/s")
    assert second.startswith("level 2/2  1..9/s poisson  9 s  362 done  90.0/s")


def test_a_level_that_was_not_watched_for_a_second_has_the_rate_of_its_load_alone() -> None:
    out = io.StringIO()
    record = {"state": "done", "outcomes": {"ok": 8}, "start_ns": 0, "close_ns": 2 * S, "end_ns": 9 * S}
    with LiveProgress(out, now=lambda: 0.0) as live:
        live.event(Event(1, 1, RAMP, level={**record, "setting": RAMP}))
        live.event(Event(1, 1, SETTING, level={**record, "setting": SETTING}))
    assert [line.split("  ")[4] for line in out.getvalue().splitlines()] == ["4.00/s", "0.889/s"]


def test_a_level_that_sent_nothing_before_the_end_leaves_no_line() -> None:
    out = io.StringIO()
    with LiveProgress(out, now=lambda: 0.0) as live:
        live.event(Event(2, 2, RAMP, progress=counted(0.1, 0, 0)))
    assert out.getvalue() == ""


def test_rates_of_a_run_go_on_over_its_levels() -> None:
    rates = RunRates()
    seen: dict[str, float] = {}
    for tick in range(1, 31):
        first, second = counted(tick / 10, min(tick, 20) * 3, tick * 2), counted(tick / 10 - 2, (tick - 20) * 5, 0)
        seen = rates.seen(tick / 10, {0: first} if tick <= 20 else {0: first, 1: second})
        if tick == 10:
            assert seen == pytest.approx({"offered_rate": 30, "sent_rate": 30, "rate": 20}), "from the beginning"
        if tick == 25:
            assert seen["offered_rate"] == pytest.approx(40), "half a second of 30/s and half a second of 50/s"
    assert seen == pytest.approx({"offered_rate": 50, "sent_rate": 50, "rate": 20})
    assert rates.seen(4.0, {1: {"elapsed_ns": S}}) == {}, "an engine that does not tell"
    assert RunRates().seen(1.0, {}) == {}


def test_hostile_text_never_reaches_the_terminal_as_it_is() -> None:
    for out in (io.StringIO(), Terminal()):
        with LiveProgress(out) as live:
            live.message(HOSTILE)
            live.update(0, 1, SETTING, running(1, 2, failed={HOSTILE: 1}))
        assert "\x1b[31m" not in out.getvalue()
        assert "owned" not in out.getvalue()
        assert "\x9b" not in out.getvalue()
        assert "[bold]big[/bold]" in out.getvalue()


def test_on_a_terminal_a_bar_is_drawn_and_one_line_per_level_stays() -> None:
    out = Terminal()
    with LiveProgress(out) as live:
        live.update(0, 1, SETTING, running(4, 20))
        assert "4.0 s / about 8 s" in out.getvalue()
        assert "━" in out.getvalue()
        live.update(0, 1, SETTING, running(8, 40, state="done"))
    assert "level 1/1  8 users  8 s  40 done  5.00/s" in plain(out)


def test_quiet_says_nothing() -> None:
    out = io.StringIO()
    with LiveProgress(out, quiet=True) as live:
        live.message("hello")
        live.event(Event(1, 1, SETTING, progress=running(9, 30)))
        live.event(Event(1, 1, SETTING, level={"state": "interrupted", "alerts": ["x"]}))
    assert out.getvalue() == ""


def test_nothing_new_is_no_progress() -> None:
    out = io.StringIO()
    with LiveProgress(out) as live:
        live.update(0, 1, SETTING, None)
    assert out.getvalue() == ""


def test_an_error_passes_through_after_the_last_state_was_told() -> None:
    out = io.StringIO()
    try:
        with LiveProgress(out, now=lambda: 0.0) as live:
            live.update(0, 3, SETTING, running(2, 10))
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert out.getvalue().startswith("level 1/3  8 users  2 s  10 done")


def test_output_of_a_narrow_encoding() -> None:
    raw = io.BytesIO()
    with LiveProgress(io.TextIOWrapper(raw, encoding="ascii", write_through=True)) as live:
        live.message("µ ok")
    assert raw.getvalue() == b"? ok\n"


def test_settings() -> None:
    assert setting_text({"kind": "closed", "concurrency": 1}) == "1 user"
    assert setting_text({"kind": "open", "rate": 2000.0, "process": "poisson"}) == "2,000/s poisson"


def test_a_progress_without_anything_yet() -> None:
    assert progress_line(0, 1, "1 user", {"state": "queued", "elapsed_ns": 0}) == "level 1/1  1 user  0 s  – done"


MS = 1_000_000
RECENT = {
    "p50_ns": 12 * MS,
    "p95_ns": 34 * MS,
    "p99_ns": 80 * MS,
    "ttft_p50_ns": 3 * MS,
    "ttft_p99_ns": 9 * MS,
    "lateness_p99_ns": 1_200_000,
    "pacer_late_p99_ns": 50_000,
}
RAMP = {"kind": "open", "rate": 5.0, "from_rate": 1.0, "to_rate": 9.0, "process": "poisson", "duration_s": 60.0}
NEW = {
    "offered_rate": 412.0,
    "sent_rate": 411.0,
    "rate": 398.0,
    "waiting": 3,
    "shed": 7,
    "connections": 256,
    "schedule_ns": 30 * S,
    "cpu_share": 0.34,
    "recent": RECENT,
    "failed": {"timeout": 2, "connect_error": 1},
}


def drawn(width: int, height: int = 24, settings: tuple = (RAMP, RAMP), **more: Any) -> list[str]:
    """The view at the end of a minute on a terminal of that size, without colours."""
    from rich.console import Console

    minute = Minute()
    for tick in range(130):
        minute.add(tick / 2, {"offered_rate": 10.0 * tick, "rate": min(10.0 * tick, 600.0)})
    progress = running(30, 9000, **{**NEW, **more})
    view = LevelView(0, 2, setting_text(RAMP), RAMP, progress, Schedule(settings), minute)
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None, force_terminal=True)
    with console.capture() as captured:
        console.print(view)
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 140])
def test_everything_is_in_the_view_at_any_width(width: int) -> None:
    lines = drawn(width)
    assert all(cell_len(line) <= width for line in lines)
    text = " ".join(" ".join(lines).split())
    for piece in (
        *("level 1/2", "1..9/s poisson", "offered 412/s", "sent 411/s", "achieved 398/s", "9,000 done"),
        *("p50 12.0 p95 34.0 p99 80.0 ms", "TTFT p50 3.00 p99 9.00 ms", "5 in flight", "3 waiting", "7 shed"),
        *(
            "p99 late 1.2 ms",
            "p99 own part 50 µs",
            "CPU 34% of a core",
            "256 connections",
            "2 timeout",
            "1 connect_error",
        ),
        *("30.0 s of 1 min 00 s", "30 s of 2 min 00 s, 1 min 30 s left"),
    ):
        assert piece in text


def test_the_curves_take_the_room_that_is_there() -> None:
    wide, narrow = drawn(140), drawn(40)
    assert [len(line) for line in wide if line.startswith(("  offered ", "  achieved "))] == [73, 73], "a minute"
    assert all(len(line) <= 40 for line in narrow)
    assert not any("█" in line for line in drawn(140, height=12)), "a low terminal has other things to show"


def test_a_curve_never_shows_a_little_as_nothing() -> None:
    assert sparkline([0, 0.001, 4, 8], 8) == " ▁▄█"
    assert sparkline([0, 0], 0) == "  "


def test_a_second_in_which_nothing_ended_says_so() -> None:
    assert any("nothing ended" in line for line in drawn(80, recent=dict.fromkeys(RECENT)))


def test_an_engine_that_tells_less_has_less_on_show() -> None:
    told_less: Any = dict.fromkeys(("recent", "offered_rate", "waiting", "shed", "connections", "schedule_ns"))
    text = "\n".join(drawn(80, **told_less, p50_ns=800 * MS, p95_ns=1200 * MS))
    assert "9,000 done  398/s  p50 0.800 p95 1.20 s  8 in flight" in text
    assert "waiting" not in text
    assert "None" not in text


def test_the_time_left_needs_the_length_of_every_level() -> None:
    assert Schedule([RAMP, {**RAMP, "duration_s": None}]).at(0, {"elapsed_ns": S}) is None
    assert Schedule([RAMP]).at(0, {"elapsed_ns": S}) is None, "one level has its own bar"
    plan = Schedule([RAMP, {**RAMP, "duration_s": 30.0}])
    assert plan.at(1, {"elapsed_ns": 15 * S}) == (75 / 90, "1 min 15 s of 1 min 30 s, 15 s left")
    assert plan.at(1, {"elapsed_ns": 99 * S}) == (1.0, "1 min 30 s of 1 min 30 s, 0 s left")
    assert plan.at(2, {"elapsed_ns": S}) is None


def test_levels_by_passes_have_a_schedule_of_requests() -> None:
    plan = Schedule([SETTING, {**SETTING, "concurrency": 16}])
    assert plan.at(1, {"done": 30, "shed": 2}) == (72 / 120, "72 of 120 requests")
    assert Schedule([SETTING, RAMP]).at(0, {"done": 4}) is None
    assert "40 of 80 requests" in " ".join(drawn(100, settings=(SETTING, SETTING))), "a level is over at its last one"


@pytest.mark.parametrize("width", [30, 36, 44])
def test_a_narrow_terminal_shows_everything_too(width: int) -> None:
    lines = drawn(width)
    assert all(cell_len(line) <= width for line in lines)
    assert not any("…" in line for line in lines[1:] if "schedule" not in line)
    text = " ".join(" ".join(lines).split())
    for piece in ("p99 80.0 ms", "p99 9.00 ms", "achieved 398/s", "256 connections", "7 shed"):
        assert piece in text


def test_plain_lines_tell_what_was_offered() -> None:
    line = progress_line(0, 1, "x", running(30, 9000, **NEW))
    assert line.startswith("level 1/1  x  30 s  9,000 done  398/s of 412/s")
    assert "3 waiting  7 shed" in line
    done = progress_line(0, 1, "x", running(30, 9000, **NEW, state="done"))
    assert "9,000 done  300/s  p50" in done
    assert "waiting" not in done


def test_what_was_shed_is_said_once() -> None:
    shed = running(3, 20, shed=7, failed={"shed": 7, "timeout": 1})
    assert progress_line(0, 1, "x", shed).endswith("8 in flight  7 shed  failed: 1 timeout")
    assert progress_line(0, 1, "x", {**shed, "failed": {"shed": 7}}).endswith("7 shed")
    assert progress_line(0, 1, "x", {**shed, "shed": None}).endswith("failed: 7 shed, 1 timeout")


@pytest.mark.parametrize(
    "setting, text",
    [
        ({"kind": "closed", "concurrency": 8, "from": 2}, "2..8 users"),
        ({"kind": "closed", "concurrency": 1, "unit": "session"}, "1 session"),
        (RAMP, "1..9/s poisson"),
        ({**RAMP, "from_rate": None, "bursts": {"rate": 50.0}}, "5/s poisson, bursts of 50/s"),
        ({"kind": "open", "rate": 5.0, "process": "mixed", "streams": [{}, {}, {}]}, "5/s mixed, 3 streams"),
    ],
)
def test_settings_of_stages(setting: dict[str, Any], text: str) -> None:
    assert setting_text(setting) == text
