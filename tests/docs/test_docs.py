"""The documentation is true as far as a machine can tell: links resolve, commands parse, names exist."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import itertools
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer import TyperException

import gpusize
from gpusize.cli.app import application
from gpusize.cli.other_tools import OTHERS
from gpusize.cluster.phases.thresholds import thresholds

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```\s*$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Language and text of every fenced block, without its indent."""
    for indent, language, text in FENCE.findall(page.read_text("utf-8")):
        yield language, "\n".join(line.removeprefix(indent) for line in text.splitlines())


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """Anchors of headings as GitHub and the documentation site make them."""
    found = re.findall(r"^#+ +(.+?)\s*$", prose(page), re.MULTILINE)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.lower())) for heading in found}


def shell_commands() -> list[tuple[str, str]]:
    """Every command line that begins with gpusize in the fenced shell blocks, its continuation lines joined."""
    found = []
    for name, page in zip(NAMES, PAGES, strict=True):
        for language, text in blocks(page):
            if language == "sh":
                lines = re.sub(r"\\\n\s*", "", text).splitlines()
                found += [(name, line.removesuffix(" &")) for line in lines if line.startswith("gpusize")]
    return found


COMMANDS = shell_commands()


@functools.cache
def group() -> Any:
    """The command of all commands; making it out of the signatures takes longer than parsing a line."""
    return typer.main.get_command(application())


@functools.cache
def commands() -> dict[str, Any]:
    """Every command by its words."""
    found: dict[str, Any] = {}
    for name, command in group().commands.items():
        below = getattr(command, "commands", {})
        found |= {f"{name} {word}": each for word, each in below.items()} or {name: command}
    return found


def options() -> set[str]:
    """Every option of every command."""
    parameters = [param for command in (group(), *commands().values()) for param in command.params]
    return {option for param in parameters for option in (*param.opts, *param.secondary_opts) if option[:2] == "--"}


def parse(line: str) -> str:
    """What is wrong with a command line, by its own parser; empty when nothing is. Nothing is run."""
    words = shlex.split(line, comments=True)[1:]
    name = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in commands()), " ".join(words[:1]))
    command = commands().get(name)
    if command is None:
        return f"there is no command {name}"
    above = group().commands[words[0]].make_context(words[0], [], resilient_parsing=True) if " " in name else None
    try:
        command.make_context(name, words[len(name.split()) :], parent=above)
    except TyperException as error:
        return str(error.format_message())
    return ""


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_leads_somewhere(page: Path) -> None:
    missing = []
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(link)
    assert missing == []


def test_every_page_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in LINK.findall(prose(index))}
    pages = {page for page in PAGES if page.is_relative_to(ROOT / "docs")} - {index}
    assert sorted(str(page.relative_to(ROOT)) for page in pages - linked) == []


def pages_of_nav(entry: Any) -> list[str]:
    """The pages of an entry of the side bar and of all below it, in their order."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [page for part in parts for page in pages_of_nav(part)]


def test_the_side_bar_has_every_page_in_the_order_of_the_index() -> None:
    nav = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    assert [next(iter(entry)) for entry in nav] == [
        *("gpusize", "Install", "Tutorials", "How-to", "Reference", "Explanation", "Decisions")
    ]
    listed = pages_of_nav(nav)
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    below = re.findall(r"\]\(([\w/.-]+\.md)\)", index)
    assert listed == ["index.md", *dict.fromkeys(below)]
    assert sorted(listed) == sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))


def test_there_are_commands_to_check() -> None:
    assert len(COMMANDS) > 20
    assert "No such option" in parse("gpusize run --no-such-option 3")
    assert parse("gpusize nothing") == "there is no command nothing"
    assert "No such option" in parse("gpusize dataset show rows.jsonl --no-such-option")


@pytest.mark.parametrize("name, line", COMMANDS)
def test_every_command_parses(name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "--config cluster.toml" in line:  # read while the words are, as the page shows it
        (text,) = [text for language, text in blocks(ROOT / name) if language == "toml"]
        (tmp_path / "cluster.toml").write_text(text, "utf-8")
        monkeypatch.chdir(tmp_path)
    assert parse(line) == "", name


def test_slos_in_commands_parse() -> None:
    for _, line in COMMANDS:
        words = shlex.split(line)
        for option, value in itertools.pairwise(words):
            if option == "--slo":
                # Those of a cluster test are of phases.
                assert thresholds([value]) if words[1:2] == ["cluster"] else str(gpusize.Slo.parse(value)).split()


def test_every_slo_of_the_reference_parses() -> None:
    text = (ROOT / "docs" / "reference" / "slo.md").read_text("utf-8")
    examples = re.findall(r"^\| `([^|]+?)` \|", text, re.MULTILINE)
    assert len(examples) >= 5
    for cell in examples:
        for example in cell.split("`, `"):
            assert str(gpusize.Slo.parse(example)).split()


def test_the_command_line_page_names_every_option_and_no_other() -> None:
    text = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
    named = set(re.findall(r"`(--[a-z0-9-]+)", text))
    assert named == options() | OTHERS.keys() | {"--help", "--help-all"}


def test_the_command_line_page_names_every_command() -> None:
    # Where its lines break does not matter.
    text = " ".join((ROOT / "docs" / "reference" / "cli.md").read_text("utf-8").split())
    listed = text[text.index("Commands: ") : text.index("Each takes `-h`")]
    assert set(re.findall(r"`([^`]+)`", listed)) == set(command_names(group()))


def command_names(command: Any, before: str = "") -> Iterator[str]:
    """The names of commands below this one, as `import auto`."""
    for name, below in command.commands.items():
        if hasattr(below, "commands"):
            yield from command_names(below, f"{before}{name} ")
        else:
            yield f"{before}{name}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_blocks_are_in_their_language(page: Path) -> None:
    for language, text in blocks(page):
        if language == "python":
            ast.parse(text)
        elif language == "toml":
            tomllib.loads(text)
        elif language == "json":
            json.loads(text)


def resolves(name: str) -> bool:
    """Whether a dotted name below gpusize exists: a name of the package, or a module and one of its public names."""
    first, *rest = name.split(".")
    if first in gpusize.__all__:
        owner: Any = gpusize
        return all((owner := getattr(owner, part, None)) is not None for part in (first, *rest))
    parts = (first, *rest)
    for length in range(len(parts), 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            module = importlib.import_module(".".join(("gpusize", *parts[:length])))
            return length == len(parts) or parts[length] in module.__all__
    return False


def test_every_name_of_the_python_page_exists() -> None:
    page = ROOT / "docs" / "reference" / "python.md"
    dotted = set(re.findall(r"gpusize\.([A-Za-z_]+(?:\.[A-Za-z_]+)*)", page.read_text("utf-8")))
    assert len(dotted) > 50
    assert [name for name in sorted(dotted) if not resolves(name)] == []


def test_the_configuration_file_of_the_reference_is_accepted(tmp_path: Path) -> None:
    from gpusize.options.assemble import RUN_OPTIONS
    from gpusize.options.read_file import load_config

    [text] = [text for language, text in blocks(ROOT / "docs" / "reference" / "config.md") if language == "toml"]
    file = tmp_path / "sweep.toml"
    file.write_text(text, "utf-8")
    assert load_config(file, RUN_OPTIONS).options["gpus"] == 8


def test_the_cluster_configurations_are_accepted() -> None:
    from gpusize.engine.session import core

    found = 0
    for _, line in COMMANDS:
        words = shlex.split(line)
        if "--cluster" in words:
            server = core().SimServer(words[words.index("--cluster") + 1], "127.0.0.1", 0)
            server.stop()
            found += 1
    assert found


def test_pictures_are_small() -> None:
    for picture in (ROOT / "docs" / "images").iterdir():
        assert picture.stat().st_size < 200_000, picture.name
