"""The house stands as `scripts/layers.py` says, and each of its rules notices who breaks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import layers


def test_every_import_points_down() -> None:
    assert layers.broken_rules() == []


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """All rooms, empty but for what is excused."""
    for name in (name for names in layers.LAYERS for name in names):
        add(tmp_path, f"{name}.__init__", "")
    for source in {source for source, _ in layers.UPWARD}:
        targets = sorted(target for each, target in layers.UPWARD if each == source)
        add(tmp_path, source, "\n".join(f"def f():\n    from gpusize.{target} import draw" for target in targets))
        for target in targets:
            add(tmp_path, target, "")
    assert layers.broken_rules(tmp_path) == []
    return tmp_path


def add(house: Path, module: str, text: str) -> None:
    path = house.joinpath(*module.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


BROKEN = {
    "up": ("targets.a", "from gpusize.estimate import b", ["targets.a: imports estimate, which stands above it"]),
    "up inside a function": (
        "base.a",
        "def f():\n    from gpusize import cli",
        ["base.a: imports cli, which stands above it"],
    ),
    "one too many": ("attic", "", ["attic: has no layer", "19 names at the top, at most 18"]),
    "beside": ("doctor.a", "import gpusize.studies", ["doctor.a: imports studies, which stands above it"]),
    "hidden": ("cli.a", "from gpusize.base import _b", ["cli.a: imports _b of base"]),
    "loud": ("analysis.a", "def f():\n    import rich.table", ["analysis.a: imports rich.table"]),
}


@pytest.mark.parametrize("case", BROKEN)
def test_who_breaks_a_rule_is_named(house: Path, case: str) -> None:
    module, text, said = BROKEN[case]
    add(house, module, text)
    assert layers.broken_rules(house) == said


def test_an_import_for_types_counts(house: Path) -> None:
    add(house, "base.a", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from gpusize.report import b")
    assert layers.broken_rules(house) == ["base.a: imports report, which stands above it"]


def test_modules_that_import_each_other_are_a_circle(house: Path) -> None:
    add(house, "engine.a", "def f():\n    from gpusize.engine import b")
    add(house, "engine.b", "from gpusize.engine.a import f")
    assert layers.broken_rules(house) == ["a circle: engine.a, engine.b"]


def test_an_excuse_that_nobody_needs_is_told(house: Path) -> None:
    source, target = min(layers.UPWARD)
    others = [each for of, each in layers.UPWARD if (of, each) != (source, target) and of == source]
    add(house, source, "\n".join(f"def f():\n    from gpusize.{each} import draw" for each in others))
    assert layers.broken_rules(house) == [f"{source} -> {target}: is excused and not there"]
