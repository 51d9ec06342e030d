"""Studies: one sweep for each combination of settings, with what has to be started and stopped around it."""

from gpusize.studies.run_study import StudyResult, run_study
from gpusize.studies.spec import Combination, Study, read_study

__all__ = ["Combination", "Study", "StudyResult", "read_study", "run_study"]
