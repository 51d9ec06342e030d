"""Configuration files, and how options become target, dataset and load."""

from gpusize.config._kinds import Kind
from gpusize.config._load import Config, load_config
from gpusize.config._load_options import LOAD_OPTIONS, LOAD_STOPS, LOAD_WAYS
from gpusize.config.inputs import (
    INPUT_OPTIONS,
    addresses_of,
    dataset_from_options,
    load_from_options,
    over,
    target_from_options,
)

__all__ = [
    "INPUT_OPTIONS",
    "LOAD_OPTIONS",
    "LOAD_STOPS",
    "LOAD_WAYS",
    "Config",
    "Kind",
    "addresses_of",
    "dataset_from_options",
    "load_config",
    "load_from_options",
    "over",
    "target_from_options",
]
