"""Replicas of the simulated cluster over time, as people write them."""

from __future__ import annotations

import contextlib
import re
import threading
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.clock import MACHINE, Clock
from gpusize.base.errors import GpusizeError, UsageError
from gpusize.base.units import parse_duration_s

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gpusize.targets.simulated.cluster import SimulatedCluster

__all__ = ["ReplicaSchedule", "parse_replicas", "replica_steps", "with_replicas"]

_STEP: Final = re.compile(r"([0-9]{1,6})\s*@\s*(\S+)")


def parse_replicas(text: str) -> list[dict[str, float]]:
    """Steps of replicas from a text such as ``1@0s,2@30s``: one replica at first, two from 30 s on.

    Args:
        text: ``COUNT@TIME`` items between commas; times count from the server's start and ascend from 0.

    Returns:
        ``{"at_s", "replicas"}`` each, as the cluster's configuration has them.

    Raises:
        UsageError: an invalid text, with the column.
    """
    steps: list[dict[str, float]] = []
    column = 1
    for part in text.split(","):
        item = part.strip()
        at = column + len(part) - len(part.lstrip())
        column += len(part) + 1
        match = _STEP.fullmatch(item)
        if match is None:
            raise _bad_step(f'"{item}" is no COUNT@TIME' if item else "an item is missing", at)
        try:
            at_s = parse_duration_s(match[2])
        except UsageError as problem:
            raise _bad_step(problem.what, at + match.start(2)) from None
        if int(match[1]) < 1:
            raise _bad_step("a cluster has at least one replica", at)
        if not steps and at_s > 0:
            raise _bad_step("the first item says how many there are at first, and begins at 0s", at + match.start(2))
        if steps and at_s <= steps[-1]["at_s"]:
            raise _bad_step(f'"{item}" is not later than the item before', at + match.start(2))
        steps.append({"at_s": at_s, "replicas": int(match[1])})
    return steps


def _bad_step(what: str, column: int) -> UsageError:
    return UsageError(what, f"replicas, column {column}", "write it as 1@0s,2@30s")


def with_replicas(config: Mapping[str, Any]) -> dict[str, Any]:
    """A cluster's configuration with its text of ``replicas`` read; without ``gpus``, it gets as many as there will be.

    One with an autoscaler begins with the fewest replicas that this may ask for, unless ``replicas`` says how many.

    Raises:
        UsageError: an invalid text of replicas, or one that names more than there are GPUs.
    """
    replicas = config.get("replicas")
    if config.get("autoscaler"):
        with contextlib.suppress(KeyError, TypeError):  # the cluster itself says what is wrong with it
            policy = config["autoscaler"]["policy"]
            if replicas is None:
                replicas = [{"at_s": 0.0, "replicas": max(1, policy.get("min_replicas", 1))}]
            config = {"gpus": policy["max_replicas"], **config}
    if isinstance(replicas, str):
        replicas = parse_replicas(replicas)
    more: dict[str, Any] = {} if replicas is None else {"replicas": replicas}
    if replicas and "gpus" not in config:
        with contextlib.suppress(KeyError, TypeError):  # the cluster itself says what is wrong with it
            more["gpus"] = max(step["replicas"] for step in replicas)
    elif replicas is not None and isinstance(config.get("replicas"), str):
        _check_gpus(replicas, config["gpus"])
    return {**config, **more}


def _check_gpus(steps: Sequence[Mapping[str, float]], gpus: object) -> None:
    """Refuse more replicas than the cluster has GPUs, each of which runs one at most.

    Raises:
        UsageError: there are more.
    """
    most = max(int(step["replicas"]) for step in steps)
    if isinstance(gpus, int) and most > gpus:
        what = f"{most} replicas are wanted, and the simulated cluster has {gpus} GPU{'' if gpus == 1 else 's'}"
        raise UsageError(what, "replicas", "give it as many GPUs, or fewer replicas")


def replica_steps(options: Mapping[str, Any]) -> list[dict[str, float]]:
    """The steps that the option ``replicas`` names; empty without it.

    Raises:
        UsageError: as `parse_replicas`, or more replicas than ``gpus``.
    """
    text = options.get("replicas")
    if text is None:
        return []
    steps = parse_replicas(str(text))
    _check_gpus(steps, options.get("gpus"))
    return steps


class ReplicaSchedule:
    """Changes the replicas of a simulated cluster while a load runs: an observer, whose clock starts with the load.

    Args:
        cluster: one that serves.
        steps: as `parse_replicas`; the first is what the cluster starts with.
        clock: what the steps' times are of.
    """

    def __init__(
        self, cluster: SimulatedCluster, steps: Sequence[Mapping[str, float]], *, clock: Clock = MACHINE
    ) -> None:
        self.notes: list[str] = []
        self._cluster = cluster
        self._steps = list(steps[1:])
        self._clock = clock
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Nothing yet: times count from the first level."""

    def boundary(self) -> None:
        """The first one is the beginning of the load."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="gpusize-replicas", daemon=True)
            self._thread.start()

    def level(self, folder: Path, start_ns: int, end_ns: int) -> dict[str, Any]:  # noqa: ARG002 -- an observer's
        """Nothing: the cluster's metrics say how many there are."""
        return {}

    def stop(self) -> None:
        """End."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _follow(self) -> None:
        began_s = self._clock.now_s()
        for step in self._steps:
            if self._clock.wait(self._ended, max(0.0, began_s + step["at_s"] - self._clock.now_s())):
                return
            try:
                self._cluster.scale(int(step["replicas"]))
            except GpusizeError as error:
                self.notes.append(f"the simulated cluster was not scaled: {error.what}")
                return
