"""What ``gpusize`` exports says what it takes and raises: every parameter, and every error of ours in its body."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gpusize
from gpusize.base.errors import GpusizeError

SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields|Example|Examples|Note):", re.MULTILINE)


def public() -> Iterator[tuple[str, Any]]:
    """Functions and classes by name, and the methods that a class defines itself."""
    for name in gpusize.__all__:
        found = getattr(gpusize, name)
        yield name, found
        if inspect.isclass(found) and not issubclass(found, BaseException):
            for own, value in vars(found).items():
                plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
                if inspect.isfunction(plain) and not own.startswith("_"):
                    yield f"{name}.{own}", plain


PUBLIC = dict(public())
CALLED = {
    name: each for name, each in PUBLIC.items() if not (inspect.isclass(each) and issubclass(each, BaseException))
}


def sections(text: str) -> dict[str, str]:
    """Google's sections of a docstring, by title."""
    parts = SECTION.split(inspect.cleandoc(text))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def named(section: str) -> set[str]:
    """What a section has entries of; several may share one, ``a, b: ...``."""
    heads = re.findall(r"^ {4}(\*{0,2}\w+(?:, \*{0,2}\w+)*):", section, re.MULTILINE)
    return {each.strip(" *") for head in heads for each in head.split(",")}


def parameters(found: Callable[..., Any]) -> list[str]:
    if dataclasses.is_dataclass(found):
        return [field.name for field in dataclasses.fields(found) if field.init]
    own = list(inspect.signature(found).parameters.values())
    return [each.name for each in own if each.name not in {"self", "cls"} and not each.name.startswith("_")]


def raised(found: Callable[..., Any]) -> set[str]:
    """Errors of ours that the body itself raises; of a class that making one does."""
    made: Any = found
    if inspect.isclass(found):
        # The __init__ of a dataclass is nobody's text.
        made = vars(found).get("__post_init__" if dataclasses.is_dataclass(found) else "__init__")
    if not inspect.isfunction(made):
        return set()
    tree = ast.parse(textwrap.dedent(inspect.getsource(made)))
    calls = [each.exc for each in ast.walk(tree) if isinstance(each, ast.Raise) and isinstance(each.exc, ast.Call)]
    names = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
    ours = {name: getattr(gpusize, name, None) for name in names}
    return {name for name, each in ours.items() if inspect.isclass(each) and issubclass(each, GpusizeError)}


def test_a_section_is_read_as_it_is_written() -> None:
    text = """Summary.

    Args:
        one, two: both.
        *rest: more: of it.

    Raises:
        UsageError: none is given.
    """
    found = sections(text)
    assert named(found["Args"]) == {"one", "two", "rest"}
    assert named(found["Raises"]) == {"UsageError"}
    assert raised(gpusize.Result.estimate) == {"UsageError"}
    assert parameters(gpusize.Slo)
    assert len(CALLED) > 80


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_says_what_it_is(name: str) -> None:
    text = inspect.getdoc(PUBLIC[name]) or ""
    assert len(text.splitlines()[0]) > 10, name


@pytest.mark.parametrize("name", CALLED)
def test_every_parameter_is_documented(name: str) -> None:
    found = sections(CALLED[name].__doc__ or "")
    told = named(found.get("Args", "")) | named(found.get("Attributes", ""))
    missing = [each for each in parameters(CALLED[name]) if each not in told]
    assert not missing, f"{name} does not say what {', '.join(missing)} is"


@pytest.mark.parametrize("name", CALLED)
def test_every_error_that_it_raises_itself_is_documented(name: str) -> None:
    told = sections(CALLED[name].__doc__ or "").get("Raises", "")
    missing = {each for each in raised(CALLED[name]) if each not in told}
    assert not missing, f"{name} does not say when it raises {', '.join(missing)}"
