"""How many files this process may have open: a connection is one, and many systems begin at 1,024."""

from __future__ import annotations

from typing import Final

from gpusize.errors import EnvironmentLacks

__all__ = ["allow_connections", "allow_most_files"]

RESERVE: Final = 128
"""Open files beside the connections: parts being written and read, libraries, standard streams, event polls."""


def allow_connections(connections: int) -> None:
    """Raise this process's own limit so that so many connections fit; nothing happens where they fit already.

    Raises:
        EnvironmentLacks: the system's hard limit is lower.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + RESERVE
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise EnvironmentLacks(
            f"{connections} connections take {needed} open files, {hard} are allowed here",
            "open files",
            f"raise the hard limit (ulimit -Hn {needed}, or LimitNOFILE of the service), or ask for fewer connections",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def allow_most_files() -> None:
    """Raise this process's own limit as far as the system lets it: a server cannot know how many will connect."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
