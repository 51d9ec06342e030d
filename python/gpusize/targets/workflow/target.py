"""A workflow or a command as the target of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from gpusize.base.clock import MACHINE, Clock
from gpusize.base.errors import UsageError
from gpusize.base.secrets import is_secret
from gpusize.base.typed import TEXT, check_kinds, or_none
from gpusize.base.units import as_duration_s, format_duration
from gpusize.targets.workflow.command import CommandTemplate
from gpusize.targets.workflow.engine import WorkflowEngine
from gpusize.targets.workflow.function import check_function, load_function, name_of

if TYPE_CHECKING:
    import asyncio

    from gpusize.targets.workflow.llm_proxy import LlmProxy
    from gpusize.workload.dataset import Dataset

__all__ = ["WorkflowTarget", "workflow_from_options"]

_OPTIONS: Final = ("workflow", "command", "model", "gpus", "timeout", "llm_proxy")

_LEAST_SECRET: Final = 8
"""Characters from which a variable's value is looked for in a message: a shorter one would hit innocent words."""


@dataclass(frozen=True, repr=False)
class WorkflowTarget:
    """A function or a command that is called once per request, on this machine, with Python as the generator.

    A function gets one argument, what its row sends: the field that ``--dataset-key`` names, or with the key ``.`` the
    whole row as a dictionary. It may be asynchronous; what it gives back is dropped. Items of a generator, plain or
    asynchronous, are pieces of content, so that the first one is the first token.

    Args:
        workflow: ``package.module:function``, or the function itself.
        command: instead of it a command line with ``{field}`` for fields of the row. No shell is involved.
        model: name of the model behind it, for the records only.
        gpus: GPUs that stand behind it.
        timeout_s: bound on one request.
        llm_proxy: address at which the workflow would reach its language model; calls are timed on their way there.

    Raises:
        UsageError: neither or both are given, or they are invalid.
        EnvironmentLacks: the workflow's module fails while it is imported.
    """

    workflow: str | Callable[[Any], Any] | None = None
    command: str | None = None
    model: str | None = None
    gpus: int | None = None
    timeout_s: float = 300.0
    llm_proxy: str | None = None
    proxy: LlmProxy | None = field(default=None, init=False, compare=False)

    def __post_init__(self) -> None:
        if (self.workflow is None) == (self.command is None):
            raise UsageError(
                "a workflow is a function or a command", "workflow", "give one of --workflow and --command"
            )
        kinds = {"command": or_none(TEXT), "model": or_none(TEXT), "llm_proxy": or_none(TEXT)}
        check_kinds(self, {"workflow": or_none(((str, Callable), "a function")), **kinds})
        gpus: Any = self.gpus
        if gpus is not None and (isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 1):
            raise UsageError(f"gpus is {self.gpus!r}", "gpus", "give a whole number of 1 or more")
        timeout: Any = self.timeout_s
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < 1e9:
            raise UsageError(f"timeout_s is {timeout!r}", "timeout_s", "give seconds, more than 0")
        if self.command is not None:
            CommandTemplate(self.command)
        elif callable(self.workflow):
            check_function(self.workflow, name_of(self.workflow))
        if self.llm_proxy is not None:
            from gpusize.targets.workflow.llm_proxy import LlmProxy

            object.__setattr__(self, "proxy", LlmProxy(self.llm_proxy))

    @property
    def api(self) -> str:
        """``workflow`` or ``command``."""
        return "workflow" if self.command is None else "command"

    @property
    def url(self) -> str:
        """What stands where a server has its address: the import path, or the command line."""
        if self.command is not None:
            return self.command
        return self.workflow if isinstance(self.workflow, str) else name_of(cast("Callable[[Any], Any]", self.workflow))

    @property
    def urls(self) -> tuple[str, ...]:
        """The same as the only one of its kind."""
        return (self.url,)

    def open(
        self, dataset: Dataset, *, clock: Clock = MACHINE, loop: asyncio.AbstractEventLoop | None = None
    ) -> WorkflowEngine:
        """The engine that runs it over these rows; the proxy is started with it when it is not up yet.

        Args:
            dataset: the rows.
            clock: as of `WorkflowEngine`.
            loop: likewise.

        Raises:
            UsageError: the function cannot be found.
            DatasetError: a row lacks a field of the command.
            EnvironmentLacks: its module fails while it is imported, or the proxy does not come up.
        """
        if self.proxy is not None:
            # Before the import: many a client reads its address when its module is loaded.
            self.proxy.start()
        try:
            what = self._what(dataset)
        except BaseException:
            if self.proxy is not None:
                self.proxy.stop()
            raise
        return WorkflowEngine(
            what,
            dataset,
            name=self.url,
            timeout_s=self.timeout_s,
            proxy=self.proxy,
            secrets=self.secret_words(),
            clock=clock,
            loop=loop,
        )

    def _what(self, dataset: Dataset) -> Callable[[Any], Any] | CommandTemplate:
        if self.command is not None:
            template = CommandTemplate(self.command)
            template.check(dataset)
            return template
        if isinstance(self.workflow, str):
            return load_function(self.workflow)
        return cast("Callable[[Any], Any]", self.workflow)

    def secret_words(self) -> tuple[str, ...]:
        """What no message may show: values of this process's variables whose names say that they are secret.

        The workflow inherits them, and what fails likes to repeat the key that was refused.
        """
        found = {
            value.strip()
            for name, value in os.environ.items()
            if is_secret(name) and len(value.strip()) >= _LEAST_SECRET and not os.path.exists(value)  # noqa: PTH110
        }
        return tuple(sorted(found, key=len, reverse=True))

    def notes(self) -> list[str]:
        """What the user should know before the run."""
        notes = [
            "Python is the generator here: each level says how much of a core it used and how late its event loop was"
        ]
        return notes if self.proxy is None else [*notes, *self.proxy.notes]

    def public(self) -> list[dict[str, Any]]:
        """What ``run.json`` says about it, as of the replicas of a server."""
        return [
            {
                "url": self.url,
                "api": self.api,
                "model": self.model,
                "gpus": self.gpus,
                "tls_verified": None,
                "simulated": None,
            }
        ]

    def options(self) -> dict[str, Any]:
        """The options that make this target again, as ``--config`` takes them."""
        options: dict[str, Any] = {self.api: self.url, "timeout": format_duration(self.timeout_s)}
        plain = {"model": self.model, "gpus": self.gpus, "llm_proxy": self.llm_proxy}
        return {**options, **{name: value for name, value in plain.items() if value is not None}}

    def __repr__(self) -> str:
        return f"WorkflowTarget({self.api}={self.url!r}, gpus={self.gpus})"


def workflow_from_options(options: Mapping[str, Any]) -> WorkflowTarget | None:
    """The workflow or command that options name; None when they name neither.

    Read are ``workflow``, ``command``, ``model``, ``gpus``, ``timeout`` and ``llm_proxy``.

    Raises:
        UsageError: invalid options, or an address beside a workflow.
    """
    given = {name: options[name] for name in _OPTIONS if options.get(name) is not None}
    if not given.keys() & {"workflow", "command"}:
        return None
    if options.get("url") is not None:
        raise UsageError("an address and a workflow are both given", "url", "give one of --url, --workflow, --command")
    if "timeout" in given:
        given["timeout_s"] = as_duration_s(given.pop("timeout"))
    return WorkflowTarget(**given)
