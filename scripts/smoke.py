"""Does an installed gpusize work? Run by the interpreter it is installed for, with an empty folder to write into."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gpusize
from gpusize import _core


def main(folder: Path) -> None:
    command = Path(sys.executable).with_name("gpusize")
    if "site-packages" not in Path(gpusize.__file__).parts:
        sys.exit(f"smoke: imported from {gpusize.__file__}, not from the installed wheel")
    if _core.BUILD_PROFILE != "release":
        sys.exit(f"smoke: the extension is a {_core.BUILD_PROFILE} build")
    for name in gpusize.__all__:
        getattr(gpusize, name)
    version = subprocess.run([command, "--version"], check=True, capture_output=True, text=True).stdout
    if gpusize.__version__ not in version:
        sys.exit(f"smoke: gpusize --version says {version!r}")
    run = subprocess.run(
        [command, "run", "--concurrencies", "1,2,4", "--passes", "1", "--out", folder / "runs", "--json"],
        check=False,
        capture_output=True,
        text=True,
    )
    if run.returncode not in {0, 1}:  # 1 is a measured "no", a good answer to so short a run
        sys.exit(f"smoke: gpusize run ended with {run.returncode}:\n{run.stderr}")
    json.loads(run.stdout)
    if not list((folder / "runs").glob("*/levels/*/records/*.parquet")):
        sys.exit("smoke: no records on disk")
    print(f"smoke: gpusize {gpusize.__version__} works on CPython {sys.version.split()[0]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
