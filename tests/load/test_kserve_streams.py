"""Streams against a KServe server: the parameter that tells the priority, and rows of the stream's model."""

import json
from typing import cast

import pytest

from gpusize.api.run import run
from gpusize.base.errors import UsageError
from gpusize.measure.mix import server_priorities, streamed
from gpusize.targets.apis import encode_rows
from gpusize.targets.kserve.client import KserveClient
from gpusize.targets.kserve.metadata import TensorSpec
from gpusize.targets.kserve.prepare import prepare_kserve
from gpusize.targets.server import Target
from gpusize.targets.simulated.cluster import SimulatedCluster
from gpusize.workload.load import Load, Stream
from tests.kserve.models import model


class Server:
    where = "http://h"

    def metadata(self, name, version=None):
        return model(TensorSpec("IN", "FP32", (-1, 4)), name=name, max_batch_size=8)


def prepared(load, models="a"):
    target = Target("http://h", api="kserve", model=models)
    client = cast(KserveClient, Server())
    return prepare_kserve(target, ["random:2"], client=client, priorities=server_priorities(load))


def test_every_head_has_the_announced_length():
    streams = [
        Stream(rate=1, priority=5),
        Stream(rate=1, priority=1),
        Stream(rate=1),
        Stream(rate=1, server_priority=900),
    ]
    load = Load(streams=streams, duration_s=5)
    ready = prepared(load)
    target, rows, planned = streamed(ready.target, ready.dataset, load)
    assert target == ready.target
    assert [stream.rows for stream in planned.streams] == [(0, 2), (2, 2), (4, 2), (6, 2)]
    heads = [pieces[0] for pieces in encode_rows(ready.api, rows)]
    length = int(dict(ready.api.headers())["Inference-Header-Content-Length"])
    assert {len(head) for head in heads} == {length}
    told = [json.loads(head).get("parameters", {}).get("priority") for head in heads]
    # Triton's highest priority is 1.
    assert told == [1, 1, 2, 2, None, None, 900, 900]


def test_a_stream_sends_the_rows_of_its_model():
    load = Load(streams=[Stream(rate=1, model="b"), Stream(rate=1, model="a", priority=1)], duration_s=5)
    ready = prepared(load, "a=2,b=1")
    _, rows, planned = streamed(ready.target, ready.dataset, load)
    part = planned.streams[0].rows
    assert part is not None
    first, count = part
    assert {row["model"] for row in rows.rows[first : first + count]} == {"b"}
    assert {row["model"] for row in rows.rows[count:]} == {"a"}
    with pytest.raises(UsageError, match='no tensors were made for model "c"'):
        streamed(ready.target, ready.dataset, Load(streams=[Stream(rate=1, model="c")], duration_s=1))


def test_streams_from_python_are_answered_whatever_number_the_server_is_told(tmp_path):
    streams = [Stream(rate=40, priority=5), Stream(rate=40), Stream(rate=40, server_priority=900)]
    load = Load(streams=streams, duration_s=0.3)
    with SimulatedCluster({"gpus": 1}) as cluster:
        target = Target(cluster.url, api="kserve", model="double")
        result = run(target, "random:2", load, shapes=["INPUT:4"], out=tmp_path)
    [level] = result.levels
    assert level.meta["outcomes"]["ok"] == level.meta["rows"] > 0
