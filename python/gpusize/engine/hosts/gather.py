"""The hosts of a run, whoever starts them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from gpusize.engine.hosts.head import Head, HostsOptions

__all__ = ["gathered"]


@contextlib.contextmanager
def gathered(options: HostsOptions, note: Callable[[str], None] = lambda _: None) -> Iterator[Head]:
    """A head whose hosts are all there: agents that people start, or actors that Ray does.

    Args:
        options: what is asked of it.
        note: told how it goes.

    Raises:
        EnvironmentLacks: some did not come in time, or there is no Ray, no such cluster, or another gpusize on it.
    """
    if options.ray is not None:
        from gpusize.engine.hosts.on_ray import gathered_on_ray

        with gathered_on_ray(options, options.ray, note) as head:
            yield head
        return
    with Head(options, note) as head:
        head.gather()
        yield head
