"""Servers beside operators, by images that hold a small stand-in: started, waited for, found, measured, removed."""

from __future__ import annotations

import io
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusize.base.errors import ConfigError, EnvironmentLacks, UsageError
from gpusize.containers.pipeline import Operator, Pipeline, RunOptions, ServerOptions, Service, run_pipeline
from gpusize.containers.pipeline.daemon import Daemon
from tests.containers.conftest import Leftovers
from tests.containers.engine import IMAGE, busybox_tree, import_image
from tests.containers.test_run import Told, shell

TRITON = IMAGE.replace("/box-", "/triton-")

# Answers KServe's readiness as a file, and fails or hangs as the models' names tell it to.
PROGRAM = b"""#!/bin/sh
echo "called as: $*"
test -e /models/good/config.pbtxt && echo "the repository is there"
case "$*" in
*--load-model=broken*) echo "failed to load broken: no such backend"; exit 1 ;;
*--load-model=never*) trap "exit 0" TERM; while :; do sleep 0.1; done ;;
esac
sleep 0.5
dd if=/dev/zero of=/dev/null bs=50M count=1
# The first process of a container is not ended by a signal that it does not handle.
httpd -f -p ${1#--port=} -h /www &
trap "kill $!; exit 0" TERM
wait
"""
TRITON_PROGRAM = PROGRAM.replace(b"${1#--port=}", b"8000")


@pytest.fixture(scope="module")
def triton_image(docker_host: str) -> Iterator[str]:
    """An image with a program ``tritonserver`` that is ready after a moment."""
    tree = busybox_tree({"bin/tritonserver": TRITON_PROGRAM, "bin/serve": PROGRAM})
    buffer = io.BytesIO(tree)
    with tarfile.open(fileobj=buffer, mode="a") as more:
        for folder in ("www", "www/v2", "www/v2/health", "www/v2/models", "www/v2/models/good"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            more.addfile(entry)
        for name in ("www/v2/health/ready", "www/v2/models/good/ready"):
            entry = tarfile.TarInfo(name)
            entry.size = 3
            more.addfile(entry, io.BytesIO(b"ok\n"))
    daemon = Daemon.connect()
    yield import_image(daemon.client, TRITON, buffer.getvalue())
    daemon.client.remove_image(TRITON, force=True)
    daemon.close()


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A model repository."""
    folder = tmp_path / "models"
    for name in ("good", "broken", "never", "misnamed"):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(
            f'input [ {{ name: "x" }} ]\nname: "{"other" if name == "misnamed" else name}"\n', "utf-8"
        )
    return folder


def asking(*models: str, script: str = "", **more: object) -> Pipeline:
    ask = script or "env; wget -q -O- http://$NVIDIA_TRITON_HTTPURI/v2/health/ready"
    return Pipeline("p", (shell("a", ask, models=models, **more), shell("b", "env")), "own")


def test_operators_find_the_server(
    daemon: Daemon, work: Path, triton_image: str, models: Path, leftovers: Leftovers
) -> None:
    told = Told()
    serving = ServerOptions(models_dir=models, image=triton_image)
    result = run_pipeline(asking("good"), servers=serving, daemon=daemon, events=told)
    assert result.exit_code == 0, result.operators[0].executions[0].log_tail
    first, second = (each.executions[0].log_tail.splitlines() for each in result.operators)
    assert first[-1] == "ok"
    known = dict(line.split("=", 1) for line in first if "=" in line)
    address = known["NVIDIA_TRITON_HTTPURI"]
    assert address.endswith(":8000")
    assert known["CLARA_TRITON_URI"] == known["NVIDIA_CLARA_TRTISURI"] == address
    assert known["NVIDIA_TRITON_GRPCURI"] == address.replace(":8000", ":8001")
    assert not any("TRITON" in line for line in second)
    [server] = result.servers
    assert (server.name, server.execution.outcome) == ("triton", "completed")
    words = "called as: --model-repository=/models --model-control-mode=explicit --load-model=good"
    assert server.execution.log_tail.splitlines()[:2] == [words, "the repository is there"]
    assert server.execution.readings is not None
    assert server.execution.readings.facts.totals["mem_peak_bytes"] >= 50 << 20
    # Only who needs the server has the network of the run in the line to paste.
    assert "--network gpusize-" in told.commands["a"]
    assert "--network" not in told.commands["b"]
    assert "--publish 127.0.0.1::8000" in told.commands["triton"]
    assert leftovers() == []


def test_an_operator_in_the_hosts_network_finds_it_by_its_free_port(
    daemon: Daemon, work: Path, triton_image: str, models: Path
) -> None:
    serving = ServerOptions(models_dir=models, image=triton_image)
    result = run_pipeline(asking("good", network="host"), servers=serving, daemon=daemon)
    assert result.operators[0].executions[0].log_tail.endswith("ok")
    assert "NVIDIA_TRITON_HTTPURI=127.0.0.1:" in result.operators[0].executions[0].log_tail


FAILING = {
    "broken": (10.0, r"triton is not ready: it ended with exit code 1.*failed to load broken: no such backend"),
    "never": (1.0, r"triton is not ready: it was not ready within 1 s.*called as"),
}


@pytest.mark.parametrize("model", FAILING)
def test_a_server_that_does_not_get_ready_is_told_with_its_last_words(
    daemon: Daemon, work: Path, triton_image: str, models: Path, leftovers: Leftovers, model: str
) -> None:
    timeout_s, expected = FAILING[model]
    told = Told()
    serving = ServerOptions(models_dir=models, image=triton_image, timeout_s=timeout_s)
    with pytest.raises(EnvironmentLacks, match=expected):
        run_pipeline(asking(model), servers=serving, daemon=daemon, events=told)
    assert told.began_with == []
    assert leftovers() == []


def test_servers_need_a_network_that_publishes_ports(
    daemon: Daemon, work: Path, triton_image: str, models: Path, leftovers: Leftovers
) -> None:
    serving = ServerOptions(models_dir=models, image=triton_image)
    with pytest.raises(EnvironmentLacks, match=r"publishes no ports \(8000, 8001, 8002\)"):
        run_pipeline(asking("good"), servers=serving, options=RunOptions(network="host"), daemon=daemon)
    assert leftovers() == []


def test_a_server_that_runs_already(
    daemon: Daemon, work: Path, triton_image: str, models: Path, leftovers: Leftovers
) -> None:
    """One of our own, started by hand, in place of somebody else's."""
    from gpusize.containers.pipeline.server_options import triton_container

    serving = ServerOptions(models_dir=models, image=triton_image)
    made = daemon.create(triton_container(serving, ["good"], has_gpus=False, network=None, labels={}))
    try:
        daemon.client.start(made)
        settings = daemon.client.inspect_container(made)["NetworkSettings"]
        url = f"http://{settings['IPAddress']}:8000"
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{url}/v2/health/ready", timeout=10).close()
                break
            except OSError:
                time.sleep(0.1)
        there = ServerOptions(url=url)
        result = run_pipeline(asking("good"), servers=there, options=RunOptions(network="bridge"), daemon=daemon)
        assert result.operators[0].executions[0].log_tail.endswith("ok")
        assert result.servers == ()
        with pytest.raises(EnvironmentLacks, match="does not serve the model broken"):
            run_pipeline(asking("broken"), servers=there, daemon=daemon)
        with pytest.raises(UsageError, match=r"a cannot reach 127\.0\.0\.1 of this machine"):
            run_pipeline(asking("good"), servers=ServerOptions(url="127.0.0.1:8000"), daemon=daemon)
        gone = ServerOptions(url="http://127.0.0.1:1")
        with pytest.raises(EnvironmentLacks, match="the Triton server is not ready"):
            run_pipeline(asking("good"), servers=gone, options=RunOptions(network="host"), daemon=daemon)
    finally:
        daemon.remove_container(made)
    assert leftovers() == []


def with_services(*operators: Operator) -> Pipeline:
    return Pipeline("p", operators, "clara")


def test_services_run_as_long_as_operators_need_them(
    daemon: Daemon, work: Path, triton_image: str, leftovers: Leftovers
) -> None:
    web = Service("web", triton_image, ("serve", "--port=8080"), {"A": "1"}, (("WEB_URI", 8080),))
    other = Service("trtis", triton_image, ("serve", "--port=8000"), {}, (("TRTIS_URI", 8000),))
    ask = "wget -q -O- http://$WEB_URI/v2/health/ready; echo $TRTIS_URI"
    result = run_pipeline(
        with_services(
            shell("a", ask, services=(web,)),
            shell("b", ask, services=(web, other)),
            shell("c", "echo w$WEB_URI; echo x$TRTIS_URI", services=(other,), variables={"TRTIS_URI": "mine"}),
            shell("d", "env"),
        ),
        daemon=daemon,
    )
    said = [each.executions[0].log_tail.splitlines() for each in result.operators]
    assert said[0] == ["ok"]
    assert said[1][0] == "ok"
    assert said[1][1].endswith(":8000")
    assert said[2] == ["w", "xmine"]
    assert not any("_URI" in line for line in said[3])
    assert [each.name for each in result.servers] == ["web", "trtis"]
    assert result.exit_code == 0
    assert leftovers() == []


def test_a_service_that_fails_fails_its_operator_and_keeps_the_rest(
    daemon: Daemon, work: Path, triton_image: str, leftovers: Leftovers
) -> None:
    broken = Service("web", triton_image, ("sh", "-c", "echo oh; exit 9"), {}, (("WEB_URI", 8080),))
    result = run_pipeline(
        with_services(shell("a", "true"), shell("b", "true", services=(broken,))), force="cont", daemon=daemon
    )
    first, second = result.operators
    assert first.ok
    assert second.outcome == "failed"
    assert "web is not ready: it ended with exit code 9" in (second.executions[0].error or "")
    assert "oh" in (second.executions[0].error or "")
    assert leftovers() == []


def test_what_cannot_be_served_is_refused_before_anything_starts(models: Path, triton_image: str) -> None:
    serving = ServerOptions(models_dir=models)
    refused = [
        (asking("good"), ServerOptions(), UsageError, "a needs the model good, and there is no model repository"),
        (asking("none"), serving, ConfigError, 'test:a: there is no model "none"'),
        (asking("misnamed"), serving, ConfigError, 'the model is named "other" there, and its folder misnamed'),
        (asking("good", network="none"), serving, ConfigError, "a needs a server and has no network"),
        (asking("good"), ServerOptions(models_dir=models / "x"), ConfigError, 'no model "good"'),
    ]
    for pipeline, options, error, message in refused:
        with pytest.raises(error, match=message):
            run_pipeline(pipeline, servers=options)
    both = with_services(shell("a", "true", services=(Service("s", IMAGE),)), shell("b", "true", models=("good",)))
    with pytest.raises(ConfigError, match="a has services, and other operators models"):
        run_pipeline(both, servers=serving)
