"""A copy of a model repository, with the instance groups that a measurement wants."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gpusize.base.errors import ConfigError, UsageError
from gpusize.base.files import storing, write_atomic
from gpusize.base.text import read_text, shown
from gpusize.targets.triton.config_text import with_instance_group

__all__ = ["copy_repository"]

_CONFIG: Final = "config.pbtxt"


def copy_repository(
    models: Path,
    to: Path,
    *,
    count: int | None = None,
    gpus: Sequence[int] | None = None,
    kind: str | None = None,
    names: Sequence[str] = (),
) -> list[str]:
    """Copy a model repository and rewrite the instance groups of the copy.

    Large files are linked where the file system allows it, and copied elsewhere; the original is never changed. A copy
    that is there already is replaced.

    Args:
        models: the repository: a folder with a folder for each model.
        to: where the copy goes.
        count: instances; None leaves the configurations as they are.
        gpus: see `with_instance_group`.
        kind: see there.
        names: models to rewrite; all that have a configuration when empty. Ensembles have no instances and stay.

    Returns:
        Names of the models that were rewritten.

    Raises:
        UsageError: not a repository, a model that is not in it, or a place for the copy inside the original.
        ConfigError: a configuration is broken.
        StoreError: the copy cannot be written.
    """
    if not models.is_dir():
        raise UsageError("there is no such folder", str(models), "name a model repository")
    if to.resolve().is_relative_to(models.resolve()) or models.resolve().is_relative_to(to.resolve()):
        raise UsageError("the copy would lie in the repository itself, or around it", str(to), "choose another folder")
    configured = sorted(folder.name for folder in models.iterdir() if (folder / _CONFIG).is_file())
    missing = [name for name in names if name not in configured]
    if missing or not configured:
        what = f'there is no model "{shown(missing[0])}" with a {_CONFIG}' if missing else f"no model has a {_CONFIG}"
        raise UsageError(what, str(models), "write one; only such a model can be given instances")
    wanted = list(names) or configured
    texts = {}
    if count is not None:
        for name in wanted:
            file = models / name / _CONFIG
            text = read_text(file, error=ConfigError)
            if names or not _is_ensemble(text):
                texts[name] = with_instance_group(text, count, gpus, kind, source=str(file))
    with storing(to):
        if to.exists():
            shutil.rmtree(to)
        shutil.copytree(models, to, copy_function=_link_or_copy)
    for name, text in texts.items():
        write_atomic(to / name / _CONFIG, text.encode())
    return list(texts)


def _is_ensemble(text: str) -> bool:
    return "ensemble_scheduling" in text


def _link_or_copy(source: str, target: str) -> str:
    try:
        # A link to a symbolic link would point from another place.
        os.link(os.path.realpath(source), target)
    except OSError:
        shutil.copy2(source, target)
    return target
