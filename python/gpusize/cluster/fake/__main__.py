"""Fake nodes in a process of its own: ``python -m gpusize.cluster.fake OPTIONS``, OPTIONS being a JSON document.

Says one JSON document a line on its standard output: ``{"ready": true}`` when the nodes are there, and
``{"error": ...}`` when they cannot be. It takes them away, and ends, when its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from typing import Any

from gpusize.base.errors import GpusizeError
from gpusize.base.interrupt import StopSwitch
from gpusize.cluster.access.api import connect
from gpusize.cluster.fake.delays import Delays
from gpusize.cluster.fake.group import FakeGroup
from gpusize.cluster.fake.nodes import FakeNodes

__all__ = ["main"]

_LOOK_S = 0.1


def _say(**document: Any) -> None:
    sys.stdout.write(f"{json.dumps(document)}\n")
    sys.stdout.flush()


async def _serve(asked: dict[str, Any], switch: StopSwitch) -> None:
    nodes, delays = FakeNodes(**asked["nodes"]), Delays.parse(**asked["delays"])
    async with connect(asked["kubeconfig"], asked["context"]) as api, FakeGroup(api, nodes, delays) as fakes:
        _say(ready=True)
        while not switch.asked:
            await asyncio.sleep(_LOOK_S)
            fakes.check()


def main(asked: dict[str, Any]) -> None:
    """Have the nodes there until standard input ends.

    Args:
        asked: ``kubeconfig``, ``context``, ``nodes`` (of `FakeNodes`) and ``delays`` (of `Delays.parse`).
    """
    switch = StopSwitch()

    def listen() -> None:
        sys.stdin.read()
        switch.ask()

    threading.Thread(target=listen, daemon=True).start()
    try:
        asyncio.run(_serve(asked, switch))
    except GpusizeError as error:
        _say(error=[error.what, error.where, error.todo])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
