"""Many runs: one for each combination of settings, and what runs around them."""

from gpusize.studies.run_study import StudyResult, run_study
from gpusize.studies.spec import Combination, Study, read_study

__all__ = ["Combination", "Study", "StudyResult", "read_study", "run_study"]
