"""The command line in this process, and a measured run folder to damage."""

from tests.cli.conftest import gpusize
from tests.faults.folder_of_a_run import measured, original

__all__ = ["gpusize", "measured", "original"]
