"""The models of a pipeline on a real Triton: an operator in a container asks it, at the address that it is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusize.base.errors import EnvironmentLacks
from gpusize.containers.pipeline import Operator, Pipeline, RunOptions, ServerOptions, run_pipeline
from tests.containers.engine import IMAGE, daemon_address, import_image
from tests.servers.pytriton import PyTriton


@pytest.fixture(scope="module")
def docker_host() -> Iterator[str]:
    """A daemon with the image of the container tests."""
    from gpusize.containers.pipeline.daemon import Daemon

    with daemon_address() as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", address)
        daemon = Daemon.connect()
        import_image(daemon.client)
        yield address
        daemon.close()


def test_an_operator_asks_a_triton_that_runs(docker_host: str, triton: PyTriton, tmp_path: Path) -> None:
    ask = "wget -q -O- http://$NVIDIA_TRITON_HTTPURI/v2/models/sleep_1"
    operator = Operator("a", IMAGE, command=("sh", "-c", ask), models=("sleep_1",))
    options = RunOptions(network="host", work_dir=tmp_path)
    there = ServerOptions(url=triton.url, grpc=f"127.0.0.1:{triton.grpc_port}")
    result = run_pipeline(Pipeline("p", (operator,), "own"), servers=there, options=options)
    [execution] = result.operators[0].executions
    assert execution.ok, execution
    assert '"name":"sleep_1"' in execution.log_tail.replace(" ", "")
    other = Pipeline("p", (Operator("a", IMAGE, models=("not_there",)),), "own")
    with pytest.raises(EnvironmentLacks, match="does not serve the model not_there"):
        run_pipeline(other, servers=there, options=options)
