"""Names that documented modules and what is in them had in the last release: each still works, and warns.

``gpusize/__init__.py`` asks here after everybody else has failed to find a module, so that nobody waits for it. To go
in the release after the next.
"""

from __future__ import annotations

import sys
import warnings
from functools import partial
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import CodeType, ModuleType

__all__ = ["HOMES", "find", "renamed"]

HOMES: Final = {
    "adaptive": "estimate.search",
    "apis": "targets.apis",
    "dataset": "workload.dataset",
    "detect": "analysis.detect",
    "errors": "base.errors",
    "interop": "studies.imports",
    "interop.cpost_csv": "containers.cpost_csv",
    "load": "workload.load",
    "overload": "targets.simulated.open_load",
    "pipeline": "containers.pipeline",
    "report.cpost": "report.containers.cpost",
    "report.requests": "report.containers.request_blocks",
    "resources": "containers",
    "resources.facts": "observe.usage.source_facts",
    "resources.gpus": "observe.usage.gpus",
    "resources.observer": "observe.usage.observer",
    "resources.series": "observe.usage.readings",
    "resources.usage": "observe.usage.usage",
    "samples": "observe.metrics",
    "scaling": "estimate.laws",
    "study": "studies",
    "triton": "targets.triton",
    "whatif": "estimate.plan",
}
"""Old names to new ones; a module inside an old package that kept its own name goes with the package."""


def find(name: str) -> ModuleSpec | None:
    """How to load a module by its old name; None where it has none.

    Args:
        name: as the import system asks, ``gpusize.samples``.
    """
    parts = name.split(".")[1:]
    known = (n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in HOMES)
    length = next(known, None)
    if length is None:
        return None
    new = ".".join(("gpusize", HOMES[".".join(parts[:length])], *parts[length:]))
    try:
        there = find_spec(new)
    except ModuleNotFoundError:
        return None
    # As a package without a folder: what is inside is asked for here as well, and no module is ever loaded twice.
    return None if there is None else ModuleSpec(name, _Renamed(new), is_package=parts[-1] != "__main__")


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """``__getattr__`` of a module some of whose documented names have changed.

    Args:
        module: its name.
        names: the new ones by the old ones.
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is {names[name]} now", DeprecationWarning, stacklevel=2)
        return getattr(sys.modules[module], names[name])

    return get


class _Renamed(Loader):
    def __init__(self, new: str) -> None:
        self._new = new

    def exec_module(self, module: ModuleType) -> None:
        """Let the old module hand on all names of the new one."""
        warnings.warn(f"{module.__name__} is {self._new} now", DeprecationWarning, stacklevel=2)
        real = import_module(self._new)
        module.__dict__.update(__doc__=real.__doc__, __getattr__=partial(getattr, real), __dir__=partial(dir, real))

    def get_code(self, _name: str) -> CodeType | None:
        """For ``python -m``."""
        spec = find_spec(self._new)
        code = getattr(spec and spec.loader, "get_code", None)
        return None if code is None else code(self._new)
