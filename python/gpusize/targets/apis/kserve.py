"""KServe v2: requests of tensors, over HTTP in JSON or with the binary extension, and over gRPC.

An API of this kind needs the model's metadata and the prepared rows before it can say what its bodies consist of:
`create_kserve` makes it. Made from options alone it knows its path and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final
from urllib.parse import quote

from gpusize.base.errors import UsageError
from gpusize.base.text import shown
from gpusize.targets.apis.base import ApiOptions, Nature, ResponseSpec, Segment, encode_json, row_error
from gpusize.targets.kserve.metadata import ModelMetadata
from gpusize.targets.kserve.mix import parse_models
from gpusize.targets.kserve.rows import TensorRow
from gpusize.targets.kserve.tensors import from_raw
from gpusize.workload.dataset import Row

__all__ = [
    "KSERVE",
    "Kserve",
    "KserveBinary",
    "KserveGrpc",
    "KserveGrpcStream",
    "KserveJson",
    "create_kserve",
    "is_kserve",
]

_SERVICE: Final = "/inference.GRPCInferenceService/"
_RAW_CONTENTS: Final = b"\x3a"
"""Field 7 of ModelInferRequest, length-delimited."""
_PARAMETERS: Final = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}

Encode = Callable[[str, str, list[bytes]], bytes]


class Kserve:
    """Base of all: a request is what a prepared row (`gpusize.targets.kserve.rows.TensorRow`) carries.

    Members of ``extra_body`` are request parameters, as ``{"priority": 1}``.

    Args:
        options: the user's; ``model`` is needed.
        model: what the model takes, or None when only the path is wanted.
        rows: all rows that will be sent.
    """

    name: ClassVar[str]
    nature: ClassVar[Nature] = "inference"
    spec: ClassVar[ResponseSpec]

    def __init__(self, options: ApiOptions, model: ModelMetadata | None = None, rows: Sequence[TensorRow] = ()) -> None:
        if options.method != "POST":
            raise UsageError(f"{options.method} cannot ask for an inference", "method", "leave it out")
        if options.body_template is not None:
            raise UsageError("the body is made of tensors", "body template", "leave it out, or use --api generic")
        for name in ("max_tokens", "temperature"):
            if getattr(options, name) is not None:
                raise UsageError("a model of tensors generates no tokens", name.replace("_", " "), "leave it out")
        wrong = next((name for name, value in options.extra_body.items() if type(value) not in _PARAMETERS), None)
        if wrong is not None:
            raise UsageError(
                f'the parameter "{shown(wrong)}" is not a single value',
                "extra body",
                "give a text, a number or a boolean",
            )
        self._options = options
        self._model = model
        self._rows = rows
        self._response = self.spec.changed(options.response).to_dict()

    @property
    def default_path(self) -> str:
        """Path of the model's inferences; ``/`` when no model is named yet."""
        if self._model is not None:
            return self.path(self._model.name, self._model.version)
        if not self._options.model:
            return "/"
        return self.path(next(iter(parse_models(self._options.model))))

    @staticmethod
    def path(model: str, version: str | None = None) -> str:
        """Where this API asks for inferences of a model."""
        tail = f"/versions/{quote(version, safe='')}" if version else ""
        return f"/v2/models/{quote(model, safe='')}{tail}/infer"

    @property
    def model(self) -> ModelMetadata:
        """What the model takes.

        Raises:
            UsageError: the API was made from options alone.
        """
        if self._model is None:
            raise UsageError(
                f"{self.name} sends tensors, which --input names", "input", "give --input FILE or --input random"
            )
        return self._model

    def parameters(self, row: TensorRow) -> dict[str, Any]:
        """Parameters of a request: the user's, its stream's priority, and the row's place in its sequence."""
        step = row.step
        told: dict[str, Any] = {} if row.priority is None else {"priority": row.priority}
        if step is not None:
            told |= {"sequence_id": step.id, "sequence_start": step.start, "sequence_end": step.end}
        return {**self._options.extra_body, **told}

    def response(self) -> dict[str, Any]:
        """How to read an answer."""
        return self._response

    @classmethod
    def plain_headers(cls) -> list[tuple[str, str]]:
        """Headers that are the same for every model."""
        return [("Content-Type", "application/json"), ("Accept", "*/*")]

    def headers(self) -> list[tuple[str, str]]:
        """Headers of every request."""
        return self.plain_headers()

    def segments(self) -> list[Segment]:
        """The pieces of every body."""
        return [{"field": number} for number in range(self._pieces())]

    def _pieces(self) -> int:
        _ = self.model
        return 1

    def fields(self, row: Row) -> list[bytes]:
        """The row's pieces.

        Raises:
            DatasetError: the row was not prepared, or cannot be written in this form.
        """
        raise NotImplementedError


class KserveBinary(Kserve):
    """HTTP with the binary extension: a JSON header, then the tensors as they are.

    All rows have a header of one length, by spaces at its end, so that ``Inference-Header-Content-Length`` is the same
    for all requests.
    """

    name = "kserve"
    spec = ResponseSpec(framing="whole", json="by_type", success_if={"at": "/outputs/0", "is": None})

    def __init__(self, options: ApiOptions, model: ModelMetadata | None = None, rows: Sequence[TensorRow] = ()) -> None:
        super().__init__(options, model, rows)
        self._width = max((len(self._head(row)) for row in self._rows), default=0) if model else 0

    @classmethod
    def plain_headers(cls) -> list[tuple[str, str]]:
        """Headers that are the same for every model."""
        return [("Content-Type", "application/octet-stream"), ("Accept", "*/*")]

    def headers(self) -> list[tuple[str, str]]:
        """Headers of every request; with the header's length once it is known."""
        known = [("Inference-Header-Content-Length", str(self._width))] if self._model else []
        return [*self.plain_headers(), *known]

    def _pieces(self) -> int:
        return 1 + len(self.model.inputs)

    def _head(self, row: TensorRow) -> bytes:
        inputs = [
            {
                "name": tensor.name,
                "shape": tensor.shape,
                "datatype": tensor.datatype,
                "parameters": {"binary_data_size": len(tensor.raw)},
            }
            for tensor in row.tensors
        ]
        outputs = [{"name": spec.name, "parameters": {"binary_data": True}} for spec in self.model.outputs]
        parameters = self.parameters(row)
        if not outputs:
            parameters["binary_data_output"] = True
        members = {"parameters": parameters, "inputs": inputs, "outputs": outputs}
        return encode_json({name: value for name, value in members.items() if value})

    def fields(self, row: Row) -> list[bytes]:
        """The header, and each input's bytes; of an optional input that is not given, none."""
        request = _tensors(row)
        raw = {tensor.name: tensor.raw for tensor in request.tensors}
        head = self._head(request).ljust(self._width)
        return [head, *(raw.get(spec.name, b"") for spec in self.model.inputs)]


class KserveJson(Kserve):
    """HTTP with everything in JSON."""

    name = "kserve-json"
    spec = ResponseSpec(framing="whole", success_if={"at": "/outputs/0", "is": None})

    def fields(self, row: Row) -> list[bytes]:
        """The body."""
        request = _tensors(row)
        inputs = [
            {"name": one.name, "shape": one.shape, "datatype": one.datatype, "data": self._data(one, row)}
            for one in request.tensors
        ]
        parameters = self.parameters(request)
        members = {"parameters": parameters, "inputs": inputs}
        try:
            return [encode_json({name: value for name, value in members.items() if value or name == "inputs"})]
        except ValueError:
            raise row_error(row, "holds a number that JSON lacks (not finite)", "use --api kserve") from None

    def _data(self, tensor: Any, row: Row) -> list[Any]:
        if tensor.datatype in {"FP16", "BF16"}:
            raise row_error(row, f"holds {tensor.datatype}, which JSON lacks", "use --api kserve")
        values = from_raw(tensor.datatype, tensor.raw)
        if tensor.datatype != "BYTES":
            return values
        try:
            return [one.decode() for one in values]
        except UnicodeDecodeError:
            raise row_error(row, "holds bytes that are not text, which JSON lacks", "use --api kserve") from None


class KserveGrpc(Kserve):
    """gRPC: one ModelInferRequest per row, its tensors in ``raw_input_contents``.

    Args:
        options: as `Kserve`.
        model: as `Kserve`.
        rows: as `Kserve`.
        encode: ``_core.kserve_encode``; for tests.
    """

    name = "kserve-grpc"
    transport: ClassVar[str] = "grpc"
    """What the engine's TargetSpec has to say."""
    spec = ResponseSpec(framing="kserve", error=None, success_if="content")
    method: ClassVar[str] = "ModelInfer"

    def __init__(
        self,
        options: ApiOptions,
        model: ModelMetadata | None = None,
        rows: Sequence[TensorRow] = (),
        *,
        encode: Encode | None = None,
    ) -> None:
        super().__init__(options, model, rows)
        self._encode = encode

    @property
    def default_path(self) -> str:
        """The method, whatever the model."""
        return f"{_SERVICE}{self.method}"

    @classmethod
    def plain_headers(cls) -> list[tuple[str, str]]:
        """None: metadata is the user's alone."""
        return []

    def _pieces(self) -> int:
        return 2 * len(self.model.inputs)

    def fields(self, row: Row) -> list[bytes]:
        """For each input what stands before its bytes, and its bytes.

        A message is the concatenation of its fields, so the tensors need not be copied into one.
        """
        request = _tensors(row)
        raw = {tensor.name: tensor.raw for tensor in request.tensors}
        head = self._message_head(request)
        pieces: list[bytes] = []
        for spec in self.model.inputs:
            own = raw.get(spec.name)
            pieces += [b"", b""] if own is None else [_RAW_CONTENTS + _varint(len(own)), own]
        return [head + pieces[0], *pieces[1:]]

    def _message_head(self, request: TensorRow) -> bytes:
        """The message without its tensors' bytes."""
        parameters = {name: {_PARAMETERS[type(value)]: value} for name, value in self.parameters(request).items()}
        message: dict[str, Any] = {
            "model_name": self.model.name,
            "inputs": [
                {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape} for tensor in request.tensors
            ],
        }
        if self.model.version:
            message["model_version"] = self.model.version
        if parameters:
            message["parameters"] = parameters
        if self._encode is None:
            from gpusize.engine.session import core

            self._encode = core().kserve_encode
        return self._encode("ModelInfer", encode_json(message).decode(), [])


class KserveGrpcStream(KserveGrpc):
    """gRPC with a stream of answers to one request, as decoupled models give them."""

    name = "kserve-grpc-stream"
    method = "ModelStreamInfer"
    spec = ResponseSpec(framing="kserve_stream", error=None, success_if="content")


KSERVE: Final[Mapping[str, type[Kserve]]] = {
    one.name: one for one in (KserveBinary, KserveJson, KserveGrpc, KserveGrpcStream)
}
"""The KServe APIs by name."""


def is_kserve(api: str | None) -> bool:
    """Whether an API of this name is one whose rows are made from what the server says of its models."""
    return api in KSERVE


def create_kserve(name: str, options: ApiOptions, model: ModelMetadata, rows: Sequence[TensorRow]) -> Kserve:
    """The API called ``name`` for a model and the rows that will be sent.

    Raises:
        UsageError: no such API, options that it cannot take, or a decoupled model without a stream.
    """
    if name not in KSERVE:
        raise UsageError(f'"{shown(name)}" is not a KServe API', "api", f"use one of {', '.join(KSERVE)}")
    if model.decoupled and name != KserveGrpcStream.name:
        raise UsageError(
            f"{shown(model.name)} is decoupled: it gives any number of answers to a request",
            "api",
            f"use --api {KserveGrpcStream.name}",
        )
    if not model.inputs:
        raise UsageError(f"{shown(model.name)} takes no inputs", "model", "name a model that does")
    return KSERVE[name](options, model, rows)


def _tensors(row: Row) -> TensorRow:
    value = row.value
    if not isinstance(value, TensorRow):
        raise row_error(row, "holds no tensors", "give tensors with --input")
    return value


def _varint(number: int) -> bytes:
    """A whole number as protobuf writes lengths."""
    pieces = bytearray()
    while number > 0x7F:
        pieces.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*pieces, number])
