"""What the tests look up of processes in ``/proc``."""

from __future__ import annotations

import contextlib
from pathlib import Path


def thread_names(pid: int) -> list[str]:
    """The names of a process's threads; one may end while they are read."""
    names = []
    for file in Path(f"/proc/{pid}/task").glob("*/comm"):
        with contextlib.suppress(OSError):
            names.append(file.read_text().removesuffix("\n"))
    return names


def is_sampling(pid: int) -> bool:
    """Whether a process has begun to sample something."""
    return "gpusize-sampler" in thread_names(pid)


def held() -> tuple[int, int]:
    """Descriptors and threads of this process. A thread that was joined is in the list for a moment more."""
    fd, task = (len(list(Path(f"/proc/self/{kind}").iterdir())) for kind in ("fd", "task"))
    return fd, task


def is_back_at(before: tuple[int, int]) -> bool:
    """Whether no more is held than there was; what earlier tests left to the garbage collector may be gone by now."""
    return all(now <= then for now, then in zip(held(), before, strict=True))
