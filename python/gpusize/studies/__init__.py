"""Many runs: one for each combination of settings, and what runs around them.

Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusize.base.lazy import lazily

if TYPE_CHECKING:
    from gpusize.studies.conduct import StudyResult, run_study
    from gpusize.studies.spec import Combination, Study, read_study

__all__ = ["Combination", "Study", "StudyResult", "read_study", "run_study"]

_CONDUCT = ("StudyResult", "run_study")

__getattr__, __dir__ = lazily(
    __name__, {name: "studies.conduct" if name in _CONDUCT else "studies.spec" for name in __all__}
)
