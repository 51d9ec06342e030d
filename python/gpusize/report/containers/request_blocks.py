"""A recommendation as what schedulers read: blocks to paste into a pipeline, a pod, a Compose file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusize.containers.recommend.types import MB, MIB
from gpusize.report.containers.cpost import whole_request

if TYPE_CHECKING:
    from gpusize.containers.recommend.types import Recommendation

__all__ = ["clara_requests", "compose_deploy", "kubernetes_resources", "memory_text", "request_text"]


def memory_text(size_bytes: int) -> str:
    """A size in both units, each named: ``537 MB (512 MiB)``."""
    return f"{_figure(size_bytes / MB)} MB ({_figure(size_bytes / MIB)} MiB)"


def request_text(size_bytes: int) -> str:
    """As `memory_text` for what is to be requested: MB rounded up, as ``memory:`` beside it has them."""
    return f"{-(-size_bytes // MB)} MB ({_figure(size_bytes / MIB)} MiB)"


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or value == round(value) else f"{value:.3g}"


def clara_requests(made: Recommendation) -> str:
    """Clara's ``requests``: whole cores, whole GPUs, MB of 1,000,000 bytes; a comment where nothing is recommended."""
    cpu, memory = whole_request(made)
    lines = [] if cpu is None else [f"  cpu: {cpu}"]
    if made.gpu_count:
        lines.append(f"  gpu: {made.gpu_count}")
    if memory is not None:
        lines.append(f"  memory: {memory}  # MB of 1,000,000 bytes")
    return _block("requests:", lines, made)


def kubernetes_resources(made: Recommendation) -> str:
    """Kubernetes' ``resources``: memory as request and limit, CPU as request, and as limit only where there is one."""
    requests, limits = [], []
    if made.cpu_cores is not None:
        requests.append(f"    cpu: {_millicores(made.cpu_cores)}")
    if made.cpu_limit_cores is not None:
        limits.append(f"    cpu: {_millicores(made.cpu_limit_cores)}")
    if made.mem_bytes is not None:
        requests.append(f"    memory: {_quantity(made.mem_bytes)}")
        limits.append(f"    memory: {_quantity(made.mem_bytes)}")
    if made.gpu_count:
        # Of an extended resource the request is the limit.
        limits.append(f"    nvidia.com/gpu: {made.gpu_count}")
    lines = ["  requests:", *requests] if requests else []
    return _block("resources:", [*lines, *(["  limits:", *limits] if limits else [])], made)


def compose_deploy(made: Recommendation) -> str:
    """Compose's ``deploy.resources``. Its units are binary: M is MiB."""
    limits, reservations = [], []
    if made.cpu_limit_cores is not None:
        limits.append(f'      cpus: "{made.cpu_limit_cores:g}"')
    if made.cpu_cores is not None:
        reservations.append(f'      cpus: "{made.cpu_cores:g}"')
    if made.mem_bytes is not None:
        limits.append(f"      memory: {_docker_size(made.mem_bytes).upper()}")
        reservations.append(f"      memory: {_docker_size(made.mem_bytes).upper()}")
    if made.gpu_count:
        device = ["        - driver: nvidia", f"          count: {made.gpu_count}", "          capabilities: [gpu]"]
        reservations += ["      devices:", *device]
    lines = ["    limits:", *limits] if limits else []
    return _block(
        "deploy:", ["  resources:", *lines, *(["    reservations:", *reservations] if reservations else [])], made
    )


def _block(head: str, lines: list[str], made: Recommendation) -> str:
    if made.refused is not None or (made.cpu_cores is None and made.mem_bytes is None):
        why = made.refused or "neither CPU time nor memory was reported"
        return f"# no recommendation: {' '.join(why.split())}\n"
    doubts = ["  # it was stopped before it ended by itself: it may need more"] if made.cut_short else []
    return "\n".join([head, *doubts, *lines, ""])


def _millicores(cores: float) -> str:
    return f"{cores:g}" if cores == round(cores) else f"{-(-round(cores * 1e6) // 1000)}m"


def _quantity(size_bytes: int) -> str:
    """As Kubernetes writes it: Mi, or M where it is a whole number of those, or bytes."""
    for unit, name in ((MIB, "Mi"), (MB, "M")):
        if size_bytes % unit == 0:
            return f"{size_bytes // unit}{name}"
    return str(size_bytes)


def _docker_size(size_bytes: int) -> str:
    return f"{size_bytes // MIB}m" if size_bytes % MIB == 0 else f"{size_bytes}b"
