"""Starts and stops a Triton server with so many instances: ``python -m gpusize.targets.triton serve|stop``."""

from gpusize.targets.triton.config_text import with_instance_group
from gpusize.targets.triton.repository import copy_repository
from gpusize.targets.triton.server import Ports, serve, stop

__all__ = ["Ports", "copy_repository", "serve", "stop", "with_instance_group"]
