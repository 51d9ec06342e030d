"""What a server says about its models, over HTTP and gRPC, and what it says when it does not."""

import json

import httpx
import pytest

from gpusize.base.errors import TargetError
from gpusize.targets.kserve.client import GrpcClient, HttpClient
from gpusize.targets.kserve.metadata import TensorSpec, parse_metadata
from gpusize.targets.kserve.responses import StatsUnavailable
from tests.kserve.exchanges import CONFIG, SPEC, STATS, server


def http(transport=None, **spec):
    return HttpClient({**SPEC, **spec}, transport=transport or server())


METADATA = {
    "name": "m",
    "versions": ["1", "2"],
    "platform": "python",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": ["-1", "64"]}],
    "outputs": [{"name": "y", "datatype": "BYTES", "shape": []}],
}


class Grpc:
    """The extension's three functions; messages are JSON."""

    def __init__(self, **answers):
        self.answers = answers
        self.calls = []

    def call(self, target, method, message, timeout_ns):
        self.calls.append((json.loads(target)["host"], method, json.loads(message), timeout_ns > 0))
        status, said, value = self.answers.get(method.rsplit("/", 1)[1], (12, "unimplemented", None))
        return status, said, json.dumps(value).encode()

    def client(self):
        return GrpcClient(
            {**SPEC, "headers": [["authorization", "Bearer sk-1234"]]},
            self.call,
            lambda _, text, raw: text.encode() if not raw else b"",
            lambda _, message: message.decode(),
        )


def test_metadata_over_http():
    model = http().metadata("numpy_mlp")
    assert (model.name, model.versions, model.platform) == ("numpy_mlp", ("1",), "python")
    assert model.inputs == (TensorSpec("x", "FP32", (-1, 64)),)
    assert model.outputs == (TensorSpec("y", "FP32", (-1, 64)),)
    assert (model.max_batch_size, model.decoupled, model.instances, model.batches) == (8, False, 1, True)
    assert model.dims(model.inputs[0]) == (64,)
    assert model.facts()["inputs"] == [["x", "FP32", [-1, 64]]]


def test_an_unknown_model_is_answered_with_those_that_exist():
    with pytest.raises(TargetError) as caught:
        http().metadata("nosuch")
    assert caught.value.what == 'the server has no model "nosuch"; it has numpy_mlp, other'
    # A server whose models come from a program has an empty index, and counts them all the same.
    with pytest.raises(TargetError, match='no model "nosuch"; it has numpy_mlp'):
        http(server(index=(200, b"[]"))).metadata("nosuch")
    with pytest.raises(TargetError, match=r'no model "nosuch"\. Check'):
        http(server(stats=(403, b""), index=(403, b'{"error":"This API is restricted"}'))).metadata("nosuch")


def test_a_server_without_configuration():
    model = http(server(config=(404, b"{}"))).metadata("numpy_mlp")
    assert (model.max_batch_size, model.batches, model.dims(model.inputs[0])) == (None, False, (-1, 64))


@pytest.mark.parametrize(
    "answer,what",
    [
        ((500, b'{"error":"boom\\u001b[31m"}'), "status 500: boom"),
        ((200, b"<html>"), "not JSON"),
        ((200, b"[1]"), "not a JSON object"),
        ((200, b"{}"), "cannot be read"),
        ((200, b'{"name":"m","inputs":[{"name":"x","datatype":"FP8","shape":[1]}]}'), '"FP8.* is not a datatype'),
        ((200, b'{"name":"m","inputs":[{"name":"x","datatype":"FP32","shape":[1]},3]}'), "cannot be read"),
        ((200, b'{"name":"m","inputs":7}'), "cannot be read"),
        ((200, b" " * (17 << 20)), "larger than 16 MiB"),
    ],
)
def test_metadata_that_cannot_be_used(answer, what):
    with pytest.raises(TargetError, match=what) as caught:
        http(server(numpy_mlp=answer)).metadata("numpy_mlp")
    assert "\x1b" not in str(caught.value)


def test_a_server_that_does_not_answer():
    def refuse(request):
        raise httpx.ConnectError("connection refused")

    with pytest.raises(TargetError, match="connection refused"):
        http(httpx.MockTransport(refuse)).metadata("m")
    with pytest.raises(TargetError, match="connection refused"):
        http(httpx.MockTransport(refuse)).statistics()
    assert http(httpx.MockTransport(refuse)).models() == []


def test_headers_go_along_and_are_not_repeated():
    seen = []

    def answer(request):
        seen.append(request)
        return httpx.Response(401, text=f"bad key {request.headers['authorization']}")

    headers = [["Authorization", "Bearer sk-1234"], ["Content-Type", "application/octet-stream"]]
    with pytest.raises(TargetError) as caught:
        http(httpx.MockTransport(answer), headers=headers).metadata("a b/c", "2")
    assert "sk-1234" not in str(caught.value)
    assert seen[0].url.raw_path == b"/v2/models/a%20b%2Fc/versions/2"
    assert "content-type" not in seen[0].headers


def test_statistics_over_http():
    assert http().statistics() == json.loads(STATS)["model_stats"]
    restricted = (403, b'{"error":"This API is restricted, expecting header \'triton-grpc-protocol-x\'"}')
    with pytest.raises(StatsUnavailable, match="403: This API is restricted, expecting header"):
        http(server(stats=restricted)).statistics()
    for wrong in (b"[]", b"{}", b"not json", b'{"model_stats": 3}'):
        with pytest.raises(StatsUnavailable):
            http(server(stats=(200, wrong))).statistics()
    with pytest.raises(TargetError, match="no statistics this time, it answered with status 503"):
        http(server(stats=(503, b""))).statistics()


def test_metadata_over_grpc():
    config = {"config": {"max_batch_size": 4, "model_transaction_policy": {"decoupled": True}}}
    grpc = Grpc(ModelMetadata=(0, "", METADATA), ModelConfig=(0, "", config))
    model = grpc.client().metadata("m", "2")
    assert (model.name, model.version, model.max_batch_size, model.decoupled) == ("m", "2", 4, True)
    assert (model.inputs[0].shape, model.outputs[0].shape) == ((-1, 64), ())
    asked = {"name": "m", "version": "2"}
    assert grpc.calls == [
        ("127.0.0.1", "/inference.GRPCInferenceService/ModelMetadata", asked, True),
        ("127.0.0.1", "/inference.GRPCInferenceService/ModelConfig", asked, True),
    ]


def test_a_field_of_zero_may_be_missing_over_grpc():
    grpc = Grpc(ModelMetadata=(0, "", METADATA), ModelConfig=(0, "", {"config": {}}))
    assert grpc.client().metadata("m").max_batch_size == 0
    assert Grpc(ModelMetadata=(0, "", METADATA)).client().metadata("m").max_batch_size is None


def test_an_unknown_model_over_grpc():
    index = {"models": [{"name": "a", "state": "READY"}, {"name": "b", "state": "UNAVAILABLE"}]}
    grpc = Grpc(ModelMetadata=(5, "not found", None), RepositoryIndex=(0, "", index))
    with pytest.raises(TargetError, match='no model "m"; it has a'):
        grpc.client().metadata("m")
    with pytest.raises(TargetError, match=r"gRPC status 14: no \(hidden\) here"):
        Grpc(ModelMetadata=(14, "no sk-1234 here", None)).client().metadata("m")


def test_restricted_statistics_over_grpc():
    grpc = Grpc(ModelStatistics=(14, "This protocol is restricted, expecting header 'triton-grpc-protocol-s'", None))
    with pytest.raises(StatsUnavailable, match="gRPC status 14: This protocol is restricted"):
        grpc.client().statistics()
    with pytest.raises(TargetError, match="this time, it answered with gRPC status 14: no connection"):
        Grpc(ModelStatistics=(14, "no connection", None)).client().statistics()
    with pytest.raises(StatsUnavailable, match="12: unimplemented"):
        Grpc().client().statistics()
    assert Grpc(ModelStatistics=(0, "", {"model_stats": [{"name": "m"}]})).client().statistics() == [{"name": "m"}]


def test_instances_are_counted_over_groups_and_gpus():
    config = {**json.loads(CONFIG), "instance_group": [{"count": 2, "gpus": [0, 1]}, {"count": 3, "kind": "KIND_CPU"}]}
    config["input"][0]["optional"] = True
    named = {**METADATA, "name": "numpy_mlp"}
    model = parse_metadata(named, config, "here")
    assert (model.instances, model.inputs[0].optional) == (7, True)


@pytest.mark.parametrize(
    "shape", [[-2], [2**31], ["9" * 5000], [1e400], [1.5], [True], [[4]], "4", 4, [1] * 65, {"a": 1}, [None]]
)
def test_shapes_that_no_tensor_has_are_the_servers_mistake(shape):
    said = {**METADATA, "inputs": [{"name": "IN", "datatype": "FP32", "shape": shape}]}
    with pytest.raises(TargetError, match="the model's metadata cannot be read: ValueError: "):
        parse_metadata(said, None, "here")


@pytest.mark.parametrize(
    "config", [{"max_batch_size": -3}, {"max_batch_size": 1e400}, {"instance_group": [{"count": -1}]}]
)
def test_batches_and_instances_that_no_model_has_are_the_servers_mistake(config):
    with pytest.raises(TargetError, match="the model's metadata cannot be read"):
        parse_metadata(METADATA, config, "here")
