"""Ways to sign in: tokens, files, certificates, commands, the account of a pod; and kubeconfigs that are wrong."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from gpusize.base.errors import ConfigError, TargetError, UsageError
from gpusize.cluster.access.api import Answer, connect
from gpusize.cluster.access.sign_in import find_access
from tests.cluster.api_double import ApiDouble
from tests.servers.tls import OPENSSL, Certificates, make_certificates, sign

HAS_OPENSSL = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")


def ask(config: str | None, path: str = "/version", times: int = 1, context: str | None = None) -> list[int]:
    """Statuses of requests over one connection."""

    async def run() -> list[int]:
        async with connect(config, context) as api:
            return [(await api.ask("GET", path)).status for _ in range(times)]

    return asyncio.run(run())


def command(folder: Path, *answers: dict[str, Any]) -> dict[str, Any]:
    """A credentials command that gives these answers, one each time, the last one again; it counts its calls."""
    program = folder / "credentials"
    said = [{"kind": "ExecCredential", "status": answer} for answer in answers]
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, os, pathlib, sys\n"
        f"calls = pathlib.Path({str(folder / 'calls')!r})\n"
        "number = len(calls.read_text().splitlines()) if calls.exists() else 0\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "with calls.open('a') as file: file.write(json.dumps([info, os.environ.get('WHO'), sys.argv[1:]]) + '\\n')\n"
        f"answers = {said!r}\n"
        "answer = answers[min(number, len(answers) - 1)]\n"
        "print(json.dumps({'apiVersion': info['apiVersion'], **answer}))\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"command": "./credentials", "args": ["get"], "env": [{"name": "WHO", "value": "me"}]}


def calls(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


def test_a_token_is_sent(tmp_path: Path) -> None:
    with ApiDouble(token=lambda: "t1") as double:
        assert ask(double.kubeconfig(tmp_path, token="t1")) == [200]
        assert ask(double.kubeconfig(tmp_path, token="t2")) == [401]
        assert ask(double.kubeconfig(tmp_path)) == [401]


def test_a_token_file_is_read_again_when_its_token_is_refused(tmp_path: Path) -> None:
    good = ["first"]
    (tmp_path / "token").write_text("first\n")

    async def run() -> list[int]:
        # The path counts from the kubeconfig's folder.
        async with connect(double.kubeconfig(tmp_path, tokenFile="token")) as api:
            found = [(await api.ask("GET", "/version")).status]
            good[0] = "second"
            (tmp_path / "token").write_text("second\n")
            return [*found, (await api.ask("GET", "/version")).status]

    with ApiDouble(token=lambda: good[0]) as double:
        assert asyncio.run(run()) == [200, 200]


def test_a_token_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with ApiDouble() as double, pytest.raises(TargetError, match="token not found"):
        ask(double.kubeconfig(tmp_path, tokenFile="token"))


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_command_hands_out_the_token(tmp_path: Path, version: str) -> None:
    spec = {**command(tmp_path, {"token": "t1"}), "apiVersion": f"client.authentication.k8s.io/{version}"}
    with ApiDouble(token=lambda: "t1") as double:
        assert ask(double.kubeconfig(tmp_path, exec=spec), times=3) == [200] * 3
    # Asked once: what it said holds until it expires.
    ((info, who, args),) = calls(tmp_path)
    assert (info["apiVersion"], who, args) == (f"client.authentication.k8s.io/{version}", "me", ["get"])
    assert info["spec"]["interactive"] is False


def test_a_command_is_asked_again_when_its_token_has_expired_or_is_refused(tmp_path: Path) -> None:
    answers = (
        {"token": "t1", "expirationTimestamp": "2001-01-01T00:00:00Z"},
        {"token": "t2", "expirationTimestamp": "2999-01-01T00:00:00Z"},
        {"token": "t3"},
    )
    good = ["t2"]

    async def run() -> list[int]:
        spec = {**command(tmp_path, *answers), "apiVersion": "client.authentication.k8s.io/v1"}
        async with connect(double.kubeconfig(tmp_path, exec=spec)) as api:
            found = [(await api.ask("GET", "/version")).status for _ in range(2)]
            good[0] = "t3"
            together = await asyncio.gather(*(api.ask("GET", "/version") for _ in range(5)))
            return [*found, *(each.status for each in together)]

    with ApiDouble(token=lambda: good[0]) as double:
        assert asyncio.run(run()) == [200] * 7
    assert len(calls(tmp_path)) == 3


@pytest.mark.parametrize(
    "script, says",
    [
        ("echo broken >&2; exit 3", "it ended with 3: broken"),
        ("echo no json", "it gave no credentials"),
        ("echo '{}'", "it gave no credentials"),
        ("echo '{\"status\": 5}'", "status is no object"),
    ],
)
def test_a_command_that_fails_is_told_with_its_words(tmp_path: Path, script: str, says: str) -> None:
    program = tmp_path / "credentials"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    spec = {"command": "./credentials", "apiVersion": "client.authentication.k8s.io/v1"}
    with ApiDouble() as double, pytest.raises(TargetError, match=says):
        ask(double.kubeconfig(tmp_path, exec=spec))


def test_a_command_of_an_unknown_version_is_refused(tmp_path: Path) -> None:
    spec = {"command": "true", "apiVersion": "client.authentication.k8s.io/v9"}
    with ApiDouble() as double, pytest.raises(ConfigError, match="v9 is not known"):
        ask(double.kubeconfig(tmp_path, exec=spec))


def server_tls(folder: Path, *, clients: bool = False) -> ssl.SSLContext:
    made = make_certificates(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(made.ca)
    return context


def with_cluster(config: str, **cluster: Any) -> str:
    content = json.loads(Path(config).read_text())
    content["clusters"][0]["cluster"].update(cluster)
    Path(config).write_text(json.dumps(content))
    return config


@HAS_OPENSSL
def test_the_servers_certificate_is_checked_unless_told_otherwise(tmp_path: Path) -> None:
    with ApiDouble(tls=server_tls(tmp_path)) as double:
        with pytest.raises(TargetError, match="certificate"):
            ask(double.kubeconfig(tmp_path))
        assert ask(with_cluster(double.kubeconfig(tmp_path), **{"certificate-authority": "ca.pem"})) == [200]
        data = base64.b64encode((tmp_path / "ca.pem").read_bytes()).decode()
        assert ask(with_cluster(double.kubeconfig(tmp_path), **{"certificate-authority-data": data})) == [200]
        assert ask(with_cluster(double.kubeconfig(tmp_path), **{"insecure-skip-tls-verify": True})) == [200]


@HAS_OPENSSL
@pytest.mark.parametrize("inline", [False, True])
def test_a_client_certificate_is_shown(tmp_path: Path, inline: bool) -> None:
    with ApiDouble(tls=server_tls(tmp_path, clients=True)) as double:
        pair = sign(Certificates(tmp_path / "ca.pem", tmp_path / "server.pem", tmp_path / "server.key"), "me")
        authority = {"certificate-authority": str(tmp_path / "ca.pem")}
        names = ("client-certificate", "client-key")
        user = {name: str(file) for name, file in zip(names, pair, strict=True)}
        if inline:
            user = {f"{n}-data": base64.b64encode(f.read_bytes()).decode() for n, f in zip(names, pair, strict=True)}
        assert ask(with_cluster(double.kubeconfig(tmp_path, **user), **authority)) == [200]
        with pytest.raises(TargetError):
            ask(with_cluster(double.kubeconfig(tmp_path), **authority))


@HAS_OPENSSL
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_command_hands_out_a_certificate(tmp_path: Path, version: str) -> None:
    with ApiDouble(tls=server_tls(tmp_path, clients=True)) as double:
        certificate, key = sign(
            Certificates(tmp_path / "ca.pem", tmp_path / "server.pem", tmp_path / "server.key"), "me"
        )
        status = {"clientCertificateData": certificate.read_text(), "clientKeyData": key.read_text()}
        spec = {**command(tmp_path, status), "apiVersion": f"client.authentication.k8s.io/{version}"}
        config = with_cluster(double.kubeconfig(tmp_path, exec=spec), **{"certificate-authority": "ca.pem"})
        assert ask(config, times=2) == [200, 200]
    assert len(calls(tmp_path)) == 1


@HAS_OPENSSL
def test_a_pod_has_an_account_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lightkube.config import kubeconfig as theirs

    with ApiDouble(tls=server_tls(tmp_path), token=lambda: "account") as double:
        (tmp_path / "ca.crt").write_bytes((tmp_path / "ca.pem").read_bytes())
        (tmp_path / "token").write_text("account")
        (tmp_path / "namespace").write_text("team-a")
        host, _, port = double.url.removeprefix("https://").partition(":")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
        original = theirs.KubeConfig.from_service_account.__func__  # type: ignore[attr-defined]
        mine = classmethod(lambda cls, service_account=None: original(cls, service_account=tmp_path))
        monkeypatch.setattr(theirs.KubeConfig, "from_service_account", mine)
        access = find_access()
        assert (access.server, access.namespace) == (double.url, "team-a")
        assert ask(None) == [200]


@pytest.mark.parametrize(
    "content, says",
    [
        ("", "this is no kubeconfig"),
        ("[]", "this is no kubeconfig"),
        ("a: [", "this is no kubeconfig"),
        ('{"clusters": [], "contexts": []}', "No current context|no current context"),
        ('{"clusters": [], "contexts": [], "current-context": "x"}', "Context 'x' not found"),
        (
            '{"clusters": [], "contexts": [{"name": "x", "context": {"cluster": "c"}}], "current-context": "x"}',
            "the context cannot be used: 'c'",
        ),
        (
            (
                '{"clusters": [{"name": "c", "cluster": {"server": "https://h", "certificate-authority": "none.pem"}}],'
                ' "contexts": [{"name": "x", "context": {"cluster": "c"}}], "current-context": "x"}'
            ),
            "the credentials of context x cannot be used",
        ),
    ],
)
def test_a_kubeconfig_that_is_wrong_is_named(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "config"
    file.write_text(content)
    with pytest.raises(ConfigError, match=says) as refused:
        find_access(str(file))
    assert str(file) in str(refused.value)


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="not found"):
        find_access(str(tmp_path / "none"))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/b")
    with pytest.raises(ConfigError, match="names several files"):
        find_access()


def test_a_context_that_there_is_not_names_those_that_there_are(tmp_path: Path) -> None:
    with ApiDouble() as double, pytest.raises(UsageError, match="Use one of: x"):
        find_access(double.kubeconfig(tmp_path), "y")


def test_a_server_that_is_not_there_is_told_with_its_address(tmp_path: Path) -> None:
    with ApiDouble() as double:
        config = double.kubeconfig(tmp_path)
    with pytest.raises(TargetError, match="no answer from the API server"):
        ask(config)


@pytest.mark.parametrize(
    "headers, seconds",
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 0 "}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "٣"}, None),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT", "date": "Thu, 01 Jan 1970 00:01:30 GMT"}, 10.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT", "date": "Thu, 01 Jan 1970 00:02:00 GMT"}, 0.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 0.0),
    ],
)
def test_retry_after_has_two_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert Answer(429, headers, b"").retry_after_s == seconds
