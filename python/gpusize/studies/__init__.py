"""Many runs: one for each combination of settings, and what runs around them.

Names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpusize.studies.conduct import StudyResult, run_study
    from gpusize.studies.spec import Combination, Study, read_study

__all__ = ["Combination", "Study", "StudyResult", "read_study", "run_study"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "conduct" if name in {"StudyResult", "run_study"} else "spec"
    found = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
