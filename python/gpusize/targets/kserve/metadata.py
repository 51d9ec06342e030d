"""What a model takes and gives: names, element types and shapes, and how it batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gpusize.base.errors import TargetError
from gpusize.base.text import shown
from gpusize.targets.kserve.tensors import DATATYPES

__all__ = ["ModelMetadata", "TensorSpec", "parse_metadata"]

_MOST_TENSORS: Final = 1024
_MOST_CHARS: Final = 1024
_MOST_DIMENSIONS: Final = 64
_MOST_SIZE: Final = 2**31 - 1
_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a model.

    Args:
        name: its name.
        datatype: KServe's name of the element type.
        shape: the dimensions as the server gives them, -1 for one that varies; where the model batches, the first is
            that of the batch.
        optional: whether a request may leave it out.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """A model on a KServe v2 server.

    Args:
        name: the model.
        versions: the versions that the server has of it.
        inputs: what a request holds.
        outputs: what an answer holds.
        max_batch_size: the most inferences of one request; 0: the model has no batch dimension; None: the server does
            not say (``/config`` is Triton's).
        decoupled: whether it gives any number of answers to a request.
        version: the version asked for, or None for the server's choice.
        platform: what runs it.
        instances: how many instances serve it in all groups, or None when the server does not say.
    """

    name: str
    versions: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch_size: int | None = None
    decoupled: bool = False
    version: str | None = None
    platform: str = ""
    instances: int | None = None

    @property
    def batches(self) -> bool:
        """Whether the first dimension of every tensor is that of the batch."""
        return bool(self.max_batch_size)

    def dims(self, spec: TensorSpec) -> tuple[int, ...]:
        """The dimensions of a tensor without that of the batch."""
        return spec.shape[1:] if self.batches else spec.shape

    def input(self, name: str) -> TensorSpec | None:
        """The input of this name."""
        return next((spec for spec in self.inputs if spec.name == name), None)

    def facts(self) -> dict[str, Any]:
        """What ``run.json`` says about the model."""
        return {
            "name": self.name,
            "version": self.version,
            "versions": list(self.versions),
            "platform": self.platform,
            "max_batch_size": self.max_batch_size,
            "decoupled": self.decoupled,
            "instances": self.instances,
            "inputs": [[spec.name, spec.datatype, list(spec.shape)] for spec in self.inputs],
            "outputs": [[spec.name, spec.datatype, list(spec.shape)] for spec in self.outputs],
        }


def parse_metadata(
    metadata: Mapping[str, Any], config: Mapping[str, Any] | None, where: str, version: str | None = None
) -> ModelMetadata:
    """A model from the server's answers.

    Args:
        metadata: the answer to ModelMetadata; whole numbers may be texts, as in JSON made from a protobuf message.
        config: the answer to ModelConfig without its envelope, or None.
        where: the address, for errors.
        version: the version asked for.

    Raises:
        TargetError: the answer is not what the protocol says.
    """
    try:
        model = ModelMetadata(
            name=_text(metadata["name"]),
            versions=tuple(_text(one) for one in metadata.get("versions") or ()),
            inputs=_tensors(metadata.get("inputs") or ()),
            outputs=_tensors(metadata.get("outputs") or ()),
            version=version,
            platform=_text(metadata.get("platform") or ""),
        )
        return model if config is None else _with_config(model, config)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as problem:
        raise TargetError(
            f"the model's metadata cannot be read: {shown(f'{type(problem).__name__}: {problem}', 200)}",
            where,
            "is this a KServe v2 server?",
        ) from None


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _MOST_CHARS:
        raise ValueError(f"{shown(value)} is not a name")
    return value


def _tensors(listed: Sequence[Any]) -> tuple[TensorSpec, ...]:
    if len(listed) > _MOST_TENSORS:
        raise ValueError(f"{len(listed)} tensors")
    specs = []
    for one in listed:
        datatype = _text(one["datatype"])
        if datatype not in DATATYPES:
            raise ValueError(f'"{shown(datatype)}" is not a datatype')
        specs.append(TensorSpec(_text(one["name"]), datatype, _shape(one.get("shape") or ())))
    if len({spec.name for spec in specs}) < len(specs):
        raise ValueError("two tensors have the same name")
    return tuple(specs)


def _shape(listed: Any) -> tuple[int, ...]:
    """Dimensions: -1, or a size that some tensor can have."""
    if not isinstance(listed, Sequence) or isinstance(listed, str) or len(listed) > _MOST_DIMENSIONS:
        raise ValueError(f"{shown(listed)} is not a shape")
    sizes = tuple(_whole(size) for size in listed)
    if any(not -1 <= size <= _MOST_SIZE for size in sizes):
        raise ValueError(f"{shown(listed)} is not a shape")
    return sizes


def _whole(value: Any) -> int:
    """A whole number, which may be a text, as in JSON made from a protobuf message."""
    if isinstance(value, bool) or not isinstance(value, int | str) or (isinstance(value, str) and len(value) > _DIGITS):
        raise ValueError(f"{shown(value)} is not a whole number")
    return int(value)


def _within(value: Any, most: int) -> int:
    """A whole number from 0 to ``most``."""
    number = _whole(value)
    if not 0 <= number <= most:
        raise ValueError(f"{shown(value)} is not a whole number from 0 to {most}")
    return number


def _with_config(model: ModelMetadata, config: Mapping[str, Any]) -> ModelMetadata:
    optional = {one.get("name") for one in config.get("input") or () if one.get("optional") is True}
    groups = config.get("instance_group")
    most = config.get("max_batch_size")
    return replace(
        model,
        inputs=tuple(replace(spec, optional=spec.name in optional) for spec in model.inputs),
        # A field that is 0 may be missing where JSON was made from a protobuf message.
        max_batch_size=_within(most or 0, _MOST_SIZE),
        decoupled=bool((config.get("model_transaction_policy") or {}).get("decoupled")),
        instances=sum(_instances(group) for group in groups) if groups else None,
    )


def _instances(group: Mapping[str, Any]) -> int:
    """Instances of a group: its count on each of its GPUs."""
    return _within(group.get("count") or 1, _MOST_SIZE) * max(1, len(group.get("gpus") or ()))
