"""A real LLM server, llama.cpp with a random model made on the spot, in its own virtual environment."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.servers.child import Child

__all__ = ["MODEL", "LlamaServer", "make_model"]

MODEL = "tiny"
"""Its name in the API."""

PROGRAMS = Path(__file__).parent


def make_model(python: Path, path: Path, **options: int) -> Path:
    """Write a random model; ``options`` are those of tiny_gguf.py, as ``embedding=768``."""
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    subprocess.run([python, PROGRAMS / "tiny_gguf.py", path, *words], check=True)
    return path


class LlamaServer:
    """A running server; a context manager.

    Args:
        python: the interpreter of the peer ``llama``.
        model: a GGUF file.
        folder: a folder for its log.
        threads: threads that evaluate a token.
        prefix: words before the command, to pin it to a core for instance.
    """

    def __init__(
        self, python: Path, model: Path, folder: Path, *, threads: int = 1, prefix: Sequence[str] = ()
    ) -> None:
        options = ("--model", model, "--alias", MODEL, "--threads", str(threads))
        self._child = Child([*prefix, python, PROGRAMS / "programs/llama_server.py", *options], folder / "llama.log")
        self.port: int = self._child.ready["port"]

    @property
    def url(self) -> str:
        """Its OpenAI address."""
        return f"http://127.0.0.1:{self.port}/v1"

    def log(self) -> str:
        """The end of what it wrote."""
        return self._child.tail()

    def close(self) -> None:
        """End it."""
        self._child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
