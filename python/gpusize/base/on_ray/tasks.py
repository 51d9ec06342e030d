"""Pieces of work on a Ray cluster: each is a task of its own, on one CPU of whichever node has one free.

What a task gives is what a call here would give: functions are ours, and all that they go by is handed to them. A task
whose process or node is lost is said, and done again.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from gpusize.base.errors import EnvironmentLacks
from gpusize.base.on_ray import about as about_module
from gpusize.base.on_ray.about import about, refuse_others
from gpusize.base.on_ray.connection import START_S, by_value, connected
from gpusize.base.text import shown

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["RayTasks", "ray_nodes", "tasks_on_ray"]

T = TypeVar("T")

TRIES: Final = 3
"""A task that is lost so often is not tried again: it may be what ends its process."""
WAITING: Final = 2
"""Tasks for each CPU that Ray has at a time: one runs, one is at hand."""
COUNT_EVERY_S: Final = 5.0
SAY_AFTER_S: Final = 10.0


@dataclass
class _Task:
    """One piece of work.

    Attributes:
        work: function and arguments, packed.
        shared: what stands for values that many take, by the argument's place.
        told: who waits for it.
        tries: how often it was begun.
        reference: Ray's, while it runs.
    """

    work: bytes
    shared: dict[int, Any]
    told: Future[Any] = field(default_factory=Future)
    tries: int = 0
    reference: Any = None


@dataclass(frozen=True)
class _Shared:
    """Stands for a value in Ray's object store."""

    reference: Any


class RayTasks:
    """Tasks of a cluster that this process is connected to, until the ``with`` block ends; see `tasks_on_ray`.

    Args:
        ray: the package.
        note: told what was lost, and what is waited for.
    """

    def __init__(self, ray: ModuleType, note: Callable[[str], None]) -> None:
        self._ray, self._note = ray, note
        self._remote = ray.remote(num_cpus=1, max_retries=0)(gpusize_task)
        self._waiting: deque[_Task] = deque()
        self._running: set[int] = set()
        self._tasks: dict[int, _Task] = {}
        self._lock = threading.Lock()
        self._over: queue.SimpleQueue[tuple[_Task, Future[Any]] | None] = queue.SimpleQueue()
        self._ends = False
        self._counted_s = 0.0
        self.at_once = 1
        self._count()
        self._thread = threading.Thread(target=self._collect, name="gpusize-ray-tasks", daemon=True)
        self._thread.start()

    def share(self, value: T) -> T:
        """Put a value into the object store, from which each node takes it once; what stands for it in `submit`.

        Raises:
            EnvironmentLacks: the store does not take it.
        """
        try:
            return cast("T", _Shared(self._ray.put(value)))
        except self._ray.exceptions.RayError as error:
            todo = "start Ray with a larger --object-store-memory"
            raise EnvironmentLacks(f"Ray's object store is too small: {_first_line(error)}", "ray", todo) from None

    def submit(self, function: Callable[..., T], /, *args: Any) -> Future[T]:
        """Have a function of a module called on some node.

        Raises:
            EnvironmentLacks: from ``result()``, where it is lost again and again.
        """
        plain = [None if isinstance(each, _Shared) else each for each in args]
        shared = {at: each.reference for at, each in enumerate(args) if isinstance(each, _Shared)}
        task = _Task(self._ray.cloudpickle.dumps((function, plain)), shared)
        with self._lock:
            self._waiting.append(task)
        self._fill()
        return task.told

    def map(self, function: Callable[[Any], T], items: Sequence[Any]) -> Iterator[T]:
        """What a function gives for each of these, in their order."""
        found = [self.submit(function, each) for each in items]
        for each in found:
            yield each.result()

    def close(self) -> None:
        """End what still runs, and take nothing more; safe to call twice."""
        with self._lock:
            if self._ends:
                return
            self._ends = True
            left = [*self._waiting, *self._tasks.values()]
            self._waiting.clear()
        for task in left:
            if not task.told.cancel():
                # Somebody may wait for it, on another thread.
                task.told.set_exception(CancelledError())
            if task.reference is not None:
                # Its process ends at once, whatever it is at.
                with contextlib.suppress(Exception):
                    self._ray.cancel(task.reference, force=True)
        self._over.put(None)
        self._thread.join()

    def _count(self) -> None:
        """How many CPUs there are: clusters grow and shrink."""
        now_s = time.monotonic()
        if now_s - self._counted_s < COUNT_EVERY_S:
            return
        self._counted_s = now_s
        with contextlib.suppress(self._ray.exceptions.RayError):
            self.at_once = max(1, int(self._ray.cluster_resources().get("CPU", 0)))

    def _fill(self) -> None:
        """Hand Ray what it has room for."""
        with self._lock:
            while self._waiting and len(self._tasks) < WAITING * self.at_once and not self._ends:
                task = self._waiting.popleft()
                if not task.tries and not task.told.set_running_or_notify_cancel():
                    continue
                task.tries += 1
                task.reference = self._remote.remote(task.work, list(task.shared), *task.shared.values())
                self._tasks[id(task)] = task
                ended = task.reference.future()
                ended.add_done_callback(lambda done, task=task: self._over.put((task, done)))

    def _collect(self) -> None:
        heard_s, said = time.monotonic(), False
        while True:
            try:
                found = self._over.get(timeout=1.0)
            except queue.Empty:
                if self._tasks and not said and time.monotonic() - heard_s > SAY_AFTER_S:
                    said = True
                    self._say_busy()
                continue
            if found is None:
                return
            heard_s, said = time.monotonic(), False
            task, done = found
            with self._lock:
                self._tasks.pop(id(task), None)
            self._take(task, done)
            self._count()
            self._fill()

    def _say_busy(self) -> None:
        free = self._ray.available_resources().get("CPU", 0)
        total = self._ray.cluster_resources().get("CPU", 0)
        if total and free < 1 and len(self._tasks) < WAITING * total:
            self._note(f"all {total:g} CPUs of the Ray cluster are busy; waiting for one")

    def _take(self, task: _Task, done: Future[Any]) -> None:
        if self._ends:
            return
        error = done.exception()
        if error is None:
            problem, value = done.result()
            if problem is None:
                task.told.set_result(value)
            else:
                task.told.set_exception(problem)
            return
        why = _first_line(error)
        # What a task raises is told as its answer: this is Ray's own trouble with it, or that of a process.
        lost = isinstance(error, self._ray.exceptions.RayError)
        if task.tries < TRIES and lost and not isinstance(error, self._ray.exceptions.RayTaskError):
            self._note(f"a task of the Ray cluster was lost, and is done again: {shown(why, 200)}")
            with self._lock:
                self._waiting.appendleft(task)
            return
        todo = "see ray status, and the logs of Ray on the nodes"
        task.told.set_exception(EnvironmentLacks(f"a task of the Ray cluster was lost: {shown(why, 400)}", "ray", todo))


@contextlib.contextmanager
def tasks_on_ray(address: str, needs: str, note: Callable[[str], None]) -> Iterator[RayTasks]:
    """A cluster whose nodes are like ours, ready to do pieces of work; nothing of them is left when the block ends.

    Args:
        address: of the Ray cluster, or ``auto``.
        needs: the module of what is to be done.
        note: told what was lost, and what is waited for.

    Raises:
        EnvironmentLacks: there is no Ray, no such cluster, no CPU in it, or another gpusize on it.
    """
    with connected(address) as ray:
        ray_nodes(ray, needs)
        tasks = RayTasks(ray, note)
        try:
            yield tasks
        finally:
            tasks.close()


def ray_nodes(ray: ModuleType, needs: str) -> list[dict[str, Any]]:
    """The nodes that have a CPU, as Ray tells of them, each with what it said of itself as ``About``.

    Raises:
        EnvironmentLacks: there is none, one does not answer, or one has another gpusize.
    """
    nodes = [dict(each) for each in ray.nodes() if each["Alive"] and each["Resources"].get("CPU", 0) >= 1]
    if not nodes:
        raise EnvironmentLacks("no node of the Ray cluster has a CPU", "ray", "start Ray there with one (--num-cpus)")
    on_node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    with by_value(ray, about_module):
        asks = ray.remote(num_cpus=0, max_retries=0)(about)
        asked = [asks.options(scheduling_strategy=on_node(each["NodeID"], soft=False)).remote(needs) for each in nodes]
    try:
        told = ray.get(asked, timeout=START_S)
    except ray.exceptions.RayError as error:
        todo = "see ray status, and the logs of Ray on the nodes"
        raise EnvironmentLacks(f"a node does not answer: {shown(str(error), 400)}", "ray", todo) from None
    refuse_others(told)
    return [{**node, "About": each} for node, each in zip(nodes, told, strict=True)]


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def gpusize_task(work: bytes, places: Sequence[int], *shared: Any) -> tuple[BaseException | None, Any]:
    """What runs on a node, under this name in its list of processes: the error that came of it, or the value."""
    import pickle

    # A task has one CPU. Before anything that it takes is imported.
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    try:
        # It may name a module that is not on this node.
        function, args = pickle.loads(work)  # noqa: S301 -- from our own program
        for at, value in zip(places, shared, strict=True):
            args[at] = value
        return None, function(*args)
    except Exception as error:  # noqa: BLE001 -- raised where somebody waits for it
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301 -- our own
        except Exception:  # noqa: BLE001 -- it cannot be carried: its words can
            return RuntimeError(f"{type(error).__name__}: {error}"), None
        return error, None
