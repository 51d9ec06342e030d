"""``--config`` of the commands of ``gpusize cluster``: one file for all of them, each takes the options that it has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gpusize.cli.cluster_options import CLUSTER
from gpusize.cli.command import option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpusize.options.kinds import Kind

__all__ = ["Config"]

_NOT_THERE: Final = ("config", "debug", "json", "help")
"""These are of one call, and no setting."""


def _read(ctx: typer.Context, path: Path | None) -> Path | None:
    """What the file says becomes the defaults of this call.

    Raises:
        ConfigError: unreadable, an option that no command of the group has, or a value of another kind.
    """
    if path is None or ctx.resilient_parsing:
        return path
    from gpusize.options.read_file import load_config

    group: Any = None if ctx.parent is None else ctx.parent.command
    known: dict[str, Kind] = {}
    for command in [ctx.command] if group is None else group.commands.values():
        known |= {_plain(each): _kind(each) for each in command.params if each.param_type_name == "option"}
    found = load_config(path, {name: kind for name, kind in known.items() if name not in _NOT_THERE})
    own: Mapping[str, str] = {_plain(each): str(each.name) for each in ctx.command.params}
    ctx.default_map = {
        own[name]: [value] if known[name] == "texts" and isinstance(value, str) else value
        for name, value in found.options.items()
        if name in own
    }
    return path


def _plain(param: Any) -> str:
    """The option's name, without what keeps it apart from a word of Python's."""
    return str(param.name).strip("_")


def _kind(param: Any) -> Kind:
    """As far as it matters here: a value is read as if it had been typed, and answered as that would be."""
    return "texts" if param.multiple else "flag" if param.is_flag else "plain"


_HELP: Final = "Read options of cluster commands from this TOML, YAML or JSON file."
_INFO: Any = option(_HELP, "FILE", CLUSTER, names=("--config",), is_eager=True, callback=_read)
Config = Annotated[Path | None, _INFO]
