"""Arguments of wrong types from Python: a usage error that names them, never an AttributeError or a TypeError."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpusize
from gpusize.base.errors import GpusizeError, UsageError

WRONG: list[Any] = [5, None, b"x", [1], {"a": 1}, object(), 3.5, True, "x"]


def made(kind: Callable[..., Any], **least: Any) -> list[tuple[str, Callable[[Any], Any]]]:
    """A maker per argument: all others are as they must be."""

    def maker(name: str) -> Callable[[Any], Any]:
        return lambda value: kind(**{**least, name: value})

    return [(f"{kind.__name__} {name}", maker(name)) for name in inspect.signature(kind).parameters]


MAKERS = [
    *made(gpusize.Target, url="http://h"),
    *made(gpusize.Load),
    *made(gpusize.Stream, rate=1),
    *made(gpusize.WorkflowTarget),
    *made(gpusize.Question, users=5, slos=()),
    ("from_rows", gpusize.Dataset.from_rows),
    ("from_prompt", gpusize.Dataset.from_prompt),
    ("from_synthetic", gpusize.Dataset.from_synthetic),
    ("read", gpusize.Dataset.read),
    ("open_run", gpusize.open_run),
]
RUN = ("target", "dataset", "load", "slos", "users", "out", "labels", "resume", "observers", "shapes", "adaptive")


@pytest.mark.parametrize("name,make", MAKERS, ids=[name for name, _ in MAKERS])
def test_a_wrong_type_is_a_usage_error_or_it_is_right(
    name: str, make: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for value in WRONG:
        # A file that is not there, a word that is unknown: whatever it is, it is said.
        with contextlib.suppress(GpusizeError):
            make(value)


@pytest.mark.parametrize("name", RUN)
def test_wrong_types_of_a_run_are_refused_before_anything_is_sent(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    right: dict[str, Any] = {"target": "http://127.0.0.1:1/v1", "dataset": gpusize.Dataset.from_prompt("x")}
    right["load"] = gpusize.Load(concurrencies=[1], passes=1)
    for value in (object(), 3.5) if name != "users" else (object(), "x", [1]):
        with pytest.raises(UsageError, match=f"{name} is of type"):
            gpusize.run(**{**right, name: value})
    assert not list(tmp_path.iterdir())


def test_the_value_is_not_shown_for_it_may_be_a_secret() -> None:
    for wrong in ({"headers": [("Authorization", "sk-very-secret")]}, {"api_key_env": ["sk-very-secret"]}):
        with pytest.raises(UsageError, match=r"is of type list\. Give ") as caught:
            gpusize.Target("http://h", **wrong)
        assert "sk-" not in str(caught.value)
