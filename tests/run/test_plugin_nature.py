"""An API of another package that says what it is gets what ours of that kind get."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import gpusize
from gpusize.base.errors import UsageError
from gpusize.estimate.search.terms import searched
from gpusize.observe.metrics import default_metrics_urls
from gpusize.records.run_json import nature_of
from gpusize.targets.apis.base import ApiOptions, ResponseSpec, encode_json
from gpusize.workload.dataset import Row
from tests.servers.scripted import Request, Script, ScriptedServer, Send, Step, answer

SLO = "p95 llm_latency <= 10s"


class Echo:
    """``{"prompt": …}`` and ``{"text": …}``."""

    name = "echo"
    default_path = "/echo"

    def __init__(self, options: ApiOptions) -> None:
        self._options = options

    def segments(self) -> list[dict[str, Any]]:
        return [{"static": '{"prompt":'}, {"field": 0}, {"static": "}"}]

    def fields(self, row: Row) -> list[bytes]:
        return [encode_json(row.value)]

    def response(self) -> dict[str, Any]:
        return ResponseSpec(content=("/text",)).to_dict()

    def headers(self) -> list[tuple[str, str]]:
        return [("Content-Type", self._options.content_type)]


class EchoModel(Echo):
    """The same, of a server that is a language model."""

    nature = "language_model"


class EchoTensors(Echo):
    """The same, of an inference server that shares connections."""

    nature = "inference"
    transport = "http2"


Offer = Callable[[type[Echo]], None]


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Offer:
    def offered(kind: type[Echo]) -> None:
        point = importlib.metadata.EntryPoint("echo", f"{__name__}:{kind.__name__}", "gpusize.apis")
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point] * (group == "gpusize.apis"))
        monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda _: kind)

    return offered


def echoed(request: Request) -> Sequence[Step]:
    text = json.loads(request.body)["prompt"]
    return [Send(answer(json.dumps({"text": text}).encode(), headers=["Content-Type: application/json"]))]


def measured(server: ScriptedServer, out: Path) -> gpusize.Result:
    target = gpusize.Target(f"http://127.0.0.1:{server.port}", api="echo")
    load = gpusize.Load(concurrencies=(2,), count=20)
    rows = gpusize.Dataset.from_prompt("x")
    return gpusize.run(target, rows, load, slos=SLO, out=out, metrics_url="none", gpu_sample=False)


def test_a_language_model_of_a_plugin_has_llm_latency(
    offer: Offer,
    scripted_server: Callable[[Script], ScriptedServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offer(EchoModel)
    path = measured(scripted_server(echoed), tmp_path).path
    # Whoever opens the run later need not have the plugin: the run says what it was.
    monkeypatch.undo()
    [level] = gpusize.open_run(path).levels
    assert level.quantile("llm_latency", 0.95) == level.quantile("service", 0.95) > 0
    share, judged = level.attainment(gpusize.Slo.parse(SLO))
    assert (share, judged) == (1.0, 20)


def test_a_plugin_that_declares_nothing_has_none(
    offer: Offer, scripted_server: Callable[[Script], ScriptedServer], tmp_path: Path
) -> None:
    offer(Echo)
    result = measured(scripted_server(echoed), tmp_path)
    [level] = result.levels
    assert result.meta["targets"][0]["nature"] is None
    assert level.attainment(gpusize.Slo.parse(SLO))[1] == 0


def test_the_llm_latency_of_a_plugin_can_be_searched_for(offer: Offer) -> None:
    slos = [gpusize.Slo.parse(SLO)]
    for kind, found in ((EchoModel, "service"), (Echo, "llm_latency")):
        offer(kind)
        [each] = gpusize.Target("http://h", api="echo").public()
        assert [slo.metric for slo in searched(slos, [nature_of(each)])] == [found]


def test_an_inference_server_of_a_plugin_shares_connections_and_has_tritons_page(offer: Offer) -> None:
    offer(EchoTensors)
    target = gpusize.Target("http://h:8000", api="echo", streams=4)
    assert default_metrics_urls(target.public()) == ["http://h:8000/metrics", "http://h:8002/metrics"]
    offer(Echo)
    with pytest.raises(UsageError, match=r"HTTP/1\.1 carries one request at a time"):
        gpusize.Target("http://h:8000", api="echo", streams=4)


@pytest.mark.parametrize(
    "api, nature",
    [
        ("openai-chat", "language_model"),
        ("openai-embeddings", "language_model"),
        ("nat-chat", None),
        ("nat", None),
        ("generic", None),
        ("kserve", "inference"),
        ("kserve-grpc-stream", "inference"),
    ],
)
def test_runs_that_do_not_say_it_yet_are_told_by_the_name(api: str, nature: str | None) -> None:
    [each] = gpusize.Target("http://h/x", api=api, model="m").public()
    assert each["nature"] == nature == nature_of({"api": api})
