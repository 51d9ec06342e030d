"""Images that a registry has, and one that it does not give."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusize.base.errors import EnvironmentLacks
from gpusize.containers.pipeline import Operator, Pipeline, run_pipeline
from gpusize.containers.pipeline.daemon import Daemon
from tests.containers.conftest import Leftovers
from tests.containers.engine import busybox_tree
from tests.containers.registry import Registry
from tests.containers.test_run import Told


class Pulls(Told):
    def __init__(self) -> None:
        super().__init__()
        self.pulled: list[tuple[str, str]] = []

    def pulling(self, image: str, state: str) -> None:
        self.pulled.append((image, state))


def test_a_missing_image_is_pulled_once(daemon: Daemon, work: Path, leftovers: Leftovers) -> None:
    with Registry(busybox_tree()) as registry:
        image = f"{registry.address}/some/box:1"
        operators = (Operator("a", image, command=("echo", "here")), Operator("b", image))
        told = Pulls()
        try:
            result = run_pipeline(Pipeline("p", operators, "own"), daemon=daemon, events=told)
            assert result.exit_code == 0
            assert result.operators[0].executions[0].log_tail == "here"
            assert {name for name, _ in told.pulled} == {image}
            again = Pulls()
            assert run_pipeline(Pipeline("p", operators, "own"), daemon=daemon, events=again).exit_code == 0
            assert again.pulled == []
        finally:
            daemon.client.remove_image(image, force=True)
    assert leftovers() == []


def test_a_registry_that_wants_a_login_is_told_in_its_words(daemon: Daemon, work: Path, leftovers: Leftovers) -> None:
    with Registry(b"", closed=True) as registry:
        pipeline = Pipeline("p", (Operator("a", f"{registry.address}/some/box:1"),), "own")
        with pytest.raises(
            EnvironmentLacks, match=r"some/box:1 \(of a\): .*(unauthorized|no basic auth).*Docker login"
        ):
            run_pipeline(pipeline, daemon=daemon)
    assert leftovers() == []
