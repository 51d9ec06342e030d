"""Configuration files, and how options become target, dataset and load."""

from gpusize.config._kinds import Kind
from gpusize.config._load import Config, load_config
from gpusize.config.inputs import (
    INPUT_OPTIONS,
    addresses_of,
    dataset_from_options,
    load_from_options,
    target_from_options,
)

__all__ = [
    "INPUT_OPTIONS",
    "Config",
    "Kind",
    "addresses_of",
    "dataset_from_options",
    "load_config",
    "load_from_options",
    "target_from_options",
]
