"""The page's colours by the WCAG's formula of contrast, from the CSS variables, and what a keyboard reaches."""

from __future__ import annotations

import re

import pytest

from gpusize.report.figures.plots import figures
from gpusize.report.page.html import render_html
from tests.report.results import sweep

LEAST = 4.5
"""WCAG 2.2, 1.4.3, of text below 24 px."""
INKS = ("ink", "muted", "link", "bad-ink", "low-ink", "limit-ink", "good-ink", "other-ink", "amber-ink")
STYLE = render_html(sweep()).partition("<style>")[2].partition("</style>")[0]
THEMES = [
    dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
]


def luminance(color: str) -> float:
    """Relative luminance of sRGB, of WCAG 2.2."""
    parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_black_on_white_is_21_to_1() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("theme", THEMES, ids=["light", "dark", "paper"])
@pytest.mark.parametrize("behind", ["paper", "shade", "warn-bg"])
def test_texts_can_be_read(theme: dict[str, str], behind: str) -> None:
    weak = {ink: round(contrast(theme[ink], theme[behind]), 2) for ink in INKS}
    assert {ink: value for ink, value in weak.items() if value < LEAST} == {}
    assert contrast(theme["paper"], theme["ink"]) >= LEAST, "the chosen level"


@pytest.mark.parametrize("theme", THEMES, ids=["light", "dark", "paper"])
def test_the_focus_ring_and_the_series_can_be_seen(theme: dict[str, str]) -> None:
    """3 to 1, by 1.4.11 for what is no text; the palest series is named by its text besides."""
    for color in ("mid", "high", "limit", "good", "other", "amber"):
        assert contrast(theme[color], theme["paper"]) >= 3, color


def test_pictures_tables_and_choices_have_names_and_a_place_for_the_keyboard() -> None:
    text = render_html(sweep(), figures=figures(sweep()))
    assert all('aria-label="' in each for each in re.findall(r'<svg role="img"[^>]*>', text))
    assert len(re.findall(r'<svg role="img"', text)) == len(re.findall("<figure", text)) > 0
    assert all(
        re.search(r'tabindex="0" role="group" aria-label="[^"]+"', each)
        for each in re.findall(r'<div class="plot".*?>', text)
    )
    for each in re.findall(r'<table class="sort".*?</table>', text, re.DOTALL):
        assert re.search(r"<caption>[^<]+</caption>", each)
        assert '<th scope="col"' in each
    for name in re.findall(r'<input type="radio"[^>]* id="([\w-]+)"', text):
        assert f'<label for="{name}">' in text
    assert "fieldset input:focus-visible + label { outline: 2px" in STYLE
    assert ":focus-visible { outline: 2px" in STYLE
    assert not re.search(r"outline: *(?:none|0)", STYLE)
    for each in re.findall(r"<button[^>]*>", text):
        assert "tabindex" not in each
