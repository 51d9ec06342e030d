"""Break lines of prose in Markdown at 120 characters: paragraphs and list items; tables, code and headings stay.

`python -m scripts.prose` rewrites the README, the changelog and the pages of docs/; `--check` only names lines that are
too long.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 120
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))

_ITEM = re.compile(r"(\s*)([-*]|\d+\.)(\s+)")
_FENCE = re.compile(r"\s*(```|~~~)")
# A word never ends inside code, as commands and options are read, and searched for, in one piece.
_WORD = re.compile(r"(?:`+[^`]*`+|[^\s`]|`)+")
# What a line must not begin with, as Markdown would read it as something else.
_MARK = re.compile(r"([-+*>|=#]|#+|\d+[.)])\Z")


def pieces(lines: list[str]) -> Iterator[tuple[bool, list[str]]]:
    """Runs of lines: whether they are prose that may be broken anew, and the lines."""
    prose: list[str] = []
    fenced = False
    for line in lines:
        if _FENCE.match(line):
            fenced = not fenced
            kept = True
        else:
            kept = fenced or not line.strip() or line.lstrip()[0] in "|#<>!" or bool(re.match(r"\s*\[[^\]]+\]:", line))
        if (kept or _ITEM.match(line)) and prose:
            yield True, prose
            prose = []
        if kept:
            yield False, [line]
        else:
            prose.append(line)
    if prose:
        yield True, prose


def broken(lines: list[str]) -> list[str]:
    """One paragraph or list item, its lines at most WIDTH long where its words allow it."""
    first = _ITEM.match(lines[0])
    indent = len(first[0]) if first else len(lines[0]) - len(lines[0].lstrip())
    # Four blanks more than what stands around are code, not prose; hard breaks are meant.
    if max(map(len, lines)) <= WIDTH or (first is None and indent >= 4) or any(line.endswith("  ") for line in lines):
        return lines
    words: list[str] = []
    for word in _WORD.findall(" ".join(line.strip() for line in lines)[len(first[0].lstrip()) if first else 0 :]):
        if words and _MARK.match(word):
            words[-1] += f" {word}"
        else:
            words.append(word)
    head, made = first[0] if first else " " * indent, []
    for word in words:
        if head.strip() and len(head) + 1 + len(word) > WIDTH and head != (first[0] if first else ""):
            made.append(head)
            head = " " * indent
        head += word if not head or head.isspace() or head == (first[0] if first else None) else f" {word}"
    return [*made, head]


def wrapped(text: str) -> str:
    """A page with its prose broken at WIDTH."""
    lines = text.split("\n")
    return "\n".join(line for prose, run in pieces(lines) for line in (broken(run) if prose else run))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a page would change")
    check, changed = parser.parse_args().check, []
    for page in PAGES:
        text = page.read_text("utf-8")
        if (new := wrapped(text)) != text:
            changed.append(page.relative_to(ROOT))
            if not check:
                page.write_text(new, "utf-8")
    print("\n".join(map(str, changed)) if check else f"{len(changed)} pages broken anew")
    sys.exit(1 if check and changed else 0)


if __name__ == "__main__":
    main()
