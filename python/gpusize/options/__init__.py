"""From options and files to target, dataset and load.

Names are imported when they are first used: the help needs the table of options alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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

_HOMES: Final = {
    "INPUT_OPTIONS": "inputs",
    "addresses_of": "inputs",
    "dataset_from_options": "inputs",
    "load_from_options": "inputs",
    "over": "inputs",
    "target_from_options": "inputs",
    "Kind": "kinds",
    "LOAD_STOPS": "load",
    "LOAD_WAYS": "load",
    "LOAD_OPTIONS": "load_values",
    "Config": "read_file",
    "load_config": "read_file",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"gpusize.options.{home}"), name)
