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

META_PACKAGE = "linux-image-cloud-amd64"


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


def _package() -> str:
    """The package that the meta package stands for, such as linux-image-6.1.0-56-cloud-amd64."""
    for line in _call("apt-cache", "depends", META_PACKAGE).splitlines():
        word, _, name = line.strip().partition(": ")
        if word == "Depends" and name.startswith("linux-image-"):
            return name
    raise MissingError(f"apt-cache knows no package {META_PACKAGE} (apt-get update)")


def kernel() -> Path:
    """The kernel's file.

    Raises:
        MissingError: it is not there and cannot be fetched.
    """
    if given := os.environ.get("GPUSIZE_TEST_KERNEL"):
        return Path(given)
    folder = cache()
    if kept := sorted(folder.glob("vmlinuz-*")):
        return kept[-1]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        place = Path(scratch)
        place.chmod(0o755)  # apt-get fetches as a user of its own
        try:
            _call("apt-get", "download", _package(), cwd=place)
        except MissingError:
            if os.geteuid() != 0:
                raise
            _call("apt-get", "update", "-qq")  # a new machine has no package lists yet
            _call("apt-get", "download", _package(), cwd=place)
        _call("dpkg", "-x", str(next(place.glob("*.deb"))), str(place / "unpacked"))
        found = next((place / "unpacked" / "boot").glob("vmlinuz-*"))
        shutil.move(found, folder / found.name)
        return folder / found.name


def main() -> int:
    """0 when there is one, 1 otherwise."""
    try:
        print(kernel())
    except MissingError as error:
        print(f"kernel: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
