"""Servers and clients of the field, each in its own virtual environment: `make peers` builds them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import gpusize
from scripts.peers import peer_folder, peer_pieces
from tests.peers.calls import Programs
from tests.peers.sizing import Gpusize
from tests.servers.kube import ControlPlane
from tests.servers.llama import LlamaServer, make_model
from tests.servers.pytriton import PyTriton
from tests.servers.tap import Tap

HERE = Path(__file__).parent

KUBE = ("test_cluster_", "test_hpa", "test_kube", "test_manifests", "test_runai_")
"""Files about a control plane: all share one, and mostly wait for it."""
SHARED = ("test_openai_client", "test_prometheus", "test_series_of_prometheus", "test_tritonclient")
"""Files that compare what was said and counted, and no times."""
INSTANCES = (1, 2, 4)
"""Of the models ``sleep_1`` and so on."""


@pytest.hookimpl(tryfirst=True)  # before ``-m`` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever lies in this folder is about peers."""
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        item.add_marker("peers")
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))
        if item.path.name.startswith(KUBE):
            item.add_marker(pytest.mark.waits("one control plane for all of them"))
        elif not item.path.name.startswith(SHARED):
            item.add_marker(pytest.mark.paced("times are compared, of servers that need no more than a core"))


def _peer(name: str, piece: str = "packages") -> Path:
    folder = peer_folder(name)
    if piece not in peer_pieces(folder):
        pytest.skip(f"the peer {name} ({piece}) is not there: make peers")
    return folder / "bin"


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PyTriton]:
    """A Triton that shows its statistics, with ``sleep_1``, ``sleep_2`` and ``sleep_4``."""
    python = _peer("triton") / "python"
    only = (*(f"sleep_{n}" for n in INSTANCES), "batched", "double", "echo", "count")
    with PyTriton(python, tmp_path_factory.mktemp("triton"), instances=INSTANCES, only=only) as server:
        yield server


@pytest.fixture(scope="session")
def restricted_triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PyTriton]:
    """A Triton as PyTriton starts it by default: statistics need a token."""
    python = _peer("triton") / "python"
    with PyTriton(python, tmp_path_factory.mktemp("restricted"), only=("double",), restricted=True) as server:
        yield server


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    """llama.cpp with a model of half a megabyte."""
    python, folder = _peer("llama") / "python", tmp_path_factory.mktemp("llama")
    with LlamaServer(python, make_model(python, folder / "tiny.gguf"), folder) as server:
        yield server


@pytest.fixture(scope="session")
def clients_python() -> Path:
    """The interpreter with ``openai``, ``tritonclient`` and ``httpx``."""
    return _peer("clients") / "python"


@pytest.fixture(scope="session")
def perf_analyzer() -> Path:
    """NVIDIA's load generator."""
    return _peer("clients", "perf_analyzer") / "perf_analyzer"


@pytest.fixture(scope="session")
def program(clients_python: Path) -> Iterator[Programs]:
    """Asks a program of this folder's ``programs``: JSON in and JSON out."""
    with Programs(clients_python) as running:
        yield running


@pytest.fixture
def sizing(tmp_path: Path) -> Gpusize:
    """``gpusize run`` in an empty folder."""
    return Gpusize(tmp_path)


@pytest.fixture(scope="session")
def kube_program() -> Path:
    """The parts of a Kubernetes control plane in one program."""
    return _peer("kube", "program") / "kube"


@pytest.fixture(scope="session")
def control_plane(kube_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane for all tests that ask for it: each takes namespaces of its own, and its nodes away."""
    with ControlPlane(kube_program, tmp_path_factory.mktemp("kube")) as plane:
        yield plane


@pytest.fixture
def start_control_plane(kube_program: Path, tmp_path: Path) -> Iterator[Callable[..., ControlPlane]]:
    """Starts control planes of a test's own, with the options of ``ControlPlane``; they end with it."""
    with ExitStack() as running:

        def start(**options: Any) -> ControlPlane:
            folder = tmp_path / f"kube-{secrets.token_hex(4)}"
            folder.mkdir()
            return running.enter_context(ControlPlane(kube_program, folder, **options))

        yield start


@pytest.fixture
def tapped() -> Iterator[Callable[[int], Tap]]:
    """Puts taps before ports; they are closed at the test's end."""
    made: list[Tap] = []

    def tap(port: int) -> Tap:
        made.append(Tap(port))
        return made[-1]

    yield tap
    for each in made:
        each.close()


@pytest.fixture
def cluster() -> Iterator[Callable[..., gpusize.SimulatedCluster]]:
    """Starts simulated clusters; they end with the test."""
    made: list[gpusize.SimulatedCluster] = []

    def start(**config: Any) -> gpusize.SimulatedCluster:
        made.append(gpusize.SimulatedCluster(config))
        return made[-1].__enter__()

    yield start
    for each in made:
        each.__exit__(None, None, None)
