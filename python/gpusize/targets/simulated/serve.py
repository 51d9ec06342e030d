"""What ``gpusize simulate`` does: the simulated cluster's configuration from options, and its serving."""

from __future__ import annotations

import json
import os
import threading
from typing import IO, TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.interrupt import StopSwitch, on_interrupt
from gpusize.base.units import as_duration_s
from gpusize.engine.session import core
from gpusize.targets.simulated.config import config_text
from gpusize.targets.simulated.replicas import with_replicas

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["cluster_config", "serve"]

MOST_STALL_S: Final = 86_400.0
_OPTION: Final = {"malformed_rate": "malformed"}
"""Options whose name is not that of the field that they set."""


def cluster_config(
    text: str | None = None,
    *,
    output_tokens: int | None = None,
    stall: str | None = None,
    start_delay: str | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """The cluster's configuration from a JSON text and the options that win over it.

    Args:
        text: JSON of a configuration, or None.
        output_tokens: answers of exactly so many tokens.
        stall: how long all GPUs freeze once, as ``1s``.
        start_delay: from when a replica is asked for to when it takes requests, as ``5s``.
        fields: further fields; those that are faults go there, None stands for not given.

    Raises:
        UsageError: the text is no JSON object, or a value is invalid.
    """
    try:
        config = json.loads(text) if text is not None else {}
    except ValueError as error:
        raise UsageError(f"broken JSON: {error}", "cluster", 'write it as {"gpus": 4}') from None
    if not isinstance(config, dict):
        raise UsageError("not a JSON object", "cluster", 'write it as {"gpus": 4}')
    given = {name: value for name, value in fields.items() if value is not None}
    if output_tokens is not None:
        given["output_tokens"] = {"fixed": {"tokens": output_tokens}}
    faults: dict[str, Any] = {
        name: given.pop(name) for name in ("fail_rate", "reset_rate", "malformed_rate") if name in given
    }
    for name, share in faults.items():
        if not 0 <= share <= 1:
            raise UsageError(
                f"{share:g} is not a share of requests", _OPTION.get(name, name), "give 0 to 1; 0.01 is 1 %"
            )
    if stall is not None:
        faults["stall_s"] = as_duration_s(stall, "stall")
        if faults["stall_s"] > MOST_STALL_S:
            raise UsageError(f"a stall of {stall} is longer than a day", "stall", "give 1d or less")
    if start_delay is not None:
        given["start_delay_s"] = as_duration_s(start_delay, "start_delay")
    if faults:
        given["faults"] = {**config.get("faults", {}), **faults}
    return with_replicas({**config, **given})


def serve(
    config: Mapping[str, Any], host: str, port: int, *, out: IO[str], questions: IO[str] | None, grpc_port: int = 0
) -> None:
    """Serve until Ctrl-C, or until ``questions`` ends.

    Args:
        config: the cluster's configuration; missing fields have their defaults.
        host: address to listen on.
        port: port to listen on; 0 for any free one.
        out: is told when the cluster is up: one line, in JSON (``url``, ``grpc_url``, ``pid``, ``config``) when there
            are questions.
        questions: each line ``stats`` is answered with one JSON line on ``out``; None to serve until Ctrl-C.
        grpc_port: port to listen on for gRPC; 0 for any free one.

    Raises:
        UsageError: the configuration is invalid.
        EnvironmentLacks: the port cannot be had.
    """
    server = core().SimServer(config_text(config), host, port, grpc_port=grpc_port)
    shown_host = f"[{host}]" if ":" in host else host
    url, grpc_url = f"http://{shown_host}:{server.port}", f"{shown_host}:{server.grpc_port}"
    try:
        if questions is None:
            # Who reads the line may send the signal: it must not find the default handler.
            with on_interrupt(asked := _Interrupted()):
                places = f"OpenAI API: {url}/v1; KServe v2: {url}/v2, gRPC {grpc_url}"
                out.write(f"simulated cluster at {url} ({places}); Ctrl-C ends it\n")
                out.flush()
                asked.wait()
            return
        _say(out, {"url": url, "grpc_url": grpc_url, "pid": os.getpid(), "config": dict(config)})
        for line in questions:
            if line.strip() == "stats":
                _say(out, json.loads(server.stats()))
    finally:
        server.stop()


def _say(out: IO[str], content: Mapping[str, Any]) -> None:
    out.write(f"{json.dumps(content)}\n")
    out.flush()


class _Interrupted(StopSwitch):
    """Lets a thread wait for Ctrl-C."""

    def __init__(self) -> None:
        super().__init__()
        self._event = threading.Event()

    def ask(self) -> None:
        super().ask()
        self._event.set()

    def wait(self) -> None:
        """Return when an end was asked for."""
        self._event.wait()
