"""What is submitted, how, and how fast: the options of the Run:ai scale test tool's submitter, and more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.given_numbers import as_number, as_seconds, as_whole
from gpusize.base.text import shown
from gpusize.cluster.submit.names import MOST_WORKLOADS, check_prefix
from gpusize.cluster.submit.placeholders import NAMES
from gpusize.cluster.submit.template import Template

__all__ = ["SubmitOptions"]

_MOST_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """Options of a submission. Names and defaults are those of the Run:ai scale test tool, where it has them.

    Attributes:
        workload_type: name of a template, or path of one.
        num_workloads: how many; None with ``stages``, which say it.
        num_processes: requests of a closed round, all at once.
        num_workers: of each workload, where its template has workers.
        num_gpus: of each pod; a fraction where the kind takes one.
        delay_s: pause between closed rounds, in seconds.
        project: of Run:ai.
        namespace: of the workloads; None: ``runai-PROJECT`` for kinds of Run:ai, else that of the context.
        pvc: whether each workload gets a volume claim.
        queue: of Kueue or KAI.
        prefix: what names begin with.
        overrides: ``PATH=VALUE``, see `overrides.parse_override`.
        rate: workloads per second; None for closed rounds.
        stages: rates over time, as ``10/s@1m, 10/s..50/s@5m``; None for closed rounds.
        process: arrivals at a rate: ``constant`` or ``poisson``.
        seed: of these arrivals and of pauses before retries.
        max_in_flight: most requests under way at once.
        retries: how often a request is sent again that the server put off, failed at or did not answer.

    Raises:
        UsageError: invalid options.
    """

    workload_type: str = "training"
    num_workloads: int | None = None
    num_processes: int = 8
    num_workers: int = 1
    num_gpus: float = 1
    delay_s: float = 0.0
    project: str = "project-0"
    namespace: str | None = None
    pvc: bool = False
    queue: str = "default"
    prefix: str = "j"
    overrides: Sequence[str] = ()
    rate: float | None = None
    stages: str | None = None
    process: str = "poisson"
    seed: int = 1
    max_in_flight: int = 256
    retries: int = 5

    def __post_init__(self) -> None:
        put = object.__setattr__
        if self.rate is not None and self.stages is not None:
            raise UsageError("rate and stages are both given", "load", "give one of them")
        if (self.num_workloads is None) == (self.stages is None):
            what, todo = ("how many workloads is not said", "give -n N, or --stages")
            if self.stages is not None:
                what, todo = "stages say how many workloads there are", "leave -n out, or give a rate instead"
            raise UsageError(what, "num_workloads", todo)
        if self.num_workloads is not None:
            put(self, "num_workloads", as_whole(self.num_workloads, "num_workloads", 1, MOST_WORKLOADS))
        put(self, "num_processes", as_whole(self.num_processes, "num_processes", 1, _MOST_AT_ONCE))
        put(self, "num_workers", as_whole(self.num_workers, "num_workers", 0, 1_000_000))
        gpus = as_number(self.num_gpus, "num_gpus")
        if not 0 <= gpus < math.inf:
            raise UsageError(f"{shown(self.num_gpus)} GPUs cannot be asked for", "num_gpus", "give 0 or more")
        put(self, "num_gpus", int(gpus) if gpus == int(gpus) else gpus)
        put(self, "delay_s", as_seconds(self.delay_s, "delay", positive=False))
        put(self, "max_in_flight", as_whole(self.max_in_flight, "max_in_flight", 1, _MOST_AT_ONCE))
        put(self, "retries", as_whole(self.retries, "retries", 0, 1000))
        put(self, "overrides", tuple(self.overrides))
        check_prefix(self.prefix)
        if self.process not in ("constant", "poisson"):
            raise UsageError(f"there are no {shown(self.process)} arrivals", "process", "use constant or poisson")
        if self.open and self.delay_s:
            raise UsageError("a delay is between rounds, and a rate has none", "delay", "leave one of them out")

    @property
    def open(self) -> bool:
        """Whether the clock decides when a workload is due, and not the answers to those before."""
        return self.rate is not None or self.stages is not None

    @property
    def at_once(self) -> int:
        """Most requests that may be under way."""
        return self.max_in_flight if self.open else min(self.num_processes, self.max_in_flight)

    def values(self) -> dict[str, str | int | float]:
        """What placeholders stand for that are the same in every workload."""
        return {"project": self.project, "gpus": self.num_gpus, "workers": self.num_workers, "queue": self.queue}

    def check_template(self, template: Template) -> None:
        """Whether the template can have all that was given.

        Raises:
            UsageError: it has a placeholder that there is not, or none for a number that was given.
        """
        unknown = sorted(template.asks - set(NAMES))
        if unknown:
            what = f"there is no placeholder ${{{shown(unknown[0])}}}"
            todo = f"there are {', '.join(NAMES)}; for the text write $${{{shown(unknown[0])}}}"
            raise UsageError(what, template.name, todo)
        usual = SubmitOptions(num_workloads=1)
        for option, placeholder in (("num_workers", "workers"), ("num_gpus", "gpus"), ("queue", "queue")):
            if getattr(self, option) != getattr(usual, option) and placeholder not in template.asks:
                what = f"the template {template.name} has no ${{{placeholder}}}"
                raise UsageError(what, option, "leave the option out, or put the placeholder into the template")

    def namespace_of(self, template: Template, context: str) -> str:
        """Where the workloads go; ``context`` is the namespace of the kubeconfig's context."""
        return self.namespace or (f"runai-{self.project}" if template.runai else context)

    def facts(self) -> dict[str, Any]:
        """The options as they are stored."""
        return {**asdict(self), "overrides": list(self.overrides)}
