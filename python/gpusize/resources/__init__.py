"""What a container, a process or the host used, and what to request for it.

`series` keeps readings, `usage` sums them up, `recommend` says what to ask a scheduler for: pure functions of what was
read. `sampler`, `gpus` and `containers` do the reading, `sample` and `observer` put it all together.

Names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpusize.resources import recommend
    from gpusize.resources.observer import Beside, ResourceObserver
    from gpusize.resources.recommend.types import Execution, Recommendation
    from gpusize.resources.sample import (
        Sampled,
        SampleOptions,
        sample_command,
        sample_repeated,
        sample_running,
        source_of,
    )
    from gpusize.resources.sampler import ResourceWatch, Sampling, Source
    from gpusize.resources.series import Readings
    from gpusize.resources.usage import usage_of
    from gpusize.resources.usage_types import Usage

__all__ = [
    "Beside",
    "Execution",
    "Readings",
    "Recommendation",
    "ResourceObserver",
    "ResourceWatch",
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

_HOMES = {
    "Beside": "observer",
    "Execution": "recommend.types",
    "Readings": "series",
    "Recommendation": "recommend.types",
    "ResourceObserver": "observer",
    "ResourceWatch": "sampler",
    "SampleOptions": "sample",
    "Sampled": "sample",
    "Sampling": "sampler",
    "Source": "sampler",
    "Usage": "usage_types",
    "sample_command": "sample",
    "sample_repeated": "sample",
    "sample_running": "sample",
    "source_of": "sample",
    "usage_of": "usage",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        # Of ``recommend``, and of the modules, the import system has set the attribute once they are imported.
        if name == "recommend":
            return import_module(f"{__name__}.recommend")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
