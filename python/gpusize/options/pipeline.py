"""From the options of a command to what the pipeline's functions take."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from gpusize.base.errors import UsageError
from gpusize.base.numeric import within
from gpusize.base.text import shown
from gpusize.base.units import as_duration_s
from gpusize.containers.pipeline.container_spec import RunOptions
from gpusize.containers.pipeline.execution import MakeReader
from gpusize.containers.pipeline.fields import as_bytes
from gpusize.containers.pipeline.runner import Force
from gpusize.containers.pipeline.server_options import TRITON_IMAGE, ServerOptions
from gpusize.containers.pipeline.sizing import SizingOptions

if TYPE_CHECKING:
    from gpusize.observe.usage.sampler import ContainerReader

__all__ = ["PipelineOptions"]

_FORCE: Final = ("none", "cont", "stop")


class PipelineOptions:
    """The options of ``gpusize pipeline run``, as the pipeline's functions take them.

    Args:
        given: values by the options' names.

    Raises:
        UsageError: one is invalid.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self.definition: Path = given["definition"]
        if given["force"] not in _FORCE:
            raise UsageError(f'"{shown(given["force"])}" is not a value of --force', "force", "give none, cont or stop")
        # Without anybody to ask, asking means stopping.
        self.force = cast("Force", given["force"])
        self.parameters = dict(_pair(text) for text in given["parameter"] or ())

    def check(self) -> None:
        """Refuse invalid values before any folder is made."""
        from gpusize.containers.recommend import check_policy

        check_policy(self._given["policy"])
        for made in (self.run_options, self.servers, self.make_reader, self.sizing):
            made()

    def run_options(self) -> RunOptions:
        """Of the containers."""
        given = self._given
        shm = None if given["shm_size"] is None else as_bytes(given["shm_size"])
        if given["shm_size"] is not None and not shm:
            raise UsageError(f'"{shown(given["shm_size"])}" is not a size', "shm_size", "write it as 64m or 2g")
        return RunOptions(
            user=given["user"],
            gpus=given["gpus"],
            shm_bytes=shm,
            network=given["network"],
            writable_inputs=given["writable_inputs"],
            start_timeout_s=_timeout_s(given["start_timeout"], "start_timeout"),
            timeout_s=None if given["timeout"] is None else _timeout_s(given["timeout"], "timeout"),
            repeat=given["repeat"],
            work_dir=given["work_dir"],
            keep=given["keep"],
        )

    def servers(self) -> ServerOptions:
        """Where models are served."""
        given = self._given
        return ServerOptions(
            models_dir=given["models_dir"],
            image=given["triton_image"] or TRITON_IMAGE,
            gpus=given["triton_gpus"],
            url=given["triton_url"],
            grpc=given["triton_grpc"],
            timeout_s=_timeout_s(given["triton_timeout"], "triton_timeout"),
        )

    def sizing(self) -> SizingOptions:
        """What is recommended, and what is run for that."""
        given = self._given
        return SizingOptions(
            policy=given["policy"],
            whole_cores=given["whole_cores"],
            cpu_limit=given["cpu_limit"],
            verify=given["verify"],
            cpu_curve=_cores(given["cpu_curve"]),
        )

    def make_reader(self) -> MakeReader:
        """What reads the containers."""
        from gpusize.observe.usage.sampler import ContainerReader, check_interval

        usual_ns = round(check_interval(as_duration_s(self._given["interval"], "interval")) * 1e9)

        def make(name: str, interval_ns: int | None = None) -> ContainerReader:
            return ContainerReader(name, usual_ns if interval_ns is None else interval_ns)

        return make


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f'"{shown(text)}" is not a parameter', "parameter", "write it as NAME=VALUE")
    return name, value


def _cores(text: str | None) -> tuple[float, ...] | None:
    """CPU limits to try: empty for some that follow from the estimate."""
    if text is None:
        return None
    if text.strip() == "auto":
        return ()
    cores: list[float] = []
    for item in text.split(","):
        with contextlib.suppress(ValueError):
            cores.append(float(item))
    if len(cores) != len(text.split(",")) or not all(0.01 <= each <= 4096 for each in cores):
        raise UsageError(
            f'"{shown(text)}" is not a list of CPU limits', "cpu_curve", "write auto, or cores such as 1,2,4"
        )
    return tuple(cores)


def _timeout_s(text: str, name: str) -> float:
    """A time that something may take."""
    seconds = as_duration_s(text, name)
    within("timeout", seconds, name)
    return seconds
