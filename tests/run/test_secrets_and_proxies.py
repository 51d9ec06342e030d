"""What must not be stored with a run, and what the environment's proxies change: nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpusize
from gpusize.base.errors import ConfigError, UsageError
from gpusize.base.secrets import secret_member
from gpusize.base.urls import is_ok
from gpusize.measure.monitor.metrics_page import PushGateway
from gpusize.measure.monitor.run_counts import RunTally
from gpusize.targets.server import Target
from tests.servers.fixtures import scripted_server
from tests.servers.scripted import Request, Script, ScriptedServer, Send, answer

__all__ = ["scripted_server"]

SECRET = "sk-very-secret-0123456789"
Scripted = Callable[[Script], ScriptedServer]


@pytest.mark.parametrize("name", ["code", "api_key", "subscription-key", "sig", "authorization", "pwd", "jwt"])
def test_keys_in_a_query_are_refused_and_not_shown(name: str) -> None:
    with pytest.raises(UsageError, match="query holds a secret") as caught:
        Target(f"https://h/api/f?{name}={SECRET}")
    assert SECRET not in str(caught.value)
    assert Target("https://h/x?api-version=2024-10-21&country_code_list=de").url.endswith("=de")


@pytest.mark.parametrize(
    "body,where",
    [
        ({"api_key": SECRET}, "/api_key"),
        ({"auth": {"x-api-key": SECRET}}, "/auth/x-api-key"),
        ({"tools": [{"server": {"Authorization": f"Bearer {SECRET}"}}]}, "/tools/server/Authorization"),
        ({"token": SECRET}, "/token"),
        ({"client_secret": SECRET}, "/client_secret"),
    ],
)
def test_keys_in_an_extra_body_are_refused_and_not_shown(body: dict[str, Any], where: str) -> None:
    with pytest.raises(UsageError, match=f"{where} holds a secret") as caught:
        Target("https://h/v1", extra_body=body)
    assert SECRET not in str(caught.value)
    assert "env:VARIABLE" in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        {"max_tokens": 5, "stop_token_ids": [1], "min_tokens": 1, "skip_special_tokens": False},
        {"prompt_cache_key": "conversation-12345", "key": "", "token": 5, "session_id": "abcdef"},
        {"chat_template_kwargs": {"enable_thinking": False}, "guided_json": {"properties": {"secret": {}}}},
    ],
)
def test_members_that_are_no_secrets_are_sent(body: dict[str, Any]) -> None:
    assert secret_member(body) is None
    assert Target("https://h/v1", extra_body=body).options()["extra_body"] == body


@pytest.mark.parametrize(
    "text,where",
    [
        ('{"url": "http://a",\n "url": "http://b"}', ":2:2"),
        ('{"seed": 1, "headers": {"X": "1",\n   "X": "2"}}', ":2:4"),
        ('{"slo": [], "response": [{"at": 1}, {"at": 2}], "load": {"at": 1, "at": 2}}', ""),
    ],
)
def test_a_key_that_is_there_twice_in_a_json_file(tmp_path: Path, text: str, where: str) -> None:
    from gpusize.options.assemble import read_options

    (tmp_path / "c.json").write_text(text)
    with pytest.raises(ConfigError, match="is given twice in one object") as caught:
        read_options(tmp_path / "c.json", {})
    assert caught.value.where == f"{tmp_path / 'c.json'}{where}"


@pytest.fixture
def proxy(scripted_server: Scripted, monkeypatch: pytest.MonkeyPatch) -> ScriptedServer:
    """One that the environment names, and that nobody is to ask."""
    server = scripted_server(lambda _: [Send(answer(b"", status="502 Bad Gateway"))])
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{server.port}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    return server


def test_nothing_goes_through_a_proxy_of_the_environment(
    proxy: ScriptedServer, scripted_server: Scripted, tmp_path: Path
) -> None:
    def script(request: Request) -> list[Send]:
        body = b"" if request.start_line.startswith("PUT") else json.dumps({"text": "hi"}).encode()
        return [Send(answer(body, headers=["Content-Type: application/json"]))]

    server = scripted_server(script)
    url = f"http://127.0.0.1:{server.port}"
    load = gpusize.Load(concurrencies=[1], passes=1)
    gpusize.run(
        Target(f"{url}/x", api="generic"), gpusize.Dataset.from_prompt("x"), load, out=tmp_path, metrics_url="none"
    )
    assert is_ok(f"{url}/ready")
    told: list[str] = []
    PushGateway(RunTally({}, levels=1, workers=1), url, instance="i", every_s=3600, note=told.append).close()
    assert told == []
    starts = [request.start_line.split()[0] for request in server.requests]
    assert starts == ["POST", "POST", "GET", "PUT"]
    assert proxy.requests == []


def test_a_run_says_that_the_proxy_is_not_used(proxy: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    [note] = Target("http://models.example/v1").notes()
    assert note == "HTTP_PROXY is ignored: requests go to models.example directly"
    assert Target("https://models.example/v1").notes()[0].startswith("HTTPS_PROXY is ignored")
    assert Target("http://127.0.0.1:9/v1").notes() == []
    monkeypatch.setenv("NO_PROXY", ".example")
    assert Target("http://models.example/v1").notes() == []
