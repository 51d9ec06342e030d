"""Starts and stops a Triton server with so many instances on so many GPUs: ``python -m gpusize.triton serve|stop``."""

from gpusize.triton.config_text import with_instance_group
from gpusize.triton.repository import copy_repository
from gpusize.triton.server import Ports, serve, stop

__all__ = ["Ports", "copy_repository", "serve", "stop", "with_instance_group"]
