"""Targets: addresses, headers, secrets, and the engine's TargetSpec."""

import json
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.base.errors import UsageError
from gpusize.base.secrets import HIDDEN, is_secret, parse_header, public_value
from gpusize.base.urls import parse_url
from gpusize.targets.server import Target

SECRET = "sk-very-secret-0123456789"


@pytest.mark.parametrize(
    "url,tls,host,port,path",
    [
        ("http://h/x", False, "h", 80, "/x"),
        ("HTTPS://H.example/x?a=1&b=%20c", True, "h.example", 443, "/x?a=1&b=%20c"),
        ("http://127.0.0.1:8000", False, "127.0.0.1", 8000, ""),
        ("http://[fe80::1%eth0]/x", False, "fe80::1%eth0", 80, "/x"),
        ("http://[::1]:8000/v1", False, "::1", 8000, "/v1"),
        ("https://bücher.example/ü", True, "xn--bcher-kva.example", 443, "/%C3%BC"),
        ("  http://my_host-1:65535/a;b ", False, "my_host-1", 65535, "/a;b"),
    ],
)
def test_addresses(url, tls, host, port, path):
    address = parse_url(url)
    assert (address.tls, address.host, address.port, address.path) == (tls, host, port, path)
    assert parse_url(address.url()) == address


@pytest.mark.parametrize(
    "url,what",
    [
        ("localhost:8000/v1", "no scheme"),
        ("", "no scheme"),
        ("ftp://h/", "not a scheme that gpusize speaks"),
        ("http:///x", "no host"),
        ("http://:80/x", "no host"),
        ("http://h:0/", "port 0"),
        ("http://h:65536/", "[Pp]ort"),
        ("http://h:x/", "[Pp]ort"),
        ("http://h/#top", "fragment"),
        ("http://h/a b", "blank"),
        ("http://h/a\r\nX: y", "control character"),
        ("http://999.1.1.1/", "999"),
        ("http://a..ü/", "not a host name"),
        ("http://²/", "not a host name"),
        ("http://-h/", "not a host name"),
        ("http://a..b/", "not a host name"),
        ("http://[::1/", "IPv6"),
        ("http://[zz]/", "zz"),
        ("http://" + "a" * 64 + "/", "not a host name"),
    ],
)
def test_no_addresses(url, what):
    with pytest.raises(UsageError, match=what) as caught:
        parse_url(url)
    assert caught.value.todo


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_a_usage_error(text):
    for url in (text, f"http://{text}"):
        try:
            address = parse_url(url)
        except UsageError:
            continue
        assert parse_url(address.url()) == address
        assert address.url().isascii()


@pytest.mark.parametrize("url", [f"http://user:{SECRET}@h/x", f"http://h/x?api_key={SECRET}", f"https://{SECRET}@h"])
def test_secrets_in_addresses_are_refused_and_not_shown(url):
    with pytest.raises(UsageError) as caught:
        Target(url)
    assert SECRET not in str(caught.value)
    assert "env:VARIABLE" in str(caught.value)


@pytest.mark.parametrize(
    "url,api,full,resolved",
    [
        ("http://h", None, "http://h/v1/chat/completions", "openai-chat"),
        ("http://h/v1/", None, "http://h/v1/chat/completions", "openai-chat"),
        ("http://h/api/v1", None, "http://h/api/v1/chat/completions", "openai-chat"),
        ("https://h/openai/v1/", "openai-embeddings", "https://h/openai/v1/embeddings", "openai-embeddings"),
        ("http://h/api/v1", "nat", "http://h/api/v1", "nat"),
        ("http://h:80/", "openai-completions", "http://h/v1/completions", "openai-completions"),
        ("http://h", "generic", "http://h/", "generic"),
        ("http://h/v1", "generic", "http://h/v1", "generic"),
        ("http://h", "nat", "http://h/generate/full", "nat"),
        ("http://h/generate", None, "http://h/generate", "nat"),
        ("http://h/a/v1/chat/completions", None, "http://h/a/v1/chat/completions", "openai-chat"),
    ],
)
def test_paths_and_apis(url, api, full, resolved):
    target = Target(url, api=api)
    assert (target.url, target.api) == (full, resolved)
    assert Target(target.url, api=target.api) == target


def test_a_dataset_that_names_its_api_keeps_the_path_of_the_gateway_before_it():
    target = Target("http://h/api/v1", replicas=("http://i/api/v1",)).speaking("openai-embeddings")
    assert target.urls == ("http://h/api/v1/embeddings", "http://i/api/v1/embeddings")
    assert Target("http://h").speaking("openai-embeddings").url == "http://h/v1/embeddings"


def test_the_engines_spec():
    target = Target("http://[::1]:8000/v1/chat/completions", model="m", headers={"X-A": "b"}, timeout_s=0.1)
    spec = json.loads(json.dumps(target.to_spec()))
    response = spec.pop("response")
    assert spec == {
        "host": "::1",
        "port": 8000,
        "tls": None,
        "method": "POST",
        "path": "/v1/chat/completions",
        "headers": [
            ["User-Agent", "gpusize"],
            ["Content-Type", "application/json"],
            ["Accept", "text/event-stream, application/json"],
            ["X-A", "b"],
        ],
        "connect_timeout_ns": 5_000_000_000,
        "timeout_ns": 100_000_000,
        "resolve_every_ns": 30_000_000_000,
        "max_header_bytes": 65536,
        "max_body_bytes": 1 << 30,
        "replicas": [],
        "balance": "round_robin",
        "transport": "http1",
        "streams": 1,
        "record_events": False,
    }
    assert response == target.make_api().response()


def test_tls(tmp_path):
    ca = tmp_path / "ca.pem"
    ca.write_text("")
    spec = Target("https://h/x", cacert=str(ca)).to_spec()
    assert spec["tls"] == {"server_name": "h", "ca_file": str(ca), "insecure": False}
    insecure = Target("https://h/x", insecure=True)
    assert insecure.to_spec()["tls"] == {"server_name": "h", "ca_file": None, "insecure": True}
    assert insecure.notes() == ["h: the server's certificate is not checked"]
    assert [Target(url).tls_verified for url in ("https://h", "http://h")] == [True, None]
    assert [each["tls_verified"] for each in insecure.public()] == [False]
    for kwargs in ({"insecure": True}, {"cacert": str(ca)}):
        with pytest.raises(UsageError, match="not checked for http"):
            Target("http://h", **kwargs)
    with pytest.raises(UsageError, match="contradict"):
        Target("https://h", insecure=True, cacert=str(ca))
    with pytest.raises(UsageError, match="no such file"):
        Target("https://h", cacert=str(tmp_path / "none"))
    with pytest.raises(UsageError, match="no such file"):
        Target("https://h", cacert="\0")


def shown_everywhere(target):
    return " ".join(
        [repr(target), str(target), json.dumps(target.public()), json.dumps(target.options()), *target.notes()]
    )


def test_secrets_come_from_the_environment_or_a_file_and_stay_there(monkeypatch, tmp_path):
    monkeypatch.setenv("MY_KEY", SECRET)
    (tmp_path / "key").write_text(f"{SECRET}\n")
    literal = Target("http://h", headers={"Authorization": f"Bearer {SECRET}"})
    for target in (
        Target("http://h", api_key_env="MY_KEY"),
        Target("http://h", headers={"Authorization": "Bearer env:MY_KEY"}),
        Target("http://h", headers={"authorization": f"Bearer file:{tmp_path}/key"}),
        literal,
    ):
        sent = {name.lower(): value for name, value in target.to_spec()["headers"]}
        assert sent["authorization"] == f"Bearer {SECRET}"
        assert SECRET not in shown_everywhere(target)
    assert literal.options()["headers"] == {"Authorization": HIDDEN}
    with pytest.raises(UsageError, match="was not kept"):
        Target("http://h", headers={"Authorization": HIDDEN}).to_spec()


def test_a_users_header_replaces_the_apis():
    headers = Target("http://h", headers={"accept": "x/y"}).to_spec()["headers"]
    assert [value for name, value in headers if name.lower() == "accept"] == ["x/y"]


@pytest.mark.parametrize(
    "headers,what",
    [
        ({"X": "a\r\nY: b"}, "one line of text"),
        ({"X": "a\x00"}, "one line of text"),
        ({"X y": "a"}, "not a header name"),
        ({"": "a"}, "not a header name"),
        ({"Host": "a"}, "is set for every request already"),
        ({"Content-length": "1"}, "is set for every request already"),
        ({"X": "a", "x": "b"}, "given twice"),
        ({"X": 3}, "one line of text"),
    ],
)
def test_headers_that_cannot_be_sent(headers, what):
    with pytest.raises(UsageError, match=what):
        Target("http://h", headers=headers)


def test_references_that_lead_nowhere(monkeypatch, tmp_path):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    monkeypatch.setenv("EMPTY_KEY", "")
    monkeypatch.setenv("BROKEN_KEY", f"{SECRET}\r\nX: y")
    monkeypatch.setenv("WIDE_KEY", f"{SECRET}ü")
    for name, what in (
        ("NO_SUCH_KEY", "NO_SUCH_KEY is not set"),
        ("EMPTY_KEY", "EMPTY_KEY is empty"),
        ("BROKEN_KEY", "line break"),
        ("WIDE_KEY", "beyond ASCII"),
    ):
        with pytest.raises(UsageError, match=what) as caught:
            Target("http://h", api_key_env=name).to_spec()
        assert SECRET not in str(caught.value)
    with pytest.raises(UsageError, match="no such file"):
        Target("http://h", headers={"X-Token": f"file:{tmp_path}/none"}).to_spec()


def test_a_secret_in_the_place_of_a_variables_name_is_not_shown():
    for kwargs in ({"api_key_env": SECRET}, {"headers": {"Authorization": f"env:{SECRET}"}}):
        with pytest.raises(UsageError, match="not the name of an environment variable") as caught:
            Target("http://h", **kwargs)
        assert SECRET not in str(caught.value)


def test_a_key_over_plain_http_is_noted():
    assert Target("http://far.example", api_key_env="K").notes() == [
        "far.example: a secret is sent unencrypted: the address is http://"
    ]
    assert not Target("http://127.0.0.1", api_key_env="K").notes()
    assert not Target("https://far.example", api_key_env="K").notes()
    with pytest.raises(UsageError, match="both given"):
        Target("http://h", api_key_env="K", headers={"Authorization": "env:K"})


def test_headers_from_the_command_line():
    assert parse_header("X-Trace:  on ") == ("X-Trace", "on")
    assert parse_header("Authorization: Bearer env:TOKEN") == ("Authorization", "Bearer env:TOKEN")
    assert parse_header("x-api-key: file:/run/key") == ("x-api-key", "file:/run/key")
    with pytest.raises(UsageError, match="written out") as caught:
        parse_header(f"Authorization: Bearer {SECRET}")
    assert SECRET not in str(caught.value)
    for bad in ("X-Trace", "no name: x", "Connection: close"):
        with pytest.raises(UsageError):
            parse_header(bad)


def test_what_counts_as_a_secret():
    assert all(map(is_secret, ["Authorization", "X-Api-Key", "cookie", "X-Auth-Token"]))
    assert not any(map(is_secret, ["Accept", "X-Request-Id", "X-Trace"]))
    assert public_value("X-Trace", "on") == "on"


@pytest.mark.parametrize(
    "kwargs",
    [
        {"gpus": 0},
        {"gpus": -1},
        {"gpus": 1.5},
        {"gpus": True},
        {"max_tokens": 0},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"connect_timeout_s": -1},
        {"resolve_every_s": -1},
        {"resolve_every_s": True},
        {"temperature": -0.1},
        {"method": "CONNECT"},
        {"method": "P OST"},
        {"api": "none"},
    ],
)
def test_targets_that_cannot_be_meant(kwargs):
    with pytest.raises(UsageError) as caught:
        Target("http://h", **kwargs)
    assert caught.value.exit_code == 2


def test_a_target_is_nice_to_look_at():
    assert repr(Target("http://h/predict", gpus=8)) == "Target('http://h/predict', api='generic', gpus=8)"


def test_replicas_share_path_and_gpus():
    target = Target(
        "http://a:1/v1",
        replicas=["http://b:2", "http://c:3/v1/"],
        gpus=6,
        balance="least_outstanding",
        http2=True,
        streams=4,
    )
    assert target.urls == tuple(f"http://{host}/v1/chat/completions" for host in ("a:1", "b:2", "c:3"))
    assert [(each["url"], each["gpus"]) for each in target.public()] == [(url, 2) for url in target.urls]
    assert [each["gpus"] for each in replace(target, gpus=4).public()] == [4, 0, 0]
    spec = target.to_spec()
    assert [(each["host"], each["port"]) for each in spec["replicas"]] == [("b", 2), ("c", 3)]
    assert (spec["balance"], spec["streams"]) == ("least_outstanding", 4)
    assert target.options()["url"] == list(target.urls)
    assert target.notes() == []
    assert "named more than once" in Target("http://a:1/v1", replicas=["http://a:1"]).notes()[0]


@pytest.mark.parametrize("other, what", [("https://b:2", "TLS"), ("http://b:2/other", "the same path")])
def test_replicas_that_are_not_of_one_service_are_refused(other, what):
    with pytest.raises(UsageError, match=what):
        Target("http://a:1/v1", replicas=[other])


def test_unusual_ways_are_in_the_options_and_words_are_checked():
    target = Target("http://a:1/v1", http2=True, record_events=True, output_length="exact")
    assert {name: target.options()[name] for name in ("http2", "record_events", "output_length")} == {
        "http2": True,
        "record_events": True,
        "output_length": "exact",
    }
    assert target.to_spec()["transport"] == "http2"
    for wrong in ({"balance": "random"}, {"output_length": "about"}, {"streams": 0}, {"streams": 2}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            Target("http://a:1/v1", **cast("Any", {"http2": "streams" not in wrong, **wrong}))


def test_several_models_are_asked_for_by_their_rows():
    target = Target("http://a:1/v1", model="a=3,b=1")
    assert target.models == {"a": 3, "b": 1}
    assert target.options()["model"] == "a=3,b=1"
    asked = target.api_options()
    assert (asked.model, asked.row_models) == (None, True)
    one = Target("http://a:1/v1", model="m").api_options()
    assert (one.model, one.row_models) == ("m", False)
    assert Target("http://a:1/v2", api="kserve", model="a=3,b=1").api_options().model == "a=3,b=1"
    with pytest.raises(UsageError, match="a=3,b=1"):
        Target("http://a:1/v1", model="a=,b")


@pytest.mark.parametrize(
    "url, kwargs, spoken",
    [
        ("http://a:1/v1", {}, "/v1/completions"),
        ("http://a:1", {}, "/v1/completions"),
        ("http://a:1/mine", {}, "/mine"),
        ("http://a:1/v1/chat/completions", {}, None),
        ("http://a:1/v1", {"api": "openai-chat"}, None),
    ],
)
def test_a_dataset_decides_on_the_api_where_nothing_else_does(url, kwargs, spoken):
    target = Target(url, replicas=["http://b:2"], **kwargs)
    found = target.speaking("openai-completions")
    if spoken is None:
        assert found is target
    else:
        assert (found.api, found.urls) == ("openai-completions", (f"http://a:1{spoken}", f"http://b:2{spoken}"))
    assert target.speaking(None) is target
