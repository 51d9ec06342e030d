"""From options and files to target, dataset and load."""

from gpusize.options.inputs import (
    INPUT_OPTIONS,
    addresses_of,
    dataset_from_options,
    load_from_options,
    over,
    target_from_options,
)
from gpusize.options.kinds import Kind
from gpusize.options.load import LOAD_STOPS, LOAD_WAYS
from gpusize.options.load_values import LOAD_OPTIONS
from gpusize.options.read_file import Config, load_config

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
