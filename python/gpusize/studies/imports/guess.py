"""Which format a file or folder is in, as the modules beside this one tell by ``looks_like``, and its import."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gpusize.base.errors import ConfigError, PathMissing
from gpusize.base.files import storing
from gpusize.records.store import is_run_folder
from gpusize.studies import imports
from gpusize.studies.imports.run_folder import Imported

__all__ = ["HEAD_BYTES", "formats", "head_of", "import_auto"]

HEAD_BYTES: Final = 65_536
"""Bytes of a file that a guess goes by."""


def formats() -> Mapping[str, Any]:
    """The modules that tell their own files, by the name of their format: those of this package with ``looks_like``."""
    names = sorted(each.name for each in pkgutil.iter_modules(imports.__path__))
    found = {name: importlib.import_module(f"{imports.__name__}.{name}") for name in names if name != "guess"}
    return {name: module for name, module in found.items() if hasattr(module, "looks_like")}


def import_auto(path: Path, out_dir: Path, gpus: int = 0) -> Imported:
    """Import a file or folder in whichever format it is.

    Args:
        path: the file or folder.
        out_dir: the folder of runs; made when it is missing.
        gpus: GPUs that were measured, where the file does not say. 0 for unknown.

    Returns:
        The run's folder, and what is missing or odd in the file.

    Raises:
        StoreError: it cannot be read, or the run cannot be written.
        ConfigError: it is in no known format, or in several, or is broken.
    """
    head = head_of(path)
    known = formats()
    fitting = [name for name, module in known.items() if module.looks_like(path, head)]
    tried = ", ".join(known)
    if not fitting:
        raise ConfigError(f"no known format: {_looks(path, head)}", str(path), f"tried were {tried}")
    if len(fitting) > 1:
        todo = f"say which, as in: gpusize import {fitting[0]} FILE"
        raise ConfigError(f"it may be {' or '.join(fitting)}", str(path), todo)
    made: Imported = getattr(known[fitting[0]], f"import_{fitting[0]}")(path, out_dir, gpus)
    return made


def head_of(path: Path) -> bytes:
    """The first bytes of a file; of a folder none.

    Raises:
        StoreError: it is missing or cannot be read.
    """
    if path.is_dir():
        return b""
    if not path.exists():
        raise PathMissing("not found", str(path), "give a file, or a folder, of a load generator")
    with storing(path), path.open("rb") as file:
        return file.read(HEAD_BYTES)


def _looks(path: Path, head: bytes) -> str:
    """What a file that nobody knows looks like, in a few words."""
    if path.is_dir() and is_run_folder(path):
        return "it is a run folder already, which needs no import"
    if path.is_dir():
        return "a folder without a run or a file of the sizing calculator"
    if not head:
        return "the file is empty"
    if b"\0" in head:
        return "it is binary"
    first = head.lstrip(b"\xef\xbb\xbf \t\r\n").decode("utf-8", "replace")
    if first.startswith(("{", "[")):
        return "it looks like JSON"
    return f"it begins with {first.splitlines()[0][:60]!r}" if first else "it has blanks alone"
