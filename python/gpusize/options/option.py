"""What an option of ``gpusize run`` is, wherever it is written: on a command line, in a file, in a study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from gpusize.options.kinds import Kind

__all__ = ["Group", "Option", "Part"]

Part = Literal["target", "dataset", "load", "search", "run"]
"""Who reads an option."""

_SEVERAL: Final = ("texts", "pairs")


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: with underscores, as files have it.
        kind: of its value, as files are checked.
        help: what it does, as an order to the program; the default is not repeated in it.
        value: what stands for the value in the help; empty for a flag.
        default: what holds where it is not given, in words; empty where nothing does.
        common: whether the short help shows it.
        part: who reads it; empty for the group's.
        places: where it may be given.
        many: whether a command line may have it several times, where its kind does not say so.
        off: whether a flag has a ``--no-`` form, because it may be on by itself.
        aliases: names of the same thing in other tools, which work as well.
    """

    name: str
    kind: Kind
    help: str
    value: str = ""
    default: str = ""
    common: bool = False
    part: Part | Literal[""] = ""
    places: Literal["both", "command", "file"] = "both"
    many: bool = False
    off: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def repeatable(self) -> bool:
        """Whether a command line may have it several times."""
        return self.many or self.kind in _SEVERAL

    @property
    def flags(self) -> list[str]:
        """Its names on the command line; the names of other tools come last."""
        own = "--" + self.name.replace("_", "-")
        names = [f"{own}/--no-{own[2:]}" if self.off else own]
        return names + [f"--{alias}" for alias in self.aliases]


@dataclass(frozen=True, slots=True)
class Group:
    """Options that belong together in the help. The first word of the title is its name there.

    Attributes:
        title: the heading.
        part: who reads its options.
        options: in the order of the help.
    """

    title: str
    part: Part
    options: tuple[Option, ...]

    def kinds(self, part: Part) -> Mapping[str, Kind]:
        """The kinds of those options that files may hold and ``part`` reads."""
        return {
            option.name: option.kind
            for option in self.options
            if option.places != "command" and (option.part or self.part) == part
        }
