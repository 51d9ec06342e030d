"""How many GPUs a cluster has: what its pods' use of them is a share of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from gpusize.base.errors import TargetError

if TYPE_CHECKING:
    from gpusize.cluster.access.api import KubeApi

__all__ = ["count_gpus"]

_NODES: Final = "/api/v1/nodes"
_PAGE: Final = 500


class _Status(msgspec.Struct):
    allocatable: dict[str, str] = {}


class _Node(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class _Meta(msgspec.Struct):
    onward: str | None = msgspec.field(default=None, name="continue")


class _Page(msgspec.Struct):
    metadata: _Meta
    items: list[_Node] = []


async def count_gpus(api: KubeApi) -> int | None:
    """Allocatable devices of all nodes whose resource is named ``VENDOR/gpu``; None where nodes may not be listed."""
    count, params = 0, {"limit": str(_PAGE)}
    while True:
        try:
            answer = await api.ask("GET", _NODES, params=params)
            if answer.status >= 400:
                return None
            page = msgspec.json.decode(answer.body, type=_Page)
        except (TargetError, msgspec.MsgspecError):
            return None
        count += sum(
            int(amount)
            for node in page.items
            for name, amount in node.status.allocatable.items()
            if name.endswith("/gpu") and amount.isdigit()
        )
        if not page.metadata.onward:
            return count
        params = {"limit": str(_PAGE), "continue": page.metadata.onward}
