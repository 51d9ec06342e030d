"""What a container, a process or the host used, and what to request for it.

`observe.usage` reads and sums up, `recommend` says what to ask a scheduler for, `sample` puts it together, and
`pipeline` runs containers one after another.

Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusize.base.lazy import lazily
from gpusize.base.old_names import renamed

if TYPE_CHECKING:
    from gpusize.containers import recommend
    from gpusize.containers.recommend.types import Execution, Recommendation
    from gpusize.containers.sample import (
        Sampled,
        SampleOptions,
        sample_command,
        sample_repeated,
        sample_running,
    )
    from gpusize.observe.usage.observer import Beside, ResourceObserver
    from gpusize.observe.usage.readings import Readings
    from gpusize.observe.usage.sampler import ContainerReader, Sampling, Source
    from gpusize.observe.usage.sources import source_of
    from gpusize.observe.usage.usage import usage_of
    from gpusize.observe.usage.usage_types import Usage

__all__ = [
    "Beside",
    "ContainerReader",
    "Execution",
    "Readings",
    "Recommendation",
    "ResourceObserver",
    "SampleOptions",
    "Sampled",
    "Sampling",
    "Source",
    "Usage",
    "recommend",
    "sample_command",
    "sample_repeated",
    "sample_running",
    "source_of",
    "usage_of",
]

_HOMES: Final = {
    "Beside": "observe.usage.observer",
    "Execution": "containers.recommend.types",
    "Readings": "observe.usage.readings",
    "Recommendation": "containers.recommend.types",
    "ResourceObserver": "observe.usage.observer",
    "ContainerReader": "observe.usage.sampler",
    "SampleOptions": "containers.sample",
    "Sampled": "containers.sample",
    "Sampling": "observe.usage.sampler",
    "Source": "observe.usage.sampler",
    "Usage": "observe.usage.usage_types",
    "recommend": "containers.recommend",
    "sample_command": "containers.sample",
    "sample_repeated": "containers.sample",
    "sample_running": "containers.sample",
    "source_of": "observe.usage.sources",
    "usage_of": "observe.usage.usage",
}

_find, __dir__ = lazily(__name__, _HOMES)
_OLD: Final = renamed(__name__, {"ResourceWatch": "ContainerReader"})


def __getattr__(name: str) -> Any:
    return _OLD(name) if name == "ResourceWatch" else _find(name)
