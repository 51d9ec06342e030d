"""The helper that starts Triton: what it makes of a configuration, and how it starts and ends a server.

The server is a stand-in: a program that answers on the health path and notes its arguments.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize.base.errors import ConfigError, EnvironmentLacks, UsageError
from gpusize.targets.triton import Ports, copy_repository, serve, stop, with_instance_group
from gpusize.targets.triton.__main__ import main

TRACCC = """\
backend: "traccc"   # the backend { with a brace
max_batch_size: 0
input [
  { name: "GEOMETRY_ID" data_type: TYPE_UINT64 dims: [ -1 ] },
  { name: "FEATURES" data_type: TYPE_FP64 dims: [ -1, 5 ] }
]
instance_group [
  {
    count: 1  # sed would look for this
    kind: KIND_GPU
    gpus: [ 0 ]
  }
]
parameters: { key: "count: 1 instance_group [" value: { string_value: 'a "}" b' } }
"""


def group(text: str) -> str:
    """The instance group of a configuration, on one line."""
    start = text.index("instance_group")
    return " ".join(text[start : text.index("\n]", start) + 2].split())


def test_the_group_is_replaced_and_nothing_else():
    made = with_instance_group(TRACCC, 4, [0, 1])
    assert group(made) == "instance_group [ { count: 4 kind: KIND_GPU gpus: [ 0, 1 ] } ]"
    head, tail = TRACCC.split("instance_group [\n", 1)[0], TRACCC[TRACCC.index("parameters") :]
    assert made.startswith(head)
    assert made.endswith(tail)


@pytest.mark.parametrize(
    "before,options,after",
    [
        ("", {}, "{ count: 3 }"),
        ('name: "m"', {}, "{ count: 3 }"),
        ('name: "m"', {"gpus": []}, "{ count: 3 kind: KIND_CPU }"),
        ("instance_group { kind: KIND_CPU count: 2 }", {}, "{ count: 3 kind: KIND_CPU }"),
        ("instance_group: [ ]", {"gpus": [2]}, "{ count: 3 kind: KIND_GPU gpus: [ 2 ] }"),
        ("instance_group: < count: 2; gpus: 1, gpus: 2 >", {}, "{ count: 3 gpus: 1 gpus: 2 }"),
        ("instance_group [ { gpus: [0] } ]", {"kind": "KIND_AUTO"}, "{ count: 3 kind: KIND_AUTO gpus: [0] }"),
        (
            'instance_group [{ name: "a # b" profile: ["x", "y"] # c\n rate_limiter { r: [ 1 ] } }]',
            {"gpus": [0]},
            '{ count: 3 kind: KIND_GPU gpus: [ 0 ] name: "a # b" profile: ["x", "y"] rate_limiter { r: [ 1 ] } }',
        ),
        (
            'instance_group { count: 1 gpus: 0 }\nname: "m"\ninstance_group { count: 1 gpus: 1 }',
            {"gpus": [0, 1]},
            "{ count: 3 kind: KIND_GPU gpus: [ 0, 1 ] }",
        ),
    ],
)
def test_forms_of_groups(before, options, after):
    made = with_instance_group(before, 3, **options)
    assert group(made) == f"instance_group [ {after} ]"
    assert made.count("instance_group") == 1
    assert with_instance_group(made, 3, **options) == made
    if "name: " in before.split("instance_group")[0] or before.startswith("name"):
        assert 'name: "m"' in made


def test_the_text_between_groups_stays():
    text = 'instance_group { count: 1 }\nname: "m"\ninstance_group { count: 2 }\nplatform: "p"\n'
    made = with_instance_group(text, 1)
    assert made.index('name: "m"') < made.index('platform: "p"')
    assert made.count("count") == 1


@pytest.mark.parametrize(
    "text,place,what",
    [
        ("instance_group [ { count: 1 ]", "1:29", '"]" closes another bracket'),
        ("a: 1\ninstance_group [ { count: 1 }", "2:16", "this bracket is not closed"),
        ('name: "m', "1:7", "this string is not closed"),
        ("instance_group: 3", "1:17", "an instance group is written in braces"),
        ("name 3", "1:6", "name has no value"),
        ("name:", "1:5", "name has no value"),
        ("{ }", "1:1", "a field begins with its name"),
        ("name: }", "1:7", "a value is missing"),
    ],
)
def test_broken_configurations(text, place, what):
    with pytest.raises(ConfigError) as caught:
        with_instance_group(text, 1, source="f")
    assert caught.value.where == f"f:{place}"
    assert caught.value.what.endswith(what)


@pytest.mark.parametrize("options", [{"count": 0}, {"gpus": [-1]}, {"gpus": [1, 1]}, {"kind": "KIND_TPU"}])
def test_groups_that_cannot_be_meant(options):
    with pytest.raises(UsageError):
        with_instance_group("", **{"count": 1, **options})


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A repository of a model with a large file, an ensemble, and one without a configuration."""
    for name, text in {"traccc": TRACCC, "both": "ensemble_scheduling { step [ ] }"}.items():
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        (tmp_path / "models" / name / "config.pbtxt").write_text(text)
    (tmp_path / "models" / "traccc" / "1" / "model.bin").write_bytes(b"large")
    (tmp_path / "models" / "bare" / "1").mkdir(parents=True)
    return tmp_path / "models"


def test_a_copy_of_the_repository(models, tmp_path):
    copy = tmp_path / "work" / "models"
    copy.parent.mkdir()
    (models / "traccc" / "1" / "link.bin").symlink_to("model.bin")
    for count in (2, 3):
        assert copy_repository(models, copy, count=count, gpus=[0]) == ["traccc"]
        assert f"count: {count}" in (copy / "traccc" / "config.pbtxt").read_text()
    assert (models / "traccc" / "config.pbtxt").read_text() == TRACCC
    assert (copy / "both" / "config.pbtxt").read_text() == "ensemble_scheduling { step [ ] }"
    assert (copy / "traccc" / "1" / "link.bin").read_bytes() == b"large"
    assert (copy / "bare" / "1").is_dir()
    assert copy_repository(models, copy) == []
    assert (copy / "traccc" / "config.pbtxt").read_text() == TRACCC


def test_repositories_that_cannot_be_copied(models, tmp_path):
    with pytest.raises(UsageError, match="there is no such folder"):
        copy_repository(tmp_path / "none", tmp_path / "copy")
    with pytest.raises(UsageError, match='no model "bare"'):
        copy_repository(models, tmp_path / "copy", count=1, names=["bare"])
    with pytest.raises(UsageError, match="in the repository itself"):
        copy_repository(models, models / "copy")
    (models / "traccc" / "config.pbtxt").write_text("name:")
    with pytest.raises(ConfigError):
        copy_repository(models, tmp_path / "copy", count=1)
    assert not (tmp_path / "copy").exists(), "a broken configuration is found before anything is copied"


SERVER = """\
#!{python}
import http.server, json, os, signal, sys
options = dict(word[2:].split("=", 1) for word in sys.argv[1:])
print("starting", flush=True)
if "crash" in options:
    sys.exit("no GPU found")
if "stubborn" in options:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(os.path.join(os.path.dirname(options["model-repository"]), "argv.json"), "w") as file:
    json.dump(options, file)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = self.path == "/v2/health/ready" and "never" not in options
        self.send_response(200 if ready else 503)
        self.end_headers()
    def log_message(self, *_):
        pass

http.server.HTTPServer(("127.0.0.1", int(options["http-port"])), Handler).serve_forever()
"""


@pytest.fixture
def tritonserver(tmp_path: Path) -> Path:
    program = tmp_path / "tritonserver"
    program.write_text(SERVER.replace("{python}", sys.executable))
    program.chmod(0o755)
    return program


@pytest.fixture
def port() -> Iterator[int]:
    """A port for the stand-in: bound by the test to its end, so that nobody else gets it before the server listens."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def test_serve_and_stop(models, tmp_path, tritonserver, port, capsys):
    work = tmp_path / "work"
    common = ["--models", models, "--work", work, "--tritonserver", tritonserver, "--http-port", port]
    own = ["--instances", "2", "--gpus", "2", "--", "--log-verbose=1"]
    assert main(["serve", *map(str, common), *own]) == 0
    try:
        assert capsys.readouterr().out == f"traccc: 2 instances\nhttp://127.0.0.1:{port} is ready\n"
        given = json.loads((work / "argv.json").read_text())
        assert given["model-repository"] == str(work / "models")
        assert (given["grpc-port"], given["metrics-port"], given["log-verbose"]) == ("8001", "8002", "1")
        assert "gpus: [ 0, 1 ]" in (work / "models" / "traccc" / "config.pbtxt").read_text()
        pid = json.loads((work / "server.json").read_text())["pid"]
        assert os.getpgid(pid) == pid
        assert main(["serve", *map(str, common)]) == 2
        assert "is still running" in capsys.readouterr().err
    finally:
        assert main(["stop", "--work", str(work)]) == 0
    assert capsys.readouterr().out == "stopped\n"
    assert main(["stop", "--work", str(work)]) == 0
    assert capsys.readouterr().out == "nothing was running\n"
    assert not (work / "server.json").exists()
    assert not Path(f"/proc/{pid}").exists(), "who started it here has waited for it, too"


def test_a_server_that_ignores_the_first_signal(models, tmp_path, tritonserver, port):
    serve(models, tmp_path / "work", program=str(tritonserver), ports=Ports(http=port), extra=["--stubborn=1"])
    assert stop(tmp_path / "work", grace_s=0.05)
    assert not stop(tmp_path / "work")


def test_a_server_that_ends_at_once(models, tmp_path, tritonserver, port):
    with pytest.raises(EnvironmentLacks) as caught:
        serve(models, tmp_path / "work", program=str(tritonserver), ports=Ports(http=port), extra=["--crash=1"])
    assert caught.value.what == "the server ended with status 1"
    assert "no GPU found" in str(caught.value.todo)
    assert not (tmp_path / "work" / "server.json").exists()


def test_a_server_that_is_never_ready_is_stopped(models, tmp_path, tritonserver, port):
    with pytest.raises(EnvironmentLacks, match="was not ready within"):
        serve(
            models,
            tmp_path / "work",
            program=str(tritonserver),
            ports=Ports(http=port),
            timeout_s=0,
            extra=["--never=1"],
        )
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_there_is_no_server(models, tmp_path):
    with pytest.raises(EnvironmentLacks, match="cannot be started"):
        serve(models, tmp_path / "work", program=str(tmp_path / "none"))


def test_a_process_that_has_the_number_by_now_is_left_alone(tmp_path):
    (tmp_path / "server.json").write_text(json.dumps({"pid": os.getpid(), "started": 1}))
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert not stop(tmp_path)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not (tmp_path / "server.json").exists()


@pytest.mark.parametrize(
    "words,what",
    [
        (["--gpus", "1"], "without a number of instances"),
        (["--instances", "1", "--gpus", "1", "--gpu-ids", "0"], "by number and by name"),
        (["--instances", "1", "--gpu-ids", "a"], "is not a list of GPUs"),
        (["--instances", "1", "--gpus", "-1"], "GPUs must be 0 or more, not -1"),
    ],
)
def test_command_lines_that_cannot_be_meant(models, tmp_path, capsys, words, what):
    assert main(["serve", "--models", str(models), "--work", str(tmp_path / "work"), *words]) == 2
    assert what in capsys.readouterr().err


@settings(max_examples=300)
@given(st.lists(st.sampled_from(["instance_group", "count", "gpus", "1", '"a"', *":{}[]<>,#\n '"])).map("".join))
def test_any_text_is_rewritten_or_refused(text):
    try:
        made = with_instance_group(text, 2, [0])
    except ConfigError:
        return
    assert with_instance_group(made, 2, [0]) == made
