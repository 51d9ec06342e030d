"""What is asked of Ray: addresses, and what is said where there is no Ray, no cluster, or no gpusize."""

from __future__ import annotations

import socket
import sys

import pytest

from gpusize import __version__
from gpusize.base.errors import EnvironmentLacks, UsageError
from gpusize.base.on_ray.connection import ray_address
from gpusize.engine.hosts.gather import gathered
from gpusize.engine.hosts.head import HostsOptions
from gpusize.engine.hosts.on_ray import RAY_LISTEN, RAY_WAIT_S
from gpusize.engine.hosts.on_ray_agent import GpusizeAgent
from gpusize.options.hosts import hosts_of
from gpusize.targets.server import Target
from gpusize.workload.load import Load


@pytest.mark.parametrize("text", ["auto", "10.0.0.5:6379", "head.lab:6379", "[fd00::5]:6379"])
def test_addresses_of_a_cluster(text: str) -> None:
    assert ray_address(text) == text


@pytest.mark.parametrize(
    "text, what",
    [
        ("local", "no more than this machine"),
        ("ray://head:10001", "cannot reach this machine"),
        ("head.lab", "no address with a port"),
        ("", "no address with a port"),
    ],
)
def test_what_is_no_cluster_is_refused(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        ray_address(text)


def options(**given: object) -> HostsOptions | None:
    return hosts_of(given, Target("http://127.0.0.1:9/any"), Load())


def test_ray_takes_its_own_defaults() -> None:
    assert options(hosts=3, ray="auto") == HostsOptions(3, RAY_LISTEN, wait_s=RAY_WAIT_S, ray="auto")
    assert options(hosts=3, ray="auto", listen="10.0.0.5:7070", hosts_wait="5m") == HostsOptions(
        3, ("10.0.0.5", 7070), wait_s=300.0, ray="auto"
    )


@pytest.mark.parametrize("name", ["token_file", "hosts_ca", "hosts_cert", "hosts_key"])
def test_what_agents_show_is_not_for_ray(name: str) -> None:
    with pytest.raises(UsageError, match="get a token from the cluster"):
        options(hosts=3, ray="auto", **{name: "file"})


def test_ray_needs_a_number_of_hosts() -> None:
    with pytest.raises(UsageError, match="no number of hosts"):
        options(ray="auto")


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EnvironmentLacks) as caught, gathered(HostsOptions(1, RAY_LISTEN, ray="auto")):
        pass
    assert caught.value.todo == "install it: pip install 'gpusize[ray]'"


def test_an_agent_says_what_it_is() -> None:
    about = GpusizeAgent().about()
    assert about["gpusize"] == __version__
    assert about["hostname"] == socket.gethostname()
    assert "problem" not in about


def test_an_agent_without_gpusize_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gpusize", None)
    assert "gpusize" in GpusizeAgent().about()["problem"]
