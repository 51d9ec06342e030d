"""Options of ``gpusize run`` in a file of another command: checked before anything is started."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from gpusize.analysis.slo import as_slos
from gpusize.base.documents import Document
from gpusize.base.errors import ConfigError, UsageError
from gpusize.base.text import did_you_mean, shown
from gpusize.options.assemble import RUN_OPTIONS
from gpusize.options.kinds import complaint
from gpusize.options.load import load_from_options

__all__ = ["check_run", "checked_options"]

_TARGETS: Final = ("url", "workflow", "command")


def checked_options(
    given: Mapping[str, Any], document: Document, key: str, *, refused: Collection[str], whose: str
) -> dict[str, Any]:
    """Options of a run by name, with underscores; those that are null are left out.

    Args:
        given: as the file has them, placeholders filled in.
        document: the file.
        key: the table of the file that they stand in.
        refused: options that the file's command decides on itself.
        whose: what the file is, as ``a study``.

    Raises:
        ConfigError: an option that ``gpusize run`` does not have, that is refused, or of another kind; with its place.
    """
    options: dict[str, Any] = {}
    for written, value in given.items():
        name, where = str(written).replace("-", "_"), document.where(key, str(written))
        if name in refused:
            raise ConfigError(f'{whose} decides on "{name}" itself', where, "leave it out")
        if name not in RUN_OPTIONS:
            todo = did_you_mean(name, RUN_OPTIONS, "gpusize run --help names all options")
            raise ConfigError(f'gpusize run has no option "{shown(written)}"', where, todo)
        if value is None:
            continue
        wrong = complaint(RUN_OPTIONS[name], value)
        if wrong:
            raise ConfigError(f'"{shown(written)}" {wrong}', where, f"it is {shown(value)} here")
        options[name] = value
    return options


def check_run(options: Mapping[str, Any], document: Document, key: str) -> None:
    """Refuse an invalid load or SLO of a run whose target is named.

    Raises:
        ConfigError: with its place.
    """
    if not any(name in options for name in _TARGETS):
        # The simulated cluster brings a load of its own.
        return
    for option, check in (("", lambda: load_from_options(options)), ("slo", lambda: as_slos(options.get("slo") or ()))):
        try:
            check()
        except UsageError as problem:
            named = option or problem.where or ""
            place = document.where(key, named) if named in options else document.where(key)
            raise ConfigError(problem.what, place, problem.todo) from None
