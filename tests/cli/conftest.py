"""The command line in this process, and a server that it can measure."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer.main

from gpusize.cli import invoke
from tests.servers.fixtures import certificates, scripted_server
from tests.servers.scripted import Request, Script, ScriptedServer, Send, Step, answer

__all__ = ["certificates", "scripted_server"]

ANSWER = {"choices": [{"message": {"content": "hi"}}], "usage": {"prompt_tokens": 5, "completion_tokens": 7}}


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line on standard error that is not progress."""
        lines = [line for line in self.err.splitlines() if line.startswith("gpusize: ")]
        assert len(lines) == 1, self.err
        return lines[0].removeprefix("gpusize: ")


Gpusize = Callable[..., Done]

# A process makes its commands out of their signatures once; here some thousand command lines share one process.
_get_command = functools.cache(typer.main.get_command)


@pytest.fixture
def gpusize(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gpusize:
    """Runs a command line in a folder of its own."""
    monkeypatch.setattr(typer.main, "get_command", _get_command)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*argv: str | Path) -> Done:
        capfd.readouterr()
        code = invoke([str(each) for each in argv])
        out, err = capfd.readouterr()
        return Done(code, out, err)

    return run


def chat(_request: Request) -> Sequence[Step]:
    """An OpenAI chat completion, whole."""
    return [Send(answer(json.dumps(ANSWER).encode(), headers=["Content-Type: application/json"]))]


@pytest.fixture
def chat_server(scripted_server: Callable[[Script], ScriptedServer]) -> ScriptedServer:
    """Answers every request with the same chat completion."""
    return scripted_server(chat)


@pytest.fixture
def url(chat_server: ScriptedServer) -> str:
    """Its address."""
    return f"http://127.0.0.1:{chat_server.port}/v1"
