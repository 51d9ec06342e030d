from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest

from gpusize.base.errors import UsageError
from gpusize.observe.metrics.prometheus_pull import PrometheusServer, wall_from_mono
from gpusize.observe.metrics.reading import SourceFailed

S = 1_000_000_000
WALL = 1_700_000_000 * S


def server(answer, **options) -> PrometheusServer:
    def handle(request: httpx.Request) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer

    return PrometheusServer(options.pop("url", "http://p:9090"), transport=httpx.MockTransport(handle), **options)


def matrix(*series) -> httpx.Response:
    return httpx.Response(200, json={"status": "success", "data": {"resultType": "matrix", "result": list(series)}})


def wall(mono_ns: int) -> int:
    return mono_ns + WALL


def test_series_are_asked_for_as_they_are_stored():
    def handle(request: httpx.Request) -> httpx.Response:
        assert request.method == "POST"
        assert request.url.path == "/prom/api/v1/query"
        asked = {name: value for name, (value,) in parse_qs(request.content.decode()).items()}
        assert asked == {
            "query": '{__name__=~"(?:vllm:|a\\\\.b).*",namespace="prod",pod=~"llm-.*"}[71s]',
            "time": "1700000020.500",
        }
        return matrix(
            {
                "metric": {"__name__": "vllm:x", "b": 'q"', "a": "1"},
                "values": [[1700000019.123, "3"], [1700000020.123, "NaN"]],
            },
            {"metric": {"__name__": "up"}, "values": [[1700000019.5, "1"]]},
            {"metric": {"__name__": "histograms"}, "histograms": []},
        )

    source = server(handle, url="http://p:9090/prom/", keep=r"vllm:|a\.b", match='namespace="prod",pod=~"llm-.*"')
    frame = source.pull(10 * S, round(20.5 * S), wall)
    assert frame.columns == ["t_ns", "source", "metric", "labels", "value"]
    assert frame.select("t_ns", "metric", "labels").rows() == [
        (19_123_000_000, "vllm:x", 'a="1",b="q\\""'),
        (19_500_000_000, "up", ""),
        (20_123_000_000, "vllm:x", 'a="1",b="q\\""'),
    ]
    assert frame["value"].to_list()[:2] == [3, 1]
    assert frame["value"].is_nan().to_list() == [False, False, True]
    assert frame["source"].unique().to_list() == ["prometheus http://p:9090/prom"]


def test_nothing_stored_is_an_empty_frame():
    assert server(matrix()).pull(0, S, wall).height == 0


@pytest.mark.parametrize(
    "answer, reason",
    [
        (httpx.ConnectError("refused"), "refused"),
        (httpx.Response(404, text="<html>"), "status 404"),
        (httpx.Response(400, json={"status": "error", "error": "bad\x1b query"}), "status 400: bad.* query"),
        (httpx.Response(200, json={"status": "success", "data": {"resultType": "vector", "result": []}}), "else"),
        (httpx.Response(200, json=[1]), "status 200"),
        (matrix({"metric": {"__name__": "a"}, "values": [[1, "one"]]}), "not numbers"),
        (matrix({"metric": {"__name__": "a"}, "values": [[None, "1"]]}), "not numbers"),
        (matrix({"values": [[1, "1"]]}), "something else"),
        (matrix(7), "something else"),
        (matrix({"metric": [], "values": 7}), "something else"),
    ],
)
def test_answers_that_are_no_series(answer, reason: str):
    with pytest.raises(SourceFailed, match=reason) as caught:
        server(answer).pull(0, S, wall)
    assert "\x1b" not in str(caught.value)


def test_the_check_asks_something_cheap():
    def handle(request: httpx.Request) -> httpx.Response:
        assert parse_qs(request.content.decode()) == {"query": ["vector(1)"]}
        return httpx.Response(200, json={"status": "success", "data": {}})

    server(handle).check()
    with pytest.raises(SourceFailed):
        server(httpx.Response(401, text="who")).check()


def test_a_secret_is_sent_and_never_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PROM_TOKEN", "open-sesame")

    def handle(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == "Bearer open-sesame"
        return httpx.Response(403, json={"status": "error", "error": "open-sesame is not welcome"})

    source = server(handle, headers={"Authorization": "Bearer env:PROM_TOKEN"})
    with pytest.raises(SourceFailed, match="status 403") as caught:
        source.check()
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("match", ["", "namespace", 'a="b"} or {c="d"', 'a="b",', "a=b", 'a="b"\n'])
def test_matchers_that_are_none_are_refused(match: str):
    with pytest.raises(UsageError, match="matchers"):
        server(matrix(), match=match)


def test_wall_time_is_interpolated_between_the_pairs():
    pairs = [(100, WALL + 100, 0), (1_000_100, WALL + 1_000_600, 0)]
    assert wall_from_mono(pairs, 100) == WALL + 100
    assert wall_from_mono(pairs, 500_100) == WALL + 500_350
    assert wall_from_mono(pairs, 5_000_100) == WALL + 5_000_600
    assert wall_from_mono(pairs[:1], 0) == WALL


def test_a_hostile_name_stays_text():
    answer = matrix({"metric": {"__name__": "a", "b": "\x1b[1m"}, "values": [[1700000000, "1"]]})
    frame = server(answer).pull(0, S, wall)
    assert json.loads(json.dumps(frame["labels"][0])) == 'b="\x1b[1m"'
