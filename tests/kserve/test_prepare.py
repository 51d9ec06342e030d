"""From a target to what can be sent: models asked for, paths, mixes."""

import json
import struct
from dataclasses import replace

import pytest

from gpusize.base.errors import TargetError, UsageError
from gpusize.targets.apis import encode_rows
from gpusize.targets.apis.kserve import is_kserve
from gpusize.targets.kserve.metadata import TensorSpec
from gpusize.targets.kserve.prepare import prepare_kserve, split_path
from gpusize.targets.kserve.responses import StatsUnavailable
from gpusize.targets.server import Target
from tests.kserve.models import model

MODELS = {
    "a": model(TensorSpec("IN", "FP32", (-1, 4)), name="a", max_batch_size=8),
    "b": model(TensorSpec("IN", "FP32", (-1, 4)), TensorSpec("B", "INT8", (-1, -1)), name="b", max_batch_size=8),
}


class Server:
    where = "http://h"

    def __init__(self, *names):
        self.names = names
        self.asked = []

    def metadata(self, name, version=None):
        self.asked.append((name, version))
        if name not in MODELS:
            raise TargetError("unknown", self.where, None)
        return replace(MODELS[name], version=version)

    def models(self):
        return list(self.names)

    def statistics(self):
        raise StatsUnavailable("none")


@pytest.mark.parametrize(
    "path,prefix,name,version",
    [
        ("", "", None, None),
        ("/", "", None, None),
        ("/v2", "", None, None),
        ("/triton/", "/triton", None, None),
        ("/triton/v2", "/triton", None, None),
        ("/v2/models/m/infer", "", "m", None),
        ("/x/v2/models/a%20b/versions/3/infer", "/x", "a b", "3"),
        ("/v2/models/m", "", "m", None),
        ("/inference.GRPCInferenceService/ModelInfer", "", None, None),
    ],
)
def test_paths(path, prefix, name, version):
    assert split_path(path) == (prefix, name, version)


def test_one_model(tmp_path):
    path = tmp_path / "in.json"
    path.write_text('{"data": [{"IN": [1, 2, 3, 4]}]}')
    ready = prepare_kserve(Target("http://h:8000", api="kserve", model="a"), [str(path)], batch=2, client=Server())
    assert ready.target.url == "http://h:8000/v2/models/a/infer"
    assert (ready.inferences_per_request, ready.models) == (2.0, (MODELS["a"],))
    [[head, raw]] = encode_rows(ready.api, ready.dataset)
    assert raw == struct.pack("<4f", 1, 2, 3, 4) * 2
    spec = ready.target.to_spec(ready.api)
    assert ["Inference-Header-Content-Length", str(len(head))] in spec["headers"]
    assert spec["path"] == "/v2/models/a/infer"
    assert not hasattr(ready.api, "mix")
    assert ready.options([str(path)], [], 2) == {"input": [str(path)], "batch": 2}


def test_the_model_of_the_path_and_the_only_one():
    server = Server("a")
    ready = prepare_kserve(Target("http://h/x/v2/models/a/versions/7/infer"), ["random:1"], client=server)
    assert (ready.target.url, server.asked) == ("http://h/x/v2/models/a/versions/7/infer", [("a", "7")])
    ready = prepare_kserve(Target("http://h", api="kserve-json"), ["random:1"], client=server)
    assert ready.target.url == "http://h/v2/models/a/infer"
    with pytest.raises(UsageError, match="The server has a, b"):
        prepare_kserve(Target("http://h", api="kserve"), ["random:1"], client=Server("a", "b"))
    with pytest.raises(UsageError, match="no model is named"):
        prepare_kserve(Target("http://h", api="kserve"), ["random:1"], client=Server())


def test_a_mix_of_models():
    target = Target("http://h/p", api="kserve", model="a=3,b=1")
    ready = prepare_kserve(target, ["random:2"], shapes=["B:3"], batch=2, seed=1, client=Server())
    assert [row.fields["model"] for row in ready.dataset] == ["a", "a", "b", "a"]
    assert ready.target.url == "http://h/p/v2/models/a/infer"
    mix = ready.api.mix(ready.dataset)  # type: ignore[attr-defined]
    assert mix["of_row"] == [0, 0, 1, 0]
    paths = [(one["path"], one["model"], len(one["segments"])) for one in mix["requests"]]
    assert paths == [("/p/v2/models/a/infer", 0, 2), ("/p/v2/models/b/infer", 1, 3)]
    base = dict(ready.api.headers())
    assert "Inference-Header-Content-Length" not in base
    for pieces, number in zip(encode_rows(ready.api, ready.dataset), mix["of_row"], strict=True):
        request = mix["requests"][number]
        [[name, length]] = request["headers"]
        assert name == "Inference-Header-Content-Length"
        assert len(pieces) == len(request["segments"])
        assert json.loads(pieces[0][: int(length)])["inputs"][0]["shape"] == [2, 4]
    assert not hasattr(ready.api, "transport")


def test_a_mix_over_grpc_has_one_path(monkeypatch):
    monkeypatch.setattr(
        "gpusize.targets.apis.kserve.KserveGrpc._message_head", lambda self, _: self.model.name.encode()
    )
    ready = prepare_kserve(
        Target("http://h", api="kserve-grpc", model="a,b"), ["zero"], shapes=["B:1"], client=Server()
    )
    mix = ready.api.mix(ready.dataset)  # type: ignore[attr-defined]
    assert {one["path"] for one in mix["requests"]} == {"/inference.GRPCInferenceService/ModelInfer"}
    assert [one["headers"] for one in mix["requests"]] == [[], []]
    assert ready.api.transport == "grpc"  # type: ignore[attr-defined]
    assert [pieces[0][:1] for pieces in encode_rows(ready.api, ready.dataset)] == [b"a", b"b"]


def test_sequences_of_a_mix_stay_apart(tmp_path):
    path = tmp_path / "in.json"
    path.write_text('{"data": [[{"IN": [1, 2, 3, 4]}]]}')
    MODELS["c"] = model(TensorSpec("IN", "FP32", (-1, 4)), name="c", max_batch_size=8)
    ready = prepare_kserve(Target("http://h", api="kserve", model="a,c"), [str(path)], client=Server())
    assert [(row.fields["session"], row.fields["turn"]) for row in ready.dataset] == [("a:1", 0), ("c:1", 0)]
    assert len(ready.dataset.notes) == 1


def test_what_cannot_be_prepared():
    assert [is_kserve(name) for name in ("kserve", "kserve-grpc-stream", "generic", None)] == [True, True, False, False]
    with pytest.raises(UsageError, match="is not a KServe API"):
        prepare_kserve(Target("http://h", api="generic"), ["random"], client=Server())
    with pytest.raises(TargetError):
        prepare_kserve(Target("http://h", api="kserve", model="nosuch"), ["random"], client=Server())
    with pytest.raises(UsageError, match='a has no input "X"'):
        prepare_kserve(Target("http://h", api="kserve", model="a"), ["random"], shapes=["X:1"], client=Server())


def test_of_several_models_a_shape_is_for_those_whose_dimensions_vary():
    class Both(Server):
        def metadata(self, name, version=None):
            size = -1 if name == "varies" else 4
            return replace(MODELS["a"], name=name, inputs=(TensorSpec("X", "FP32", (size,)),), max_batch_size=0)

    target = Target("http://h", api="kserve", model="varies=1,fixed=1")
    ready = prepare_kserve(target, ["random:1"], shapes=["X:2"], client=Both())
    assert [row.fields["tensors"].tensors[0].shape for row in ready.dataset] == [(2,), (4,)]
    with pytest.raises(UsageError, match='varies, fixed: no input "varies:X"'):
        prepare_kserve(target, ["random:1"], shapes=["varies:X:2"], client=Both())
