"""What a pipeline is, whatever file it was written in: operators, what they read and write, what they need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final, Literal

from gpusize.containers.pipeline.container import ContainerOptions

__all__ = [
    "INPUT_VOLUME",
    "Bind",
    "Form",
    "Input",
    "Operator",
    "Output",
    "Pipeline",
    "Requests",
    "Service",
    "same_name",
]

Form = Literal["clara", "compose", "own"]
"""Which form the definition had."""

INPUT_VOLUME: Final = "input"
"""The named volume of a Compose file that stands for the input folder."""


def same_name(name: str) -> str:
    """The form of a name under which it is the same: Clara's names do not tell case apart."""
    return name.casefold()


@dataclass(frozen=True)
class Input:
    """A folder that an operator reads.

    Args:
        path: where the container sees it.
        upstream: the operator whose output it is; None for the input folder of the pipeline.
        name: which output of that operator; None for its unnamed one, or all of its folder.
        where: file, line and column.
    """

    path: str
    upstream: str | None = None
    name: str | None = None
    where: str = ""


@dataclass(frozen=True)
class Output:
    """A folder that an operator writes.

    Args:
        path: where the container sees it.
        name: by which others read it; None where it is the only one.
        where: file, line and column.
    """

    path: str
    name: str | None = None
    where: str = ""


@dataclass(frozen=True)
class Bind:
    """A mount that a Compose file asks for.

    Args:
        source: a folder or file of this machine, absolute; or the name of a volume.
        path: where the container sees it.
        read_only: whether the container may not write to it.
        volume: whether ``source`` is a volume: a folder that the operators of one run share.
        where: file, line and column.
    """

    source: str
    path: str
    read_only: bool = False
    volume: bool = False
    where: str = ""


@dataclass(frozen=True)
class Requests:
    """What a definition asks for, in the units of the machine; None where it says nothing."""

    cpus: float | None = None
    mem_bytes: int | None = None
    gpus: int | None = None


@dataclass(frozen=True)
class Service:
    """A server that has to run beside an operator.

    Args:
        name: its name.
        image: its image with tag.
        command: arguments of its entry point; None for the image's own.
        variables: its environment.
        connections: names of the variables that tell the operator the address, and the port of each.
        gpus: how many, as of an operator; None for none.
        where: file, line and column.
    """

    name: str
    image: str
    command: tuple[str, ...] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    connections: tuple[tuple[str, int], ...] = ()
    gpus: str | None = None
    # Two operators that name the same server do so at two places.
    where: str = field(default="", compare=False)


@dataclass(frozen=True)
class Operator(ContainerOptions):
    """One container of a pipeline, which runs to its end, beside its options.

    Args:
        name: unique in the pipeline, whatever its case.
        image: with tag or digest.
        variables: environment.
        inputs: folders that it reads.
        outputs: folders that it writes.
        binds: further mounts.
        after: operators that have to have ended before, besides those whose outputs it reads.
        models: names of models that a Triton server has to serve meanwhile.
        services: servers that have to run meanwhile.
        requests: what the definition says that it needs: reported beside what was measured, never applied.
        limits: limits that the definition sets: these are applied.
        where: file, line and column.
    """

    name: str
    image: str
    variables: Mapping[str, str] = field(default_factory=dict)
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    binds: tuple[Bind, ...] = ()
    after: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    services: tuple[Service, ...] = ()
    requests: Requests = field(default_factory=Requests)
    limits: Requests = field(default_factory=Requests)
    where: str = ""

    @property
    def upstream(self) -> tuple[str, ...]:
        """Operators that have to have ended before, each once, in the order in which the definition names them."""
        named = [*(each.upstream for each in self.inputs if each.upstream is not None), *self.after]
        return tuple(dict.fromkeys(named))

    @property
    def reads_input(self) -> bool:
        """Whether it reads the pipeline's input folder."""
        return any(each.upstream is None for each in self.inputs) or any(
            bind.volume and bind.source == INPUT_VOLUME for bind in self.binds
        )

    def mount_points(self) -> list[tuple[str, str]]:
        """Places inside the container that are mounted, each with where the definition says so."""
        every: list[Input | Output | Bind] = [*self.inputs, *self.outputs, *self.binds]
        return [(str(PurePosixPath(each.path)), each.where) for each in every]


@dataclass(frozen=True)
class Pipeline:
    """Operators and how they hang together.

    Args:
        name: the pipeline's name.
        operators: as they stand in the file.
        form: which form the file had.
        source: the file.
        notes: what the user should know of it.
    """

    name: str
    operators: tuple[Operator, ...]
    form: Form
    source: str = ""
    notes: tuple[str, ...] = ()

    def operator(self, name: str) -> Operator:
        """The operator of that name; case does not matter.

        Raises:
            KeyError: there is none.
        """
        for operator in self.operators:
            if same_name(operator.name) == same_name(name):
                return operator
        raise KeyError(name)

    @property
    def reads_input(self) -> bool:
        """Whether some operator reads the input folder."""
        return any(operator.reads_input for operator in self.operators)
