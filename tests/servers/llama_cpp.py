"""llama.cpp's own server, ``llama-server``: requests in slots, their tokens in one batch."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from tests.servers.child import ChildFailed, Running, free_ports
from tests.servers.llama import MODEL

__all__ = ["LlamaCpp"]

READY_S = 60.0


class LlamaCpp(Running):
    """A running server; a context manager.

    Args:
        program: ``llama-server``.
        model: a GGUF file.
        folder: a folder for its log.
        slots: requests that it works on at once; others wait.
        context: tokens of each, prompt and answer together.
        prefix: words before the command, to pin it to a core for instance.
    """

    def __init__(
        self,
        program: Path,
        model: Path,
        folder: Path,
        *,
        slots: int = 1,
        context: int = 1_024,
        prefix: Sequence[str] = (),
    ) -> None:
        (self.port,) = free_ports(1)
        words = ["--model", str(model), "--alias", MODEL, "--host", "127.0.0.1", "--port", str(self.port)]
        words += ["--parallel", str(slots), "--ctx-size", str(slots * context)]
        words += ["--threads", "1", "--threads-batch", "1"]
        # What two prompts have in common is computed anew, so that a request's cost is that of its lengths.
        words += ["--no-cache-prompt", "--cache-ram", "0", "--no-webui", "--no-warmup"]
        super().__init__([*prefix, program, *words], folder / "llama-server.log")
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        with httpx.Client(trust_env=False, verify=False, timeout=10) as client:
            end = time.monotonic() + READY_S
            while self.ended is None and time.monotonic() < end:
                with contextlib.suppress(httpx.TransportError):
                    if client.get(f"http://127.0.0.1:{self.port}/health").status_code == httpx.codes.OK:
                        return
                time.sleep(0.05)
        raise ChildFailed(f"llama-server does not get ready ({self.ended}):\n{self.tail()}")

    @property
    def url(self) -> str:
        """Its OpenAI address."""
        return f"http://127.0.0.1:{self.port}/v1"
