"""The repository's own promises: locks, versions, the list of dependencies, the commands that the README names."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
MARKER = r"[a-z_]+ (<|>=|==|!=) '[^']+'"
LOCK_LINE = re.compile(rf"[a-z0-9-]+==[0-9][0-9a-z.]*( ; {MARKER}( (and|or) {MARKER})*)?")
PYTHONS = ["3.11.0", "3.12.0", "3.13.0", "3.14.0"]


def toml(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / name).read_text())


def locked(name: str) -> list[str]:
    return [line for line in (ROOT / "requirements" / name).read_text().splitlines() if not line.startswith("#")]


def versions(name: str, python: str) -> dict[str, str]:
    """The versions that a lock file gives one Python on Linux."""
    environment = {
        "python_full_version": python,
        "python_version": python.rpartition(".")[0],
        "sys_platform": "linux",
        "platform_python_implementation": "CPython",
    }
    chosen = {}
    for line in locked(name):
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate(environment):
            assert requirement.name not in chosen, f"{requirement.name} is locked twice for Python {python}"
            chosen[requirement.name] = str(requirement.specifier).removeprefix("==")
    return chosen


@pytest.mark.parametrize("name", ["run.txt", "dev.txt"])
def test_locks_name_exact_versions_and_nothing_else(name: str) -> None:
    odd = [line for line in locked(name) if not LOCK_LINE.fullmatch(line)]
    assert odd == []


@pytest.mark.parametrize("python", PYTHONS)
def test_what_runs_is_what_is_tested(python: str) -> None:
    assert versions("run.txt", python).items() <= versions("dev.txt", python).items()


@pytest.mark.parametrize("python", PYTHONS)
def test_the_locks_keep_to_the_ranges_of_the_manifest(python: str) -> None:
    manifest = toml("pyproject.toml")
    groups = [r for group in manifest["dependency-groups"].values() for r in group if isinstance(r, str)]
    chosen = versions("dev.txt", python)
    for requirement in map(Requirement, [*manifest["project"]["dependencies"], *groups]):
        assert requirement.specifier.contains(chosen[canonicalize_name(requirement.name)]), str(requirement)


def test_python_and_rust_parts_have_one_version() -> None:
    assert toml("pyproject.toml")["project"]["version"] == toml("Cargo.toml")["workspace"]["package"]["version"]


def test_the_changelog_knows_the_version() -> None:
    assert f"## [{toml('pyproject.toml')['project']['version']}]" in (ROOT / "CHANGELOG.md").read_text()


def test_every_dependency_has_its_reason() -> None:
    reasons = set(
        re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs/decisions/0001-dependencies.md").read_text(), re.MULTILINE)
    )
    manifest = toml("pyproject.toml")
    groups = [r for group in manifest["dependency-groups"].values() for r in group if isinstance(r, str)]
    wanted = {Requirement(text).name for text in [*manifest["project"]["dependencies"], *groups]}
    wanted |= {name for name, how in toml("Cargo.toml")["workspace"]["dependencies"].items() if "path" not in how}
    assert reasons == wanted


def test_the_readme_names_only_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    readme = (ROOT / "README.md").read_text()
    found = re.findall(r"^ *(?:\$ )?make ([a-z-]+)|`make ([a-z-]+)`", readme, re.MULTILINE)
    named = {in_block or in_text for in_block, in_text in found}
    assert {"run", "test"} <= named
    assert named <= targets
