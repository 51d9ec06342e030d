"""Debian's kernel for virtual machines, unpacked and not installed: what the test of cgroup v2 boots.

python scripts/kernel.py              print where it is; fetched by apt-get where it is not there yet
GPUSIZE_TEST_KERNEL=/path/to/vmlinuz  another kernel, for that test
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

USUAL = "linux-image-cloud-amd64"
NEWER = "linux-image-6.12-cloud-amd64"
"""High-water marks of memory can be begun anew since 6.12. Not every release of Debian has it beside its usual one."""


class MissingError(Exception):
    """There is no kernel to be had, and why."""


def cache() -> Path:
    """Where it is kept: the folder of CI's own cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpusize-ci" / "kernel"


def _call(*words: str, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(words, check=True, capture_output=True, text=True, cwd=cwd, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise MissingError(f"{words[0]}: {error}") from None
    except subprocess.CalledProcessError as error:
        raise MissingError(f"{' '.join(words)}: {(error.stderr or error.stdout).strip()[-500:]}") from None
    return done.stdout


def _package(meta: str) -> str:
    """The package that a meta package stands for, such as linux-image-6.1.0-56-cloud-amd64."""
    for line in _call("apt-cache", "depends", meta).splitlines():
        word, _, name = line.strip().partition(": ")
        if word == "Depends" and name.startswith("linux-image-"):
            return name
    raise MissingError(f"apt-cache knows no package {meta} (apt-get update)")


def kernel(meta: str = USUAL) -> Path:
    """The kernel's file, of a meta package.

    Raises:
        MissingError: it is not there and cannot be fetched.
    """
    if given := os.environ.get("GPUSIZE_TEST_KERNEL"):
        return Path(given)
    folder = cache() / meta
    if kept := sorted(folder.glob("vmlinuz-*")):
        return kept[-1]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        place = Path(scratch)
        place.chmod(0o755)  # apt-get fetches as a user of its own
        try:
            _call("apt-get", "download", _package(meta), cwd=place)
        except MissingError:
            if os.geteuid() != 0:
                raise
            _call("apt-get", "update", "-qq")  # a new machine has no package lists yet
            _call("apt-get", "download", _package(meta), cwd=place)
        _call("dpkg", "-x", str(next(place.glob("*.deb"))), str(place / "unpacked"))
        found = next((place / "unpacked" / "boot").glob("vmlinuz-*"))
        shutil.move(found, folder / found.name)
        return folder / found.name


def main() -> int:
    """0 when the usual one is there, 1 otherwise."""
    there = []
    for meta in (USUAL, NEWER):
        try:
            print(kernel(meta))
            there.append(meta)
        except MissingError as error:
            print(f"kernel: {error}", file=sys.stderr)
    return int(USUAL not in there)


if __name__ == "__main__":
    sys.exit(main())
