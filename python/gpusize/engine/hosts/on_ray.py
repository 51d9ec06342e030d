"""Agents as actors of a Ray cluster, one on each node: Ray places them and hands them a token, the head does the rest.

Ray starts and ends processes and carries the dataset. What is sent when, clocks, counts and records go over the
connections that agents have without Ray as well.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

from gpusize.base.errors import EnvironmentLacks
from gpusize.base.on_ray import about
from gpusize.base.on_ray.about import refuse_others
from gpusize.base.on_ray.connection import START_S, by_value, connected
from gpusize.base.text import shown
from gpusize.engine.hosts import on_ray_agent
from gpusize.engine.hosts.access import Access
from gpusize.engine.hosts.head import Head, HostsOptions
from gpusize.engine.hosts.host import as_error

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["RAY_LISTEN", "RAY_WAIT_S", "gathered_on_ray"]

RAY_LISTEN: Final = ("", 0)
"""Stands for the address by which the cluster knows the head's node, and any free port."""
RAY_WAIT_S: Final = 60.0
"""How long to wait for nodes with a CPU to spare."""
JOIN_S: Final = 20.0
END_S: Final = 5.0
SAY_EVERY_S: Final = 10.0
AGENT_THREADS: Final = 4


@contextlib.contextmanager
def gathered_on_ray(options: HostsOptions, address: str, note: Callable[[str], None]) -> Iterator[Head]:
    """A head whose hosts are all there, started by Ray.

    Args:
        options: what is asked of it.
        address: of the Ray cluster.
        note: told how it goes.

    Raises:
        EnvironmentLacks: some did not come in time, or there is no Ray, no such cluster, or another gpusize on it.
    """
    with contextlib.ExitStack() as stack:
        ray = stack.enter_context(connected(address))
        group = stack.enter_context(_placed(ray, options, note))
        actors = stack.enter_context(_Actors(ray, group, options.count))
        actors.agree()
        here = str(ray.util.get_node_ip_address())
        host, port = options.listen
        access = Access(secrets.token_hex(32).encode())
        head = stack.enter_context(Head(replace(options, ray=None, listen=(host or here, port), access=access), note))
        head.share = actors.share
        host, port = head.address
        place = (here if host in ("0.0.0.0", "::") else host, port)  # noqa: S104 -- compared
        actors.join(place, access.token or b"", checks=options.checks)
        while len(head.hosts) < options.count:
            actors.refuse_ended(0.1)
        head.gather()
        yield head


@contextlib.contextmanager
def _placed(ray: ModuleType, options: HostsOptions, note: Callable[[str], None]) -> Iterator[Any]:
    """A CPU on each of as many nodes as hosts are asked for; given back in any case."""
    group = ray.util.placement_group([{"CPU": 1}] * options.count, strategy="STRICT_SPREAD")
    try:
        begin_s = said_s = time.monotonic()
        # In steps: Ctrl-C is heard between them.
        while not group.wait(1):
            now_s = time.monotonic()
            what, todo = _short_of(ray, options.count)
            if now_s - begin_s >= options.wait_s:
                raise EnvironmentLacks(what, "hosts", todo)
            if now_s - said_s >= SAY_EVERY_S or said_s == begin_s:
                said_s = now_s
                note(f"{what}; waiting up to {options.wait_s:g} s for it (--hosts-wait)")
        yield group
    finally:
        ray.util.remove_placement_group(group)
        _until(lambda: ray.util.placement_group_table(group).get("state") in ("REMOVED", None))


def _short_of(ray: ModuleType, count: int) -> tuple[str, str]:
    """Why hosts cannot be placed, and what to do."""
    nodes = [each for each in ray.nodes() if each["Alive"] and each["Resources"].get("CPU", 0) >= 1]
    have = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}"
    if len(nodes) < count:
        less = f"ask for --hosts {len(nodes)}" if nodes else "start Ray there with a CPU (--num-cpus)"
        what = f"the Ray cluster has {have} with a CPU, and {count} hosts are asked for, each on a node of its own"
        return what, f"add nodes (ray start --address=...), or {less}"
    what = f"the Ray cluster has {have}, and not on {count} of them a CPU is free"
    return what, "wait until what runs there has ended (--hosts-wait), or ask for fewer --hosts"


class _Actors:
    """One actor on each node of a placement group; none is left when the block is over.

    Args:
        ray: the package.
        group: the placement group.
        count: nodes in it.
    """

    def __init__(self, ray: ModuleType, group: Any, count: int) -> None:
        self._ray, self._group, self._count = ray, group, count
        self._actors: list[Any] = []
        self._about: list[dict[str, Any]] = []
        self._joined: list[Any] = []

    def __enter__(self) -> Self:
        ray = self._ray
        placed = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        made = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0, max_concurrency=AGENT_THREADS)
        agent = made(on_ray_agent.GpusizeAgent)
        # By its name, a node without gpusize could not even say that it has none.
        with by_value(ray, on_ray_agent, about):
            self._actors = [
                agent.options(scheduling_strategy=placed(self._group, bundle)).remote() for bundle in range(self._count)
            ]
        return self

    def __exit__(self, *_: object) -> None:
        # Dismissed by the head, they end by themselves within moments, and take their files along.
        try:
            self._ray.wait(self._joined, num_returns=len(self._joined), timeout=END_S) if self._joined else None
        finally:
            for each in self._actors:
                self._ray.kill(each, no_restart=True)

    def agree(self) -> None:
        """See that all nodes have our versions.

        Raises:
            EnvironmentLacks: one has not, or does not start.
        """
        asked = [each.about.remote() for each in self._actors]
        try:
            self._about = self._ray.get(asked, timeout=START_S)
        except self._ray.exceptions.RayError as error:
            todo = "see ray status, and the logs of Ray on the nodes"
            raise EnvironmentLacks(f"an actor did not start: {shown(str(error), 400)}", "ray", todo) from None
        refuse_others(self._about)

    def join(self, head: tuple[str, int], token: bytes, *, checks: bool) -> None:
        """Have them all join."""
        nodes = self._ray.util.placement_group_table(self._group)["bundles_to_node_id"]
        for bundle, each in enumerate(self._actors):
            self._joined.append(each.join.remote(head, token, str(nodes.get(bundle)), JOIN_S, checks=checks))

    def refuse_ended(self, timeout_s: float) -> None:
        """Wait so long, and see that none has ended yet.

        Raises:
            GpusizeError: one has, with what it said.
        """
        ended, _ = self._ray.wait(self._joined, num_returns=1, timeout=timeout_s)
        for each in ended:
            name = str(self._about[self._joined.index(each)]["hostname"])
            try:
                problem = self._ray.get(each)
            except self._ray.exceptions.RayError as error:
                raise EnvironmentLacks(f"an actor ended: {shown(str(error), 400)}", name, "see Ray's logs") from None
            raise as_error(problem or {"what": "the agent ended before the run began"}, name)

    def share(self, strings: Sequence[bytes]) -> str:
        """Put rows into the object store, once, and hand the actors a reference to them."""
        import numpy as np

        key = secrets.token_hex(8)
        # Arrays lie in the store as they are, and actors of one node read the same memory.
        arrays = [np.frombuffer(each, np.uint8) if each else np.empty(0, np.uint8) for each in strings]
        try:
            reference = self._ray.put(arrays)
        except self._ray.exceptions.RayError as error:
            todo = "start Ray with a larger --object-store-memory"
            raise EnvironmentLacks(f"Ray's object store does not take the rows: {error}", "ray", todo) from None
        for each in self._actors:
            each.keep.remote(key, reference)
        return key


def _until(done: Callable[[], bool]) -> None:
    until_s = time.monotonic() + END_S
    while not done() and time.monotonic() < until_s:
        time.sleep(0.05)
