"""What a KServe request carries: tensors as the bytes that travel, and the place of a request in a sequence."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SequenceStep", "Tensor", "TensorRow"]


@dataclass(frozen=True, slots=True, repr=False)
class Tensor:
    """One input of one request.

    Args:
        name: the input's name.
        datatype: KServe's name of the element type, as FP32.
        shape: all dimensions, that of the batch included.
        raw: the elements, row-major, little-endian; of BYTES each with its length in four bytes before it.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    raw: bytes

    def __repr__(self) -> str:
        return f"{self.name}: {self.datatype}{list(self.shape)}, {len(self.raw)} bytes"


@dataclass(frozen=True, slots=True)
class SequenceStep:
    """The place of a request in a sequence of requests.

    Args:
        id: the sequence, from 1.
        turn: the step, from 0.
        start: whether it is the first step.
        end: whether it is the last.
    """

    id: int
    turn: int
    start: bool
    end: bool


@dataclass(frozen=True, slots=True, repr=False)
class TensorRow:
    """One request.

    Args:
        tensors: the inputs that it has, in the model's order.
        batch: how many inferences it asks for: the leading dimension, 1 for a model without one.
        step: its place in a sequence, or None.
        priority: what the server is told of it, or None.
    """

    tensors: tuple[Tensor, ...]
    batch: int = 1
    step: SequenceStep | None = None
    priority: int | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(len(tensor.raw) for tensor in self.tensors)

    def __repr__(self) -> str:
        return "; ".join(repr(tensor) for tensor in self.tensors)
