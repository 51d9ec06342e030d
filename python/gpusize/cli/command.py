"""Commands as typer runs them: their signature from the table of options, their help, spellings of other tools."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterable
from typing import Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from gpusize.base.numeric import LIMITS, within
from gpusize.cli.page import command_page, commands_page, panels_of
from gpusize.cli.plain_values import read_plainly
from gpusize.options.table import ALIASES, GROUPS, OPTIONS, SHARED

__all__ = ["Command", "Commands", "Debug", "Json", "OnRay", "listed", "long_command", "option", "taking"]

USAGE: Final = 2
_WORDS: Final = "gpusize.words"
_TYPES: Final[dict[str, type]] = {"flag": bool, "whole": int, "number": float}
_TITLES: Final = {option.name: group.title for group in GROUPS for option in group.options}
_REST: Final = inspect.Parameter.VAR_KEYWORD
_NAMED: Final = inspect.Parameter.KEYWORD_ONLY

F = TypeVar("F", bound=Callable[..., Any])


def listed(name: str, panel: str | None = None, **changes: Any) -> Any:
    """An option of the table, for the signature of a command.

    Args:
        name: with underscores.
        panel: its group in the help of this command.
        **changes: what `typer.Option` is told otherwise here, such as another default in ``show_default``.
    """
    found = OPTIONS.get(name) or SHARED[name]
    usual = {"help": found.help, "metavar": found.value or None, "show_default": found.default or False}
    return typer.Option(*found.flags, **({**usual, "rich_help_panel": panel} | changes))


def option(
    does: str, value: str | None = None, panel: str | None = None, *, names: tuple[str, ...] = (), **more: Any
) -> Any:
    """An option that the table has not, for the signature of a command.

    Args:
        does: its help.
        value: what stands for its value there; none for that of its type.
        panel: its group there.
        names: as they are typed, where they do not follow from the parameter's.
        **more: for `typer.Option`, such as bounds.
    """
    return typer.Option(*names, help=does, metavar=value, rich_help_panel=panel, **more)


Json = Annotated[bool, listed("json")]
OnRay = Annotated[
    str | None, listed("ray", help="Do it as tasks of this Ray cluster: auto, or the address of its head.")
]
Debug = Annotated[bool, listed("debug")]


def taking(names: Iterable[str], *, asked_for: Container[str] = ()) -> Callable[[F], F]:
    """Give a command options of the table; it gets them by name, as ``**given``, beside parameters of its own.

    Args:
        names: with underscores.
        asked_for: those that have no default in this command.
    """

    def give(function: F) -> F:
        own = inspect.signature(function, eval_str=True).parameters.values()
        mine = [each.replace(kind=_NAMED) for each in own if each.kind != _REST]
        signature = inspect.Signature([*(_parameter(name, asked_for) for name in names), *mine])
        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    return give


def _parameter(name: str, asked_for: Container[str]) -> inspect.Parameter:
    found = OPTIONS[name]
    plain = _TYPES.get(found.kind, str)
    info = listed(name, _TITLES[name], **({"show_default": False} if name in asked_for else {}))
    kind: Any = list[plain] if found.repeatable else plain  # type: ignore[valid-type]
    return inspect.Parameter(name, _NAMED, default=None, annotation=Annotated[kind | None, info])


class Command(TyperCommand):
    """A command whose help is ours. In names of options underscores count as dashes."""

    common: tuple[str, ...] = ()
    """Options that the short help shows; where there are none there is one help, with all of them."""

    def __init__(self, name: str | None, **more: Any) -> None:
        super().__init__(name, **more)
        self.context_settings["token_normalize_func"] = lambda word: word.replace("_", "-")
        if self.common:
            self.context_settings["help_option_names"] = ["-h", "--help", "--help-all"]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the words, as what follows ``--help`` may name a group, and hold numbers against their limits.

        Raises:
            UsageError: a number beyond the limits of its option.
        """
        ctx.meta[_WORDS] = tuple(args)
        read_plainly(self.get_params(ctx))
        rest = super().parse_args(ctx, args)
        for param in self.params:
            value = ctx.params.get(param.name)
            # Those with bounds of their own have been held against them.
            if param.name in LIMITS and isinstance(value, int | float) and getattr(param, "min", None) is None:
                within(param.name, value, param.opts[0])
        return rest

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Completions without the names of other tools: with them no name of ours would be the only one."""
        return [each for each in super().shell_complete(ctx, incomplete) if each.value not in ALIASES]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help that was asked for.

        Raises:
            UsageError: it was asked for a group that there is not.
        """
        words = ctx.meta.get(_WORDS, ())
        panels = panels_of(self.params if self.common else self.get_params(ctx), self.common)
        everything = not self.common or "--help-all" in words
        word = None if len(panels) == 1 else _after_help(words)
        formatter.write(command_page(self, ctx.command_path, panels, word=word, everything=everything))


def _after_help(words: tuple[str, ...]) -> str | None:
    """The word behind ``--help``, where it is no option itself."""
    at = next((place for place, word in enumerate(words) if word in ("-h", "--help")), len(words))
    word = next(iter(words[at + 1 :]), None)
    return None if word is None or word.startswith("-") else word


def long_command(*common: str) -> type[Command]:
    """The class of a command with more options than a screen has lines.

    Args:
        common: the options that its short help shows.
    """
    return type("LongCommand", (Command,), {"common": common})


class Commands(TyperGroup):
    """A group of commands with our help."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the words name. Typer makes Ctrl-C a bare exit code; an Abort reaches the caller."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise typer.Abort from error

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without any word, show the help and end as after a mistake."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            raise typer.Exit(USAGE)
        read_plainly(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the commands and the options."""
        listed = ((name, _first_line(self.commands[name])) for name in self.list_commands(ctx))
        formatter.write(commands_page(self, ctx.command_path, panels_of(self.get_params(ctx), ()), listed))


def _first_line(command: Any) -> str:
    return " ".join((command.help or "").partition("\n\n")[0].split())
