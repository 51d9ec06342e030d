"""The picture of the layers in docs/ is the one that the code gives."""

from __future__ import annotations

from scripts.layers import LAYERS
from scripts.layers_picture import PICTURE, picture, purpose


def test_the_picture_of_the_layers_is_drawn_from_the_code() -> None:
    drawn = PICTURE.read_text(encoding="utf-8")
    assert drawn == picture(), "run `python -m scripts.layers_picture`"


def test_every_package_says_in_one_short_line_what_it_is_for() -> None:
    lines = {name: purpose(name) for names in LAYERS for name in names}
    assert not [name for name, line in lines.items() if not 20 <= len(line) <= 100 or not line.endswith(".")]
