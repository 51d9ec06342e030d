"""Finds a workflow's function by its import path, and says how it is to be called."""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import sys
from collections.abc import AsyncIterable, Awaitable, Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import EnvironmentLacks, UsageError
from gpusize.base.text import said, shown

if TYPE_CHECKING:
    from gpusize.targets.workflow.record import RecordedRequest

__all__ = ["consume", "consume_async", "is_asynchronous", "load_function", "name_of"]

_EXAMPLE: Final = "write it as package.module:function"


def load_function(path: str) -> Callable[[Any], Any]:
    """The function at ``package.module:function``; what follows the colon may have dots, for a method.

    The current folder is searched as well, as ``python -m`` does.

    Raises:
        UsageError: there is no such module or name, or it cannot be called with one row.
        EnvironmentLacks: the module is there and fails while it is imported.
    """
    module_name, colon, attribute = path.partition(":")
    if not colon or not module_name or not attribute:
        raise UsageError(f'"{shown(path)}" names no function', "workflow", _EXAMPLE)
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise UsageError(
                f"there is no module {shown(module_name)}", f"workflow {path}", "run it from the folder that holds it"
            ) from None
        raise _unloadable(path, error) from error
    except Exception as error:  # whatever a foreign module raises while it is imported
        raise _unloadable(path, error) from error
    for name in attribute.split("."):
        found = getattr(found, name, None)
        if found is None:
            raise UsageError(f"there is no {shown(name)} in it", f"workflow {path}", _EXAMPLE)
    return check_function(found, path)


def _unloadable(path: str, error: BaseException) -> EnvironmentLacks:
    what = f"the module cannot be imported: {shown(said(error), 300)}"
    return EnvironmentLacks(what, f"workflow {path}", "try it with python -m")


def check_function(function: Any, where: str) -> Callable[[Any], Any]:
    """The function, when it can be called with one argument.

    Raises:
        UsageError: it cannot.
    """
    if not callable(function):
        raise UsageError(f"a {type(function).__name__} cannot be called", f"workflow {where}", "name a function")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise UsageError(
            "it cannot be called with one argument", f"workflow {where}", "it gets one row, as in def answer(question)"
        ) from None
    except ValueError:
        pass  # some built-in functions have no signature
    return function  # type: ignore[no-any-return] # narrowed by callable only


def name_of(function: Callable[[Any], Any]) -> str:
    """The import path of a function, as far as it has one."""
    inner = function.func if isinstance(function, functools.partial) else function
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    return f"{getattr(inner, '__module__', None) or '__main__'}:{name}"


def is_asynchronous(function: Callable[[Any], Any]) -> bool:
    """Whether calling it gives something to be awaited or iterated on an event loop."""
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    if not inspect.isroutine(inner) and not inspect.isclass(inner):
        inner = type(inner).__call__
    return inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner)


async def consume_async(result: Any, request: RecordedRequest) -> None:
    """Wait for what a function gave back; the items of an asynchronous generator are pieces of content."""
    if isinstance(result, Awaitable):
        result = await result
    if isinstance(result, AsyncIterable):
        async for _ in result:
            request.token()
    else:
        consume(result, request)


def consume(result: Any, request: RecordedRequest) -> Any:
    """Exhaust a generator, whose items are pieces of content; gives back what only an event loop can go on with."""
    if isinstance(result, Generator):
        for _ in result:
            request.token()
        return None
    waits = asyncio.isfuture(result) or inspect.isawaitable(result) or isinstance(result, AsyncIterable)
    return result if waits else None
