"""Runs a pipeline: images first, then one operator at a time, and takes everything away at the end."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from gpusize.base.errors import EnvironmentLacks, StoreError
from gpusize.base.interrupt import StopSwitch
from gpusize.containers.pipeline.container_spec import (
    RunOptions,
    check_binds,
    container_of,
    input_folder,
    shared_mounts,
)
from gpusize.containers.pipeline.daemon import Daemon
from gpusize.containers.pipeline.execute import execute
from gpusize.containers.pipeline.execution import Execution, MakeReader
from gpusize.containers.pipeline.images import get_images
from gpusize.containers.pipeline.input_copies import LITTLE, MOST, Copies
from gpusize.containers.pipeline.model import Operator, Pipeline
from gpusize.containers.pipeline.order import in_order
from gpusize.containers.pipeline.outcome import OperatorResult, PipelineResult
from gpusize.containers.pipeline.server_options import ServerOptions
from gpusize.containers.pipeline.servers import Servers
from gpusize.containers.pipeline.session import Session
from gpusize.containers.pipeline.sizing import Limits, SizingOptions, size
from gpusize.containers.pipeline.wait import Interrupted
from gpusize.containers.pipeline.workspace import check_kept

__all__ = ["Events", "Force", "run_pipeline"]

Force = Literal["none", "cont", "stop"]
"""After a failure: ask, go on, or stop."""


class Events:
    """Told what happens; subclasses show it. None of these may raise."""

    def pulling(self, image: str, state: str) -> None:
        """How far the pull of an image is."""

    def note(self, text: str) -> None:
        """Something that the user should know."""

    def executing(self, operator: Operator) -> None:
        """An operator is about to run."""

    def command(self, name: str, line: str) -> None:
        """The ``docker run`` line of an operator or a server."""

    def began(self, container_id: str) -> None:
        """Its container has been made."""

    def ended(self, result: OperatorResult) -> None:
        """An operator has ended, or will not be run."""

    def go_on(self, result: OperatorResult) -> bool:
        """Whether to go on after a failure, where that is asked."""
        del result
        return False


class _Run:
    def __init__(
        self,
        pipeline: Pipeline,
        input_dir: Path | None,
        options: RunOptions,
        session: Session,
        serving: ServerOptions,
        events: Events,
        make_reader: MakeReader,
        stop: StopSwitch,
    ) -> None:
        self._pipeline = pipeline
        self._input_dir = input_dir
        self._options = options
        self._session = session
        self._events = events
        self._make_reader = make_reader
        self._stop = stop
        self._servers = Servers(session, pipeline, serving, options, make_reader, events.command, stop)
        self._results: list[OperatorResult] = []
        self._interrupted = False
        self._notes: list[str] = [*pipeline.notes]

    def through(self, ordered: list[Operator], force: Force, sizing: SizingOptions | None) -> PipelineResult:
        """Run the operators in this order, and take everything away."""
        if not self._session.has_groups:
            self._notes.append("no cgroup of our own around the containers: their last moments may be missed")
        try:
            try:
                self._servers.start()
                self._all(ordered, force, sizing)
            except Interrupted:
                self._interrupted = True
            finally:
                servers = self._servers.close()
        finally:
            left = self._session.close()
            if left:
                self._events.note(f"left behind, gpusize pipeline clean removes it: {'; '.join(left)}")
        ran = {result.name for result in self._results}
        rest = [OperatorResult(operator) for operator in ordered if operator.name not in ran]
        return PipelineResult(
            self._session.run,
            self._pipeline,
            (*self._results, *rest),
            servers,
            interrupted=self._interrupted,
            notes=(*self._notes, *(f"left behind: {each}" for each in left)),
        )

    def _all(self, ordered: list[Operator], force: Force, sizing: SizingOptions | None) -> None:
        for operator in ordered:
            if self._stop.asked:
                raise Interrupted
            self._events.executing(operator)
            result = self._one(operator, sizing)
            self._results.append(result)
            self._events.ended(result)
            if self._interrupted or result.lost:
                return
            if not result.ok and not self._goes_on(result, force):
                return

    def _one(self, operator: Operator, sizing: SizingOptions | None) -> OperatorResult:
        """All executions of an operator; what it was measured by is kept also where the user ends it meanwhile."""
        count = itertools.count()
        copies = self._copies(operator, sizing)

        def again(limits: Limits = (None, None), interval_ns: int | None = None) -> Execution:
            execution = self._execute(operator, next(count), limits, interval_ns, copies)
            self._interrupted = self._interrupted or execution.outcome == "interrupted"
            return execution

        try:
            executions, doubts = self._repeated(again)
            if sizing is not None:
                return OperatorResult(operator, executions, size(executions, sizing, again, doubts))
            self._notes += [f"{operator.name}: {each}" for each in doubts]
            return OperatorResult(operator, executions)
        finally:
            if copies is not None:
                copies.close()

    def _repeated(self, again: Callable[[], Execution]) -> tuple[tuple[Execution, ...], list[str]]:
        """The executions that were asked for, and why there are fewer."""
        executions = [again()]
        while len(executions) < self._options.repeat and executions[-1].ok:
            more = again()
            if more.outcome == "not_run":
                return tuple(executions), [f"{len(executions)} of {self._options.repeat} executions: {more.error}"]
            executions.append(more)
        return tuple(executions), []

    def _copies(self, operator: Operator, sizing: SizingOptions | None) -> Copies | None:
        """What further executions of an operator start from, where there may be any."""
        if sizing is None and self._options.repeat == 1:
            return None
        workspace = self._session.workspace
        asked = self._options.repeat > 1 or (sizing is not None and sizing.tries_limits)
        try:
            mounts = shared_mounts(self._pipeline, operator, workspace, self._input_dir, self._options)
        except StoreError:
            return None  # its first execution will meet the same, and tell it
        return Copies(workspace, self._session.daemon, operator.name, mounts, MOST if asked else LITTLE, self._stop)

    def _goes_on(self, result: OperatorResult, force: Force) -> bool:
        return force == "cont" or (force == "none" and self._events.go_on(result))

    def _execute(
        self, operator: Operator, number: int, limits: Limits, interval_ns: int | None, copies: Copies | None
    ) -> Execution:
        if self._stop.asked:
            return Execution("interrupted", error="the user had ended the run", limits=limits)
        if number and copies is not None and copies.refused is not None:
            return Execution("not_run", error=copies.refused, limits=limits)
        try:
            addresses = self._servers.ready_for(operator)
            group, group_path = self._session.group()
            container = container_of(
                self._pipeline,
                operator,
                self._session.workspace,
                input_dir=self._input_dir,
                options=self._options,
                network=self._session.network,
                addresses=addresses,
                execution=number,
                limits=limits,
                copies=copies.fresh(number) if number and copies is not None else {},
                cgroup_parent=group,
                labels=self._session.labels(operator.name),
            )
            if container.command == () and container.entrypoint is None:
                # Without an entry point of its own it would get the image's arguments with the image's entry point.
                container = replace(container, entrypoint=self._session.daemon.entrypoint_of(container.image))
            if number == 0:
                pasted = self._servers.pasted(container, operator)
                self._events.command(operator.name, pasted.command_line(self._session.daemon.cli))
            return execute(
                self._session.daemon,
                container,
                reader=self._make_reader(operator.name, interval_ns),
                parent=group_path,
                start_timeout_s=self._options.start_timeout_s,
                timeout_s=self._options.timeout_s,
                stop=self._stop,
                began=self._events.began,
            )
        except Interrupted:
            return Execution("interrupted", error="the user had ended the run", limits=limits)
        except (EnvironmentLacks, StoreError) as problem:
            # What was measured until here is not given up for a container, or a folder, that cannot be made.
            untried = number and isinstance(problem, StoreError)
            return Execution("not_run" if untried else "failed", error=str(problem), limits=limits)
        finally:
            if number:
                # It was measured, and nobody reads what it wrote: the disk may be needed for the next one.
                workspace = self._session.workspace
                workspace.remove(workspace.again(operator.name, str(number)), self._session.daemon)
                if copies is not None:
                    copies.drop(number)


def run_pipeline(
    pipeline: Pipeline,
    input_dir: Path | str | None = None,
    *,
    force: Force = "stop",
    options: RunOptions | None = None,
    servers: ServerOptions | None = None,
    make_reader: MakeReader | None = None,
    sizing: SizingOptions | None = None,
    events: Events | None = None,
    stop: StopSwitch | None = None,
    daemon: Daemon | None = None,
) -> PipelineResult:
    """Run each operator of a pipeline once, or several times, and measure what it uses.

    Args:
        pipeline: as `read_pipeline` gives it.
        input_dir: the folder that operators read which have no upstream.
        force: what to do after a failure; ``none`` asks ``events.go_on``.
        options: of the containers.
        servers: where models are served.
        make_reader: makes what reads a container; the kernel's counters are read by default.
        sizing: what is recommended, and what is run besides for that; None for nothing.
        events: told what happens.
        stop: ends the run when asked.
        daemon: a connection; made and closed by this call by default.

    Returns:
        What it came to, also when operators failed or the user ended it.

    Raises:
        UsageError: no such input folder, or none where one is needed; no place for models; data that would be mixed.
        ConfigError: mounts or models that are not there, or servers that do not go together.
        EnvironmentLacks: no daemon, an image that cannot be had, a server that does not get ready.
        StoreError: the folders cannot be made.
    """
    from gpusize.observe.usage.sampler import ContainerReader

    told, switch, chosen = events or Events(), stop or StopSwitch(), options or RunOptions()
    serving = servers or ServerOptions()
    folder = input_folder(pipeline, input_dir)
    ordered = in_order(pipeline)
    check_binds(pipeline)
    check_kept(pipeline, chosen.keep)
    serving.check(pipeline, chosen)
    connected = daemon or Daemon.connect()
    started_ns = time.time_ns()
    try:
        images = [(operator.image, operator.name) for operator in ordered] + serving.images(pipeline)
        try:
            get_images(connected, images, switch, told.pulling)
        except Interrupted:
            rest = tuple(OperatorResult(operator) for operator in ordered)
            return PipelineResult("", pipeline, rest, (), started_ns, time.time_ns(), interrupted=True)
        names = [image for image, _ in images]
        session = Session(
            connected, names, own_network=chosen.network is None, work_dir=chosen.work_dir, keep=chosen.keep
        )
        run = _Run(pipeline, folder, chosen, session, serving, told, make_reader or ContainerReader, switch)
        return replace(run.through(ordered, force, sizing), started_ns=started_ns, ended_ns=time.time_ns())
    finally:
        if daemon is None:
            connected.close()
