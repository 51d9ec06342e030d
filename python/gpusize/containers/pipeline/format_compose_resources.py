"""What a Compose file says of processors, memory and GPUs.

Source: the Compose specification, Deploy and ``gpus``.
"""

from __future__ import annotations

import re
from typing import Final

from gpusize.base.errors import ConfigError
from gpusize.base.text import shown
from gpusize.containers.pipeline.fields import Fields, Node
from gpusize.containers.pipeline.model import Requests

__all__ = ["device_gpus", "gpus_of", "resources"]

_DEPLOY_LEFT: Final = dict.fromkeys(
    ("replicas", "mode", "restart_policy", "update_config", "rollback_config", "placement", "endpoint_mode"),
    "an operator runs to its end, once",
)


def resources(deploy: Node | None) -> tuple[Requests, Requests]:
    """Limits and reservations of ``deploy``.

    Raises:
        ConfigError: a key that is not supported.
    """
    fields = _resources(deploy)
    if fields is None:
        return Requests(), Requests()
    limits, reserved = fields.get("limits"), fields.get("reservations")
    return _amounts(limits, ("cpus", "memory")), _amounts(reserved, ("cpus", "memory", "devices"))


def device_gpus(deploy: Node | None) -> str | None:
    """GPUs that ``deploy`` reserves, as `Operator.gpus`.

    Raises:
        ConfigError: a device that is no GPU.
    """
    fields = _resources(deploy)
    reserved = None if fields is None else fields.get("reservations")
    devices = [] if reserved is None else reserved.fields().list_of("devices")
    return _devices(devices) if devices else None


def gpus_of(node: Node) -> str | None:
    """GPUs of the key ``gpus``: ``all``, a number, ids as ``device=0,2``, or a list of devices.

    Raises:
        ConfigError: something else.
    """
    if isinstance(node.value, list):
        return _devices(node.items())
    text = node.text()
    if text != "all" and not text.isdigit() and not re.fullmatch(r"device=[^,\s]+(,[^,\s]+)*", text):
        raise node.wrong("all, a number, ids as device=0,2, or a list of devices")
    return None if text == "0" else text


def _resources(deploy: Node | None) -> Fields | None:
    if deploy is None:
        return None
    fields = deploy.fields()
    fields.only(("resources",), _DEPLOY_LEFT)
    node = fields.get("resources")
    if node is None:
        return None
    found = node.fields()
    found.only(("limits", "reservations"))
    return found


def _amounts(node: Node | None, known: tuple[str, ...]) -> Requests:
    if node is None:
        return Requests()
    fields = node.fields()
    fields.only(known, {"pids": "leave it out: processes are counted, not limited"})
    return Requests(fields.read("cpus", Node.number), fields.read("memory", Node.size))


def _devices(nodes: list[Node]) -> str | None:
    if len(nodes) != 1:
        raise ConfigError("several device requests are not supported", nodes[0].where, "name all GPUs in one")
    fields = nodes[0].fields()
    fields.only(("driver", "count", "device_ids", "capabilities"))
    capabilities = [item.text() for item in fields.list_of("capabilities")]
    driver = fields.get("driver")
    if "gpu" not in capabilities and (driver is None or driver.text() != "nvidia"):
        raise ConfigError(f"this device is not a GPU: {shown(capabilities)}", nodes[0].where, "capabilities: [gpu]")
    ids = [item.text() for item in fields.list_of("device_ids")]
    count = fields.get("count")
    if ids:
        return f"device={','.join(ids)}"
    if count is None or count.text() == "all":
        return "all"
    return str(count.whole()) if count.whole() else None
