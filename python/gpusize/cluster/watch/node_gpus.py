"""How many GPUs a cluster has: what its pods' use of them is a share of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpusize.base.errors import TargetError

if TYPE_CHECKING:
    from gpusize.cluster.access.api import KubeApi

__all__ = ["count_gpus"]

_NODES: Final = "/api/v1/nodes"


async def count_gpus(api: KubeApi) -> int | None:
    """Allocatable devices of all nodes whose resource is named ``VENDOR/gpu``; None where nodes may not be listed."""
    count = 0
    try:
        async for page in api.pages(_NODES):
            for node in page.get("items") or ():
                allocatable = (node.get("status") or {}).get("allocatable") or {}
                count += sum(
                    int(amount)
                    for name, amount in allocatable.items()
                    if name.endswith("/gpu") and str(amount).isdigit()
                )
    except (TargetError, ValueError):  # refused, or no JSON
        return None
    return count
