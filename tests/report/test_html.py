from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gpusize.base.errors import StoreError
from gpusize.estimate.truth import Truth
from gpusize.report.figures.plots import figures
from gpusize.report.figures.style import CSS_NAMES, SERIES
from gpusize.report.page.html import render_html, write_html
from tests.report.results import HOSTILE, SLO, Source, crossing, frame, interrupted, meta, row, slope, sweep


def scripts(text: str) -> int:
    """Script elements, those within texts included."""
    return len(re.findall("<script", text))


VOID = {"meta", "br", "link", "img", "hr", "input"}


class Page(HTMLParser):
    """Reads a page strictly: every tag closed in order, ids once, attributes collected."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.tags: Counter[str] = Counter()
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids.update(value or "" for name, value in attrs if name == "id")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data if "style" not in self.open else ""


def page(source: Source, *estimates: Any, drawn: bool = False, truth: Truth | None = None) -> tuple[Page, str]:
    made = figures(source, estimates) if drawn else {}
    text = render_html(source, estimates, truth=truth, figures=made)
    return Page(text), text


def test_the_page_says_what_was_found_and_how_to_repeat_it() -> None:
    found, text = page(sweep(interrupted()), slope(), crossing(), drawn=True, truth=Truth(82, 9.75))
    said = " ".join(found.text.split())
    for part in (
        f"76 GPUs for 100 users at {SLO}",
        "10.6 requests in flight on the 8 GPUs tested (inside the tested range)",
        "True answer: 82 GPUs, by the simulated cluster's own model",
        "the estimate is 6 too few",
        "only 8 requests at level 1",
        "Measure next: 10, 13 in flight",
        "7.91",
        "99.0% ✓",
        "40.0% ✗",
        "64 users:",
        "3.03 s + 0.657 s × concurrency, R² 0.995",
        "50 to 100 GPUs",
        "capacity grows in proportion",
        f"gpusize run --slo '{SLO}'",
        "bench-1, EPYC, 32 cores, 64 GiB, Linux 6.1, Python 3.11.7",
        "prompts.jsonl, 120 rows, sha256 abababababababab…",
        "node=a",
        "2026-11-20T21:03:12Z",
    ):
        assert part in said, part
    assert found.tags["svg"] == 7
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_what_stands_in_and_what_would_change_it_is_said() -> None:
    fallback = "the twin method gives no number: <imported>. This is the crossing method's answer"
    _, text = page(sweep(), crossing(fallback=fallback, changes=("above about 107 users it takes more",)), slope())
    assert "no number: &lt;imported&gt;. This is the crossing method&#39;s answer." in text
    assert re.search(
        r"What would change it:.*\s*<ul class=\"plain\"><li>above about 107 users it takes more</li>", text
    )
    assert "What would change it" not in page(sweep(), slope())[1]


def test_nothing_comes_from_elsewhere_and_nothing_runs_but_the_page_s_own_script() -> None:
    found, text = page(sweep(), slope(), crossing(), drawn=True)
    assert set(re.findall(r"https?://[^\s<\"',]+", text)) == {"http://gpu-07:8000/v1/chat/completions"}
    for tag in ("link", "img", "iframe", "object", "base"):
        assert found.tags[tag] == 0
    assert scripts(text) == 2  # what the charts are drawn from, and what draws them
    own = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert [f"script-src 'sha256-{base64.b64encode(hashlib.sha256(own[0].encode()).digest()).decode()}'"] == re.findall(
        r"script-src [^;]+", text
    )
    for _, name, value in found.attributes:
        assert not name.startswith("on")
        if name in ("href", "src", "xlink:href", "action"):
            assert value.startswith("#")
    assert "@import" not in text
    assert not re.findall(r"url\((?!#)", text)
    assert "default-src 'none'" in text


def test_ids_are_unique_and_references_lead_somewhere() -> None:
    found, text = page(sweep(), slope(), crossing(), drawn=True)
    wanted = {value[1:] for _, name, value in found.attributes if name.endswith("href")}
    wanted |= set(re.findall(r"url\(#([^)]+)\)", text))
    assert wanted
    assert wanted <= set(found.ids)
    assert [name for name, n in found.ids.items() if n > 1] == []


def test_figures_follow_the_colours_of_the_page() -> None:
    _, text = page(sweep(), slope(), crossing(), drawn=True)
    drawn = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
    assert re.findall(r"#[0-9a-f]{6}\b", drawn) == []
    used = set(re.findall(r"var\(--(\w+)\)", drawn))
    defined = set(re.findall(r"--(\w+):", text))
    assert {"ink", "paper", "mid", "limit"} <= used <= defined
    assert set(CSS_NAMES.values()) <= defined
    assert set(SERIES) <= set(CSS_NAMES)


def test_hostile_text_is_neutralised_wherever_it_comes_from() -> None:
    target = {"url": HOSTILE, "api": HOSTILE, "model": HOSTILE, "tls_verified": False, "gpus": 8}
    evil = meta(
        targets=[target],
        command=["gpusize", HOSTILE],
        hosts=[{"hostname": HOSTILE}],
        dataset={"source": HOSTILE, "rows": 1, "sha256": HOSTILE},
        labels={HOSTILE: HOSTILE},
        run=HOSTILE,
    )
    source = Source(sweep(interrupted()).summary, evil, path=Path(HOSTILE.replace("\x00", "").replace("/", "")))
    estimate = slope(reason=HOSTILE, warnings=(HOSTILE,), assumptions=(HOSTILE,))
    found, text = page(source, estimate, slope(gpus=None, reason=HOSTILE), drawn=True)
    assert scripts(text) == 2
    assert not [c for c in text if (ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0 or c == "\u202e"]
    assert "red <script>alert(1)</script> [bold]big[/bold]" in found.text


def test_an_unverified_certificate_weakens_the_answer() -> None:
    target = {"url": "https://h/", "tls_verified": False}
    found, _ = page(sweep(targets=[target]), slope())
    assert "the TLS certificate of https://h/ was not verified" in found.text


def test_a_withheld_answer_and_no_answer_at_all() -> None:
    estimate = slope(p95_s=[3.0] * 6)
    found, _ = page(sweep(), estimate)
    assert f"No GPU count for 100 users at {SLO}: {estimate.reason}" in " ".join(found.text.split())
    found, _ = page(sweep())
    assert "What was measured" in found.text
    found, _ = page(Source(frame([row(1, 1.0)]).clear()))
    assert "No level was measured." in found.text


def test_without_a_simulated_cluster_there_is_no_true_answer() -> None:
    found, _ = page(sweep(), slope())
    assert "True answer" not in found.text


def test_the_file_is_written_or_the_error_names_it(tmp_path: Path) -> None:
    file = write_html(sweep(), [slope()], tmp_path / "report.html")
    Page(file.read_text())
    with pytest.raises(StoreError, match=r"report\.html"):
        write_html(sweep(), [], file / "report.html")
