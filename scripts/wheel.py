"""Build the wheel, audit it, and try it in clean environments of the oldest and the newest CPython at hand."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
OLDEST = (3, 11)
NEWEST_GLIBC = (2, 28)
PROBE = "import sys; print(*sys.version_info[:2], sys.implementation.name, sys.prefix == sys.base_prefix)"


def call(*command: object, path_first: Path | None = None) -> None:
    """Run a command, shown first; its failure ends this script."""
    print("+", *command, flush=True)
    path = os.environ["PATH"] if path_first is None else f"{path_first}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run([str(part) for part in command], check=False, cwd=ROOT, env={**os.environ, "PATH": path})
    if done.returncode != 0:
        sys.exit(f"wheel: {Path(str(command[0])).name} ended with {done.returncode}")


def host() -> str:
    """The target triple that rustc compiles for when nothing else is said."""
    told = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    return next(line.removeprefix("host: ") for line in told.splitlines() if line.startswith("host: "))


def build() -> Path:
    """An abi3 wheel linked against an old glibc, in dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    bin_dir = Path(sys.executable).parent  # maturin asks the python3 it finds for ziglang
    machine = host().partition("-")[0]
    with tempfile.TemporaryDirectory(prefix="gpusize-linker-") as folder:
        # Zig links the extension alone: with maturin's --zig, cargo would compile every dependency anew for it.
        linker = Path(folder, "zigcc")
        zig = [
            str(bin_dir / "maturin"),
            "zig",
            "cc",
            "--",
            "-target",
            "{}-linux-gnu.{}.{}".format(machine, *NEWEST_GLIBC),
        ]
        linker.write_text(f'#!/bin/sh\nexec {shlex.join(zig)} "$@"\n', encoding="utf-8")
        linker.chmod(0o755)
        call(
            *(bin_dir / "maturin", "build", "--release", "--locked", "--strip"),
            *("--compatibility", "manylinux_{}_{}".format(*NEWEST_GLIBC)),
            *("--interpreter", sys.executable, "--out", DIST, "--", "-C", f"linker={linker}"),
            path_first=bin_dir,
        )
    (wheel,) = DIST.glob("*.whl")
    return wheel


def audit(wheel: Path) -> None:
    """Refuse a wheel that needs a newer glibc than NEWEST_GLIBC, or more of CPython than its stable ABI."""
    shown = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", str(wheel)], check=True, capture_output=True, text=True
    ).stdout
    print(shown)
    tag = re.search(r'following platform tag:\s*"manylinux_(\d+)_(\d+)_', shown)
    if tag is None or tuple(map(int, tag.groups())) > NEWEST_GLIBC:
        sys.exit(f"wheel: not manylinux_{NEWEST_GLIBC[0]}_{NEWEST_GLIBC[1]} or older")
    call(Path(sys.executable).with_name("abi3audit"), "--strict", "--report", wheel)


def pythons() -> dict[tuple[int, int], Path]:
    """CPythons that gpusize supports, by version: from PATH, and those of pyenv where there is one."""
    found: dict[tuple[int, int], Path] = {}
    names = [f"python3.{minor}" for minor in range(OLDEST[1], OLDEST[1] + 20)]
    candidates = [Path(place) for name in ("python3", *names) if (place := shutil.which(name))]
    if pyenv := shutil.which("pyenv"):
        root = subprocess.run([pyenv, "root"], check=True, capture_output=True, text=True).stdout.strip()
        candidates += sorted(Path(root).glob("versions/*/bin/python3"))
    for path in candidates:
        probe = subprocess.run([path, "-c", PROBE], check=False, capture_output=True, text=True)
        if probe.returncode != 0:
            continue
        major, minor, name, outside_venv = probe.stdout.split()
        if name == "cpython" and outside_venv == "True" and (int(major), int(minor)) >= OLDEST:
            found.setdefault((int(major), int(minor)), path)
    return found


def smoke(wheel: Path, python: Path) -> None:
    """Install into an empty environment and use it there, away from the sources."""
    with tempfile.TemporaryDirectory(prefix="gpusize-wheel-") as folder:
        call(python, "-m", "venv", f"{folder}/venv")
        inside = Path(folder, "venv/bin/python")
        pip = (inside, "-m", "pip", "--disable-pip-version-check", "--quiet")
        call(*pip, "install", "--constraint", ROOT / "requirements/run.txt", wheel)
        shutil.copy(ROOT / "scripts/smoke.py", folder)
        call(inside, f"{folder}/smoke.py", folder)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    wheel = build()
    audit(wheel)
    found = pythons()
    tried = sorted({min(found), max(found)})
    for version in tried:
        smoke(wheel, found[version])
    names = " and ".join(f"{major}.{minor}" for major, minor in tried)
    print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB, works on CPython {names}")
    if len(tried) == 1:
        print("wheel: only one CPython >= 3.11 was found; put another on PATH to try both ends", file=sys.stderr)


if __name__ == "__main__":
    main()
