from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpusize.report.live import LiveProgress, progress_line, setting_text
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
        live.update(0, 2, SETTING, running(12.5, 40, state="done"))
        live.update(0, 2, SETTING, running(12.5, 40, state="done"))
    lines = out.getvalue().splitlines()
    assert [line.split("  ")[2] for line in lines] == ["5 s", "10 s", "12.5 s"]
    assert lines[0] == "level 1/2  8 users  5 s  50 done  3.20/s  p50 0.800 p95 1.23 s  8 in flight"
    assert lines[-1] == "level 1/2  8 users  12.5 s  40 done  3.20/s  p50 0.800 p95 1.23 s"


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
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    assert "level 1/1  8 users  8 s  40 done  5.00/s" in plain


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
