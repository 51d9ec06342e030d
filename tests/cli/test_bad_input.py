"""Bad input gets one clear line and the right exit code, and writes nothing."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Gpusize
from tests.servers.nginx import NGINX, Nginx
from tests.servers.scripted import Script, ScriptedServer, Send, answer
from tests.servers.tls import Certificates

SWEEP = ("--prompt", "x", "--concurrencies", "1", "--passes", "1", "--no-stream")


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port of loopback on which nobody listens: it is bound to the test's end, so that nobody else gets it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def test_unknown_host(gpusize: Gpusize) -> None:
    done = gpusize("run", "--url", "http://no-such-host.invalid/v1", *SWEEP)
    assert done.code == 3
    assert "no-such-host.invalid" in done.complaint
    assert "unknown host" in done.complaint
    assert not Path("runs").exists()


def test_refused_connection(gpusize: Gpusize, free_port: int) -> None:
    done = gpusize("run", "--url", f"http://127.0.0.1:{free_port}/v1", *SWEEP)
    assert done.code == 3
    assert "cannot connect: Connection refused" in done.complaint
    assert not Path("runs").exists()


def test_tls_failure(gpusize: Gpusize, certificates: Certificates, tmp_path: Path) -> None:
    if NGINX is None:
        pytest.skip("nginx is not installed")
    config = f"ssl_certificate {certificates.certificate}; ssl_certificate_key {certificates.key}; return 200;"
    folder = tmp_path / "nginx"
    folder.mkdir()
    with Nginx(folder, config, ssl=True) as server:
        url = f"https://127.0.0.1:{server.port}/x"
        refused = gpusize("run", "--url", url, "--method", "GET", "--concurrencies", "1")
        assert refused.code == 3
        assert "TLS handshake failed" in refused.complaint
        assert "--cacert" in refused.complaint
        assert not Path("runs").exists()
        trusted = gpusize("run", "--url", url, "--method", "GET", "--concurrencies", "1", "--cacert", certificates.ca)
        assert trusted.code == 0, trusted.err


def test_4xx_at_the_first_request_with_the_servers_own_words(
    gpusize: Gpusize, scripted_server: Callable[[Script], ScriptedServer]
) -> None:
    body = b'{"error": {"message": "model \x1b[31mm\x07 is unknown\\nreally"}}'
    server = scripted_server(lambda _request: [Send(answer(body, status="404 Not Found"))])
    done = gpusize("run", "--url", f"http://127.0.0.1:{server.port}/v1", "--model", "m", *SWEEP)
    assert done.code == 3
    assert "status 404" in done.complaint
    assert "is unknown" in done.complaint
    assert "\x1b" not in done.err
    assert "\x07" not in done.err
    assert len(server.requests) == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "name, content, expected",
    [
        ("empty.json", "[]", "empty.json: the dataset is empty"),
        ("empty.jsonl", "", "empty.jsonl: the dataset is empty"),
        ("broken.json", '[\n  {"prompt": "a"},\n  {"prompt" "b"}\n]', "broken.json:3:13: "),
        ("broken.jsonl", '{"prompt": "a"}\n{"prompt": }\n', "broken.jsonl:2:12: "),
    ],
)
def test_datasets(gpusize: Gpusize, url: str, name: str, content: str, expected: str) -> None:
    Path(name).write_text(content)
    done = gpusize("run", "--url", url, "--dataset", name)
    assert done.code == 2
    assert done.complaint.startswith(expected)
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "options, expected",
    [
        (("--concurrencies", "1,0,2"), "0"),
        (("--concurrencies", "1,x"), "x"),
        (("--concurrencies", "1", "--passes", "2", "--count", "5"), "passes"),
        (("--slo", "p95 runtme <= 1s"), "column 5"),
        (("--slo", "p95 runtime <= 1"), "column"),
        (("--users", "0"), "users"),
        (("--users", "-3"), "users"),
        (("--duration", "5 parsecs"), "parsecs"),
        (("--header", "Authorization: Bearer s3cret"), "written out"),
        (("--api", "opnai-chat"), "openai-chat"),
        (("--timeout", "0s"), "timeout"),
        (("--label", "novalue"), "key=value"),
        (("--count", "many"), "--count"),
        (("--nope",), "--nope"),
        (("--append", "--resume", "runs/x"), "runs/x"),
        (("--resume", "absent"), "no run to resume"),
        (("--config", "absent.toml"), "absent.toml"),
        (("--seed", "-1"), "seed"),
        (("--workers", "0"), "--workers: must be at least 1, not 0"),
        (
            ("--sample-records", "2"),
            '--sample-records: "2" is not a share of records. Write it as 1/2: one of 2 is kept',
        ),
        (("--max-connections", "9"), "--max-connections: --max-connections belongs to --overload grow"),
        (("--max-error-rate", "2"), "must be at most 1, not 2"),
        (("--source-address", "x"), '--source-address: "x" is not an IP address'),
        (("--duration", "0"), "--duration: must be positive, not 0 s"),
        (("--drain=-1s",), '--drain: "-1s" is not a duration'),
        (("--arrivals-from", "5 parsecs"), '--arrivals-from: "5 parsecs" is not a duration'),
        (("--rate-scale", "2"), "--rate-scale: --rate-scale belongs to recorded arrivals"),
        (("--stages=1/x@1s",), "--stages, column 3: "),
        (("--think", "often"), "--think, column 1: "),
        (("--priority-header", "a b"), '--priority-header: "a b" is not a header name'),
        (("--pin", "x"), "--pin: "),
        (("--metrics-port", "70000"), "must be at most 65535, not 70000"),
        (
            ("--metrics-address", "::1"),
            "--metrics-address: it sets how metrics are published, and nothing publishes them",
        ),
        (("--push-gateway", "x"), "--push-gateway: "),
        (("--push-gateway", "http://g", "--push-every", "soon"), '--push-every: "soon" is not a duration'),
        (("--plan", ""), "--plan: no file is named"),
    ],
)
def test_options_that_cannot_be_meant(gpusize: Gpusize, url: str, options: tuple[str, ...], expected: str) -> None:
    done = gpusize("run", "--url", url, "--prompt", "x", *options)
    assert done.code == 2
    assert expected in done.complaint
    assert "s3cret" not in done.err
    assert done.out == ""
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "options, expected",
    [
        (("--start-delay", "soon"), '--start-delay: "soon" is not a duration'),
        (
            ("--replicas", "1@0s,3@1s", "--gpus", "2"),
            "--replicas: 3 replicas are wanted, and the simulated cluster has",
        ),
    ],
)
def test_options_of_the_simulated_cluster(gpusize: Gpusize, options: tuple[str, ...], expected: str) -> None:
    done = gpusize("run", *options)
    assert (done.code, done.complaint.startswith(expected)) == (2, True), done.complaint


def test_what_stands_in_a_file_is_named_as_it_stands_there(gpusize: Gpusize, url: str) -> None:
    Path("run.yaml").write_text("rates: 5\ncount: 1\nmax_connections: 9\n", "utf-8")
    done = gpusize("run", "--url", url, "--prompt", "x", "--config", "run.yaml", "--connections", "4")
    assert done.code == 2
    assert done.complaint.startswith("max_connections: max_connections belongs to --overload grow")


def test_nothing_to_send(gpusize: Gpusize, url: str) -> None:
    done = gpusize("run", "--url", url)
    assert done.code == 2
    assert "--dataset" in done.complaint


@pytest.mark.parametrize("out", ["file/runs", "/proc/self/runs"])
def test_an_output_folder_that_cannot_be_made(gpusize: Gpusize, url: str, out: str) -> None:
    Path("file").touch()
    done = gpusize("run", "--url", url, *SWEEP, "--metrics-url", "none", "--out", out)
    assert done.code == 3
    assert done.complaint.startswith(f"{out}")
    assert "Choose another folder" in done.complaint


def test_a_server_that_repeats_the_key_does_not_betray_it(
    gpusize: Gpusize, scripted_server: Callable[[Script], ScriptedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "sk-s3cret")
    body = b'{"error": {"message": "no such key: Bearer sk-s3cret (sk-s3cret)"}}'
    server = scripted_server(lambda _request: [Send(answer(body, status="401 Unauthorized"))])
    url = f"http://127.0.0.1:{server.port}/v1"
    done = gpusize("run", "--url", url, "--model", "m", *SWEEP, "--api-key-env", "KEY")
    assert done.code == 3
    assert "no such key: (hidden) ((hidden))" in done.complaint
    assert "s3cret" not in done.err


@pytest.mark.parametrize("command", ["estimate", "report"])
def test_what_is_no_run(gpusize: Gpusize, command: str) -> None:
    Path("empty").mkdir()
    for path, code, expected in (("absent", 2, "no such folder"), ("empty", 3, "not a run folder")):
        done = gpusize(command, path)
        assert done.code == code
        assert expected in done.complaint


def test_a_bug_is_one_line_unless_debugging(gpusize: Gpusize, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("gpusize.result.open_run", broken)
    done = gpusize("estimate", "x")
    assert done.code == 70
    assert done.complaint == "ZeroDivisionError: boom (a bug in gpusize; --debug shows where)"
    shown = gpusize("estimate", "x", "--debug")
    assert shown.code == 70
    assert shown.err.startswith("Traceback (most recent call last):")
    assert shown.err.endswith(done.err)


def test_ctrl_c_before_anything_was_measured(gpusize: Gpusize, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gpusize.result.open_run", interrupted)
    done = gpusize("estimate", "x")
    assert (done.code, done.out) == (130, "")


def test_help_and_version(gpusize: Gpusize) -> None:
    assert gpusize("--version").out.startswith("gpusize ")
    assert "estimate" in gpusize("--help").out
    for command in ("run", "estimate", "report", "simulate", "import"):
        done = gpusize(command, "--help")
        assert done.code == 0
        assert f"gpusize {command}" in done.out
    bare = gpusize()
    assert bare.code == 2
    assert "Usage: gpusize" in bare.out + bare.err


CALCULATOR = """eval:
  general:
    dataset: {_type: json, file_path: questions.json}
"""


def test_the_sizing_calculators_file_without_a_target_is_refused_and_says_what_is_missing(
    gpusize: Gpusize, url: str
) -> None:
    Path("questions.json").write_text('[{"id": 1, "question": "q"}]')
    Path("calc.yml").write_text(CALCULATOR)
    sweep = ("--concurrencies", "1", "--passes", "1", "--quiet", "--no-plots", "--metrics-url", "none")
    done = gpusize("run", "--config", "calc.yml", *sweep)
    assert done.code == 2
    assert "nothing says what to measure" in done.complaint
    assert "calc.yml" in done.complaint
    assert "--url http://localhost:8000 --api nat" in done.complaint
    assert "--workflow" in done.complaint
    assert not Path("runs").exists()
    measured = gpusize("run", "--config", "calc.yml", "--url", url, "--no-stream", *sweep)
    assert measured.code == 0, measured.err
