"""The house of python/gpusize: which package may import which, as `docs/architecture.md` has it.

    python -m scripts.layers             print packages, modules, arrows and circles; exit 1 when a rule is broken
    python -m scripts.layers --arrows    every arrow between packages, with the number of imports
    python -m scripts.layers FOLDER      of another tree: its python/gpusize

Imports at every depth count, inside functions as well. Those for type checkers alone make arrows, but no circles.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1] / "python" / "gpusize"

LAYERS: Final = (
    ("cli",),
    ("api",),
    ("studies", "doctor", "cluster"),
    ("options",),
    ("measure",),
    ("result",),
    ("report",),
    ("containers",),
    ("estimate",),
    ("observe",),
    ("targets",),
    ("analysis",),
    ("workload",),
    ("engine",),
    ("records",),
    ("base",),
)
"""From the top down: each imports what stands below it. Those on one line know nothing of each other."""

MOST_NAMES: Final = 18

UPWARD: Final = {
    ("estimate.plan.types", "report.figures.plan"),
    ("estimate.plan.over_time.types", "report.figures.gpus_over_time"),
    ("estimate.plan.types", "report.notebook.show"),
    ("estimate.question", "report.notebook.show"),
    ("analysis.compare.comparison", "report.notebook.show"),
    ("analysis.compare.comparison", "report.figures.comparison"),
}
"""The only imports that point up: ``plot`` and ``_repr_html_`` fetch what draws and shows when they are called."""

QUIET: Final = ("analysis", "cluster.phases", "estimate.twin", "estimate.laws", "estimate.search")
LOUD: Final = {"docker", "httpx", "httpx2", "jinja2", "lightkube", "matplotlib", "rich", "typer"}
"""What numbers do not know: screens and networks."""


class Import(NamedTuple):
    """One import of a module: by whom, of what, the names that were asked for, and whether it ever runs."""

    source: str
    target: str
    names: tuple[str, ...]
    runs: bool


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Every module below the package, by its dotted name without the package's own."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(known: dict[str, Path]) -> list[Import]:
    """Every import: modules of ours without the package's name, others by their full name."""
    found = []
    for source, path in known.items():
        tree = ast.parse(path.read_text("utf-8"))
        guards = [n for n in ast.walk(tree) if isinstance(n, ast.If) and getattr(n.test, "id", "") == "TYPE_CHECKING"]
        checked = {id(inner) for guard in guards for inner in ast.walk(guard)}
        for node in ast.walk(tree):
            runs = id(node) not in checked
            if isinstance(node, ast.Import):
                found += [Import(source, each.name.removeprefix("gpusize."), (), runs) for each in node.names]
            elif isinstance(node, ast.ImportFrom):
                module = f"{node.module}.".removeprefix("gpusize.").removesuffix(".")
                for each in node.names:
                    inner = f"{module}.{each.name}".removeprefix(".")
                    target, names = (inner, ()) if inner in known else (module, (each.name,))
                    found.append(Import(source, target, names, runs))
    return found


def top(name: str) -> str:
    """The package at the top that a module is in."""
    return name.partition(".")[0]


def circles(arrows: dict[str, set[str]]) -> set[frozenset[str]]:
    """Groups of names that reach each other, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(arrows.get(name, ())):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.add(frozenset(stack[at:]))
            del stack[at:]

    for name in sorted(arrows):
        if name not in index:
            visit(name)
    return found


def between(found: list[Import], known: dict[str, Path]) -> dict[str, set[str]]:
    """Which module imports which when it runs; without the package's own face, which hands on names of all rooms."""
    arrows: dict[str, set[str]] = {name: set() for name in known if name}
    for source, target, _, runs in found:
        if runs and source in arrows and target in arrows and target != source and (source, target) not in UPWARD:
            arrows[source].add(target)
    return arrows


def broken_rules(root: Path = ROOT) -> list[str]:
    """What does not fit the house, one line each; nothing when all fits."""
    known = modules(root)
    found = imports(known)
    place = {name: at for at, names in enumerate(LAYERS) for name in names}
    tops = {top(name) for name in known} - {"", "__main__"}
    said = [f"{name}: has no layer" for name in sorted(tops - set(place))]
    said += [f"{name}: is a layer without a package" for name in sorted(set(place) - tops)]
    if len(tops) > MOST_NAMES:
        said.append(f"{len(tops)} names at the top, at most {MOST_NAMES}")
    up = set()
    for source, target, names, _ in found:
        if target not in known:
            if any(source == quiet or source.startswith(f"{quiet}.") for quiet in QUIET) and top(target) in LOUD:
                said.append(f"{source}: imports {target}")
            continue
        ours, theirs = top(source), top(target)
        if not ours or not theirs or ours in ("__main__", theirs):
            continue
        if place.get(theirs, 0) <= place.get(ours, 0):
            up.add((source, target))
        hidden = [part for part in (*target.split("."), *names) if part.startswith("_")]
        said += [f"{source}: imports {hidden[0]} of {target}"] if hidden else []
    said += [f"{source}: imports {target}, which stands above it" for source, target in sorted(up - UPWARD)]
    said += [f"{source} -> {target}: is excused and not there" for source, target in sorted(UPWARD - up)]
    said += [f"a circle: {', '.join(sorted(ring))}" for ring in circles(between(found, known))]
    return said


def main(arguments: list[str]) -> int:
    """Print what there is; 1 when a rule is broken."""
    root = next((Path(each) for each in arguments if not each.startswith("-")), ROOT)
    known = modules(root)
    found = imports(known)
    crossing = Counter(
        (top(each.source), top(each.target))
        for each in found
        if each.target in known and top(each.source) != top(each.target) and top(each.target) and top(each.source)
    )
    rooms: dict[str, set[str]] = {}
    for each in found:
        if each.target in known and (each.source, each.target) not in UPWARD and top(each.source):
            rooms.setdefault(top(each.source), set()).update({top(each.target)} - {top(each.source), ""})
    print(f"names at the top   {len({top(name) for name in known} - {'', '__main__'})}")
    print(f"modules            {len(known)}")
    print(f"arrows             {len(crossing)} between names at the top, of {sum(crossing.values())} imports")
    print(f"upward, excused    {len(UPWARD)}")
    print(f"circles of names   {[sorted(ring) for ring in circles(rooms)]}")
    rings = circles(between(found, known))
    print(f"circles of modules {len(rings)}, with {sum(map(len, rings))} modules in them")
    if "--arrows" in arguments:
        for (source, target), count in sorted(crossing.items()):
            print(f"    {source} -> {target}: {count}")
    said = broken_rules(root)
    print(*said, sep="\n")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
