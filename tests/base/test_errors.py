"""Errors in words."""

from __future__ import annotations

import pytest

from gpusize.base.errors import TargetError


@pytest.mark.parametrize(
    "what, said",
    [
        ("no answer", "http://h: no answer. Start it"),
        ("404 with text/html: is the address right?", "http://h: 404 with text/html: is the address right? Start it"),
    ],
)
def test_advice_follows_a_sentence_or_a_question(what: str, said: str) -> None:
    assert str(TargetError(what, "http://h", "start it")) == said
