"""Requests: the bytes of each API, and what a real server's exchanges look like in them."""

import json
import struct

import pytest

from gpusize.base.errors import DatasetError, UsageError
from gpusize.engine.session import core
from gpusize.targets.apis import ApiOptions, create_api, create_kserve, encode_rows
from gpusize.targets.apis.kserve import KSERVE, KserveGrpc
from gpusize.targets.kserve.inputs import dataset_of_rows
from gpusize.targets.kserve.metadata import TensorSpec
from gpusize.targets.kserve.rows import SequenceStep, Tensor, TensorRow
from gpusize.targets.kserve.tensors import from_raw, to_raw
from tests.kserve.exchanges import recorded
from tests.kserve.models import BATCHED, TWO, model


def row(*tensors, step=None):
    return TensorRow(tensors, tensors[0].shape[0], step)


def floats(*values):
    return Tensor("IN", "FP32", (len(values) // 4, 4), struct.pack(f"<{len(values)}f", *values))


def encoded(name, wanted, rows, **options):
    api = create_kserve(name, ApiOptions(model=wanted.name, **options), wanted, rows)
    return api, encode_rows(api, dataset_of_rows(rows, source="test"))


def split_binary(api, pieces):
    length = int(dict(api.headers())["Inference-Header-Content-Length"])
    body = b"".join(pieces)
    return json.loads(body[:length]), body[length:]


def exchange(content_type, *, outcome=200):
    return next(
        one
        for one in recorded()
        if one.method == "POST"
        and one.status == outcome
        and one.request_headers.get("Content-Type") == content_type
        and one.path.endswith("/infer")
    )


def test_a_real_binary_request_is_what_we_send():
    real = exchange("application/octet-stream")
    length = int(real.request_headers["Inference-Header-Content-Length"])
    wanted = json.loads(real.request[:length])
    del wanted["id"]
    raw = to_raw("FP32", list(range(64)))
    mlp = model(TensorSpec("x", "FP32", (-1, 64)), name="numpy_mlp", outputs=(TensorSpec("y", "FP32", (-1, 64)),))
    api, [pieces] = encoded("kserve", mlp, [row(Tensor("x", "FP32", (1, 64), raw))])
    head, tail = split_binary(api, pieces)
    assert head == wanted
    assert tail == raw
    assert raw.startswith(real.request[length:])
    assert api.default_path == real.path


def test_a_real_binary_answer_reads_as_the_one_in_json():
    binary, plain = exchange("application/octet-stream"), exchange("application/json")
    length = int(binary.headers["Inference-Header-Content-Length"])
    [output] = json.loads(binary.body[:length])["outputs"]
    values = from_raw(output["datatype"], binary.body[length:])
    assert len(values) == 64
    assert output["parameters"]["binary_data_size"] == len(binary.body) - length == 256
    known = plain.body.split(b'"data":[')[1].rsplit(b",", 1)[0].split(b",")
    assert len(known) > 20
    assert values[: len(known)] == [float(text) for text in known]


def test_a_real_request_in_json_is_what_we_send():
    real = exchange("application/json")
    mlp = model(TensorSpec("x", "FP32", (-1, 64)), name="numpy_mlp")
    _, [[body]] = encoded("kserve-json", mlp, [row(Tensor("x", "FP32", (1, 64), to_raw("FP32", list(range(64)))))])
    made = json.loads(body)
    assert made["inputs"][0]["data"] == list(range(64))
    start = real.request.decode().replace('"id": "a1", ', "").replace(" ", "")
    written = json.dumps(made, separators=(",", ":"))
    assert written.startswith(start[:150])


def test_headers_of_all_rows_have_one_length():
    rows = [row(floats(*range(4))), row(floats(*range(32)))]
    api, made = encoded("kserve", BATCHED, rows)
    heads = [split_binary(api, pieces) for pieces in made]
    assert len({len(pieces[0]) for pieces in made}) == 1
    assert [head["inputs"][0]["shape"] for head, _ in heads] == [[1, 4], [8, 4]]
    assert [tail for _, tail in heads] == [each.tensors[0].raw for each in rows]
    assert heads[0][0]["outputs"] == [{"name": "OUT", "parameters": {"binary_data": True}}]
    assert made[0][1] is rows[0].tensors[0].raw, "a tensor is not copied"
    assert api.segments() == [{"field": 0}, {"field": 1}]


def test_a_model_that_names_no_outputs_is_asked_for_all_in_binary():
    api, [pieces] = encoded("kserve", model(*BATCHED.inputs, outputs=()), [row(floats(*range(4)))])
    assert split_binary(api, pieces)[0]["parameters"] == {"binary_data_output": True}


def test_an_optional_input_may_be_missing():
    a = Tensor("A", "INT64", (1,), struct.pack("<q", 1))
    b = Tensor("B", "FP32", (1, 2), struct.pack("<2f", 1, 2))
    api, made = encoded("kserve", TWO, [row(a), row(a, b)])
    assert [split_binary(api, pieces)[1] for pieces in made] == [a.raw, a.raw + b.raw]
    assert {len(pieces) for pieces in made} == {3}


STEP = SequenceStep(7, 1, start=False, end=True)


def test_parameters_of_requests_and_sequences():
    step = row(floats(*range(4)), step=STEP)
    wanted = {"priority": 1, "tag": "a", "sequence_id": 7, "sequence_start": False, "sequence_end": True}
    extra = {"priority": 1, "tag": "a"}
    api, [pieces] = encoded("kserve", BATCHED, [step], extra_body=extra)
    assert split_binary(api, pieces)[0]["parameters"] == wanted
    _, [[body]] = encoded("kserve-json", BATCHED, [step], extra_body=extra)
    assert json.loads(body)["parameters"] == wanted


def test_all_types_in_json():
    inputs: dict[str, list] = {
        "BOOL": [True, False],
        "UINT64": [2**64 - 1, 0],
        "FP64": [0.5, -1.0],
        "BYTES": ["a", "ü"],
    }
    tensors = [Tensor(name, name, (2,), to_raw(name, values)) for name, values in inputs.items()]
    wanted = model(*(TensorSpec(name, name, (-1,)) for name in inputs))
    _, [[body]] = encoded("kserve-json", wanted, [row(*tensors)])
    assert {one["name"]: one["data"] for one in json.loads(body)["inputs"]} == inputs


@pytest.mark.parametrize(
    "tensor,what",
    [
        (Tensor("IN", "FP16", (1,), b"\0\x3c"), "holds FP16, which JSON lacks"),
        (Tensor("IN", "BF16", (1,), b"\0\0"), "holds BF16"),
        (Tensor("IN", "FP32", (1,), b"\0\0\x80\x7f"), "not finite"),
        (Tensor("IN", "BYTES", (1,), b"\1\0\0\0\xff"), "not text"),
    ],
)
def test_what_json_lacks(tensor, what):
    with pytest.raises(DatasetError, match=what):
        encoded("kserve-json", model(TensorSpec("IN", tensor.datatype, (1,))), [row(tensor)])


def read_message(data):
    """Fields of a protobuf message: number, and the bytes of those that are length-delimited."""
    fields, position = [], 0

    def varint():
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(data):
        key = varint()
        assert key & 7 == 2, "this reader knows length-delimited fields only"
        length = varint()
        fields.append((key >> 3, data[position : position + length]))
        position += length
    assert position == len(data)
    return fields


def grpc_message(wanted, rows, name="kserve-grpc", **options):
    """The messages of rows, their heads as JSON in field 1 instead of protobuf."""

    def encode(method, text, raw):
        assert (method, raw, len(text) < 128 * 127) == ("ModelInfer", [], True)
        size = len(text)
        return b"\x0a" + bytes([size & 0x7F | 0x80, size >> 7]) + text.encode()

    kind = KSERVE[name]
    assert issubclass(kind, KserveGrpc)
    api = kind(ApiOptions(model="m", **options), wanted, rows, encode=encode)
    assert [len(pieces) for pieces in encode_rows(api, dataset_of_rows(rows, source="test"))] == [
        len(api.segments())
    ] * len(rows)
    return [read_message(b"".join(pieces)) for pieces in encode_rows(api, dataset_of_rows(rows, source="test"))]


def test_a_message_of_grpc():
    wanted = model(*BATCHED.inputs, version="3", max_batch_size=8)
    large = floats(*[1.0] * 40_000)
    [[(number, head), (raw_number, raw)]] = grpc_message(wanted, [row(large, step=STEP)], extra_body={"p": 1.5})
    assert (number, raw_number, raw) == (1, 7, large.raw)
    assert json.loads(head) == {
        "model_name": "m",
        "model_version": "3",
        "parameters": {
            "p": {"double_param": 1.5},
            "sequence_id": {"int64_param": 7},
            "sequence_start": {"bool_param": False},
            "sequence_end": {"bool_param": True},
        },
        "inputs": [{"name": "IN", "datatype": "FP32", "shape": [10_000, 4]}],
    }


def test_a_message_is_what_the_extension_makes_of_it_in_one_piece():
    a, b = Tensor("A", "INT64", (1,), b"\1" * 8), Tensor("B", "FP32", (200, 2), bytes(1600))
    api = create_kserve("kserve-grpc", ApiOptions(), TWO, [])
    [pieces] = encode_rows(api, dataset_of_rows([row(a, b, step=STEP)], source="test"))
    message = {
        "model_name": "m",
        "parameters": {
            "sequence_id": {"int64_param": 7},
            "sequence_start": {"bool_param": False},
            "sequence_end": {"bool_param": True},
        },
        "inputs": [{"name": one.name, "datatype": one.datatype, "shape": one.shape} for one in (a, b)],
    }
    assert b"".join(pieces) == core().kserve_encode("ModelInfer", json.dumps(message), [a.raw, b.raw])
    assert pieces[3] is b.raw, "a tensor is not copied"


def test_a_message_without_an_optional_input():
    a, b = Tensor("A", "INT64", (1,), b"\1" * 8), Tensor("B", "FP32", (0, 2), b"")
    first, second = grpc_message(TWO, [row(a), row(a, b)], "kserve-grpc-stream")
    assert [data for number, data in first if number == 7] == [a.raw]
    assert [data for number, data in second if number == 7] == [a.raw, b""]


def test_the_shape_of_the_apis():
    for name in KSERVE:
        api = create_api(name, ApiOptions(model="m"))
        grpc = name.startswith("kserve-grpc")
        assert api.default_path == (
            f"/inference.GRPCInferenceService/Model{'Stream' if name.endswith('stream') else ''}Infer"
            if grpc
            else "/v2/models/m/infer"
        )
        assert getattr(api, "transport", "http1") == ("grpc" if grpc else "http1")
        assert json.loads(json.dumps(api.response()))["framing"] == {
            "kserve-grpc": "kserve",
            "kserve-grpc-stream": "kserve_stream",
        }.get(name, "whole")
        with pytest.raises(UsageError, match="--input"):
            api.segments()
    assert create_api("kserve").default_path == "/"
    assert create_api("kserve", ApiOptions(model="b/c=3,a=1")).default_path == "/v2/models/b%2Fc/infer"
    named = create_kserve("kserve", ApiOptions(), model(*BATCHED.inputs, version="2"), [])
    assert named.default_path == "/v2/models/m/versions/2/infer"


@pytest.mark.parametrize(
    "options,what",
    [
        ({"method": "GET"}, "GET cannot ask"),
        ({"body_template": "{}"}, "made of tensors"),
        ({"max_tokens": 3}, "generates no tokens"),
        ({"temperature": 0.5}, "generates no tokens"),
        ({"extra_body": {"p": [1]}}, 'the parameter "p" is not a single value'),
    ],
)
def test_options_that_tensors_do_not_take(options, what):
    with pytest.raises(UsageError, match=what):
        create_api("kserve", ApiOptions(**options))


def test_decoupled_models_need_a_stream():
    decoupled = model(*BATCHED.inputs, decoupled=True)
    with pytest.raises(UsageError, match="Use --api kserve-grpc-stream"):
        create_kserve("kserve", ApiOptions(), decoupled, [])
    assert create_kserve("kserve-grpc-stream", ApiOptions(), decoupled, []).name == "kserve-grpc-stream"
    with pytest.raises(UsageError, match="is not a KServe API"):
        create_kserve("generic", ApiOptions(), decoupled, [])
    with pytest.raises(UsageError, match="takes no inputs"):
        create_kserve("kserve", ApiOptions(), model(), [])
