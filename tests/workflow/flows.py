"""Workflows under test. Their module is imported by its path, as a user's is."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from gpusize.targets.workflow import call

seen: list[Any] = []
"""What the workflows were called with."""


async def plain(question: str) -> str:
    """Remembers its input."""
    seen.append(question)
    return question.upper()


async def two_calls(_question: str) -> None:
    """Two calls of a language model that overlap, and one of a tool."""

    async def ask(name: str, first: asyncio.Event, then: asyncio.Event) -> None:
        async with call("llm", name=name) as made:
            then.set()
            await first.wait()
            made.token()
            made.usage(tokens_in=7, tokens_out=3)

    one, two = asyncio.Event(), asyncio.Event()
    await asyncio.gather(ask("one", two, one), ask("two", one, two))
    with call("tool", name="look up"):
        await asyncio.sleep(0)


async def stream(_question: str) -> AsyncIterator[str]:
    """Three pieces."""
    for piece in ("a", "b", "c"):
        await asyncio.sleep(0)
        yield piece


def pieces(_question: str) -> Iterator[str]:
    """Two pieces, from a plain generator."""
    yield "a"
    yield "b"


def blocking(question: str) -> None:
    """A call on a thread."""
    seen.append((question, threading.current_thread().name))
    with call("llm", name="blocking"):
        time.sleep(0.001)


def later(_question: str) -> Any:
    """A plain function that gives back what only an event loop can go on with."""

    async def rest() -> None:
        with call("llm", name="rest"):
            await asyncio.sleep(0)

    return rest()


class Agent:
    """A workflow that is an object."""

    async def __call__(self, question: str) -> None:
        seen.append(question)

    async def answer(self, question: str) -> None:
        """A method."""
        seen.append(f"answer {question}")


agent = Agent()


async def broken(question: str) -> None:
    """Fails as the question says."""
    with call("llm", name="broken"):
        errors: dict[str, BaseException] = {
            "value": ValueError("no such thing"),
            "time": TimeoutError("late"),
            "net": ConnectionResetError("gone"),
            "cancel": asyncio.CancelledError(),
            "exit": SystemExit(3),
        }
        if question in errors:
            raise errors[question]


class Mute(Exception):
    """An exception whose words fail."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Raw(BaseException):
    """No Exception, and half a character in its text."""


class Riddle(Exception):
    """One whose class cannot be asked for."""

    @property  # type: ignore[misc]
    def __class__(self):
        raise RuntimeError("no class")


class Sour:
    """An answer whose methods fail."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("sour")

    def __del__(self) -> None:
        """Nothing: what would fail here is Python's to tell."""


class Unmovable:
    """An awaitable that fails when it is awaited."""

    def __await__(self) -> Any:
        raise KeyboardInterrupt


class WordsOf(str):
    """A text that will not be cut."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> str:
        raise RuntimeError("uncut")

    def __format__(self, _spec: str) -> str:
        raise RuntimeError("unformatted")


class Odd(Exception):
    """Its text is no plain one."""

    def __str__(self) -> str:
        return WordsOf("odd")


def misbehave(question: str) -> Any:
    """What other people's code may do."""
    import gpusize

    if question == "calls":
        with gpusize.call("llm", name=["a", "list"]):  # type: ignore[arg-type]
            return None
    if question == "half a name":
        with gpusize.call("tool", name="\ud800"):
            return None
    if question in ("sour", "unmovable"):
        return Sour() if question == "sour" else Unmovable()
    if question != "fine":
        raise {"mute": Mute, "raw": Raw, "riddle": Riddle, "odd": Odd}[question]("half \ud800 a character")
    return None


async def misbehave_later(question: str) -> Any:
    """The same on the event loop."""
    found = misbehave(question)
    return await found if question == "unmovable" else found


async def for_ever(_question: str) -> None:
    """Never ends."""
    with call("llm", name="endless"):
        await asyncio.Event().wait()


async def stubborn(_question: str) -> None:
    """Does not let itself be cancelled."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")


async def first_then_for_ever(question: str) -> None:
    """The first row is answered, so that the run begins; the others never."""
    if question != "first":
        await asyncio.Event().wait()


release = threading.Event()


def stuck(question: str) -> None:
    """Holds its thread until it is released."""
    if question != "first":
        release.wait()
