"""Build the environments of the servers and clients that the tests and the benchmarks compare gpusize with.

Each is kept under ``${XDG_CACHE_HOME:-~/.cache}/gpusize-peers/<name>-<hash>``; the hash is that of its requirement
file, the Python it is for and the recipe here, so a second call finds what the first one made. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LOAD_PEERS", "PEERS", "TEST_PEERS", "Missing", "default_root", "main", "peer_folder", "peer_pieces"]

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements" / "peers"
DONE = "pieces.json"
UNUSED_DAYS = 30

# perf_analyzer: the last tritonclient that carries the binary, and the two libraries that it is linked with and lacks.
TRITONCLIENT = "tritonclient==2.50.0"
CUDA_RUNTIME = "nvidia-cuda-runtime-cu12==12.9.79"
LIBB64 = "libb64-0d"

# llama.cpp: no instructions that the next machine may lack (a kept wheel may move there), no image models. The package
# insists on a library that it does not load and that takes half of the time; CMake includes LLAMA_INCLUDE right after
# llama.cpp's own project(), where a plain variable overrules the package's.
LLAMA_CMAKE = "-DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DLLAVA_BUILD=OFF"
LLAMA_INCLUDE = "set(LLAMA_BUILD_COMMON OFF)\n"

# Its own server, out of the same package's source: one program without TLS, pages or programs that it would start.
LLAMA_SERVER_CMAKE = (
    "-DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DLLAMA_BUILD_TESTS=OFF "
    "-DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF "
    "-DLLAMA_SUBPROCESS=OFF"
)

GO_MODULES = {"k6": "go.k6.io/k6"}
PROGRAMS = ROOT / "tests" / "peers" / "programs"
"""Programs of our own around packages of Kubernetes; their go.mod say of which version."""
GO_PROGRAMS = ("hpa", "kube", "kueue")
KUBE_VERSION = "k8s.io/component-base/version"
"""Whose variables the linker sets, in Kubernetes's own builds too: the API server says them, clients go by them."""
KUEUE = "sigs.k8s.io/kueue"
KUBE_BUILD = ("-trimpath", "-buildvcs=false", "-ldflags")
HPA_BUILD = ("-c", "-trimpath", "-buildvcs=false", "-vet=off")


class Missing(Exception):
    """A piece cannot be had here; the text says why."""


@dataclass(frozen=True)
class Place:
    """Where one peer is built, and where things shared between its versions are kept."""

    name: str
    folder: Path
    root: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def requirements(self) -> Path:
        return REQUIREMENTS / f"{self.name}.txt"

    @property
    def version(self) -> str:
        """The version that the requirement file gives the peer itself."""
        start = f"{self.name}=="
        lines = self.requirements.read_text(encoding="utf-8").splitlines()
        return next(line for line in lines if line.startswith(start)).removeprefix(start)

    @property
    def log(self) -> Path:
        return self.root / f"{self.name}.log"


def call(place: Place, command: Sequence[object], **environment: str) -> None:
    """Run a command with its output in the peer's log; raises Missing with the last lines when it fails."""
    with place.log.open("a", encoding="utf-8") as log:
        print("+", *command, file=log, flush=True)
        done = subprocess.run(
            [str(part) for part in command],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
        )
    if done.returncode != 0:
        tail = place.log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:]
        raise Missing(
            f"{Path(str(command[0])).name} ended with {done.returncode} (see {place.log}):\n  " + "\n  ".join(tail)
        )


def pip(place: Place, *arguments: object, **environment: str) -> None:
    """The environment's own pip."""
    flags = ("--disable-pip-version-check", "--quiet", "--no-input")
    call(place, (place.python, "-m", "pip", *arguments, *flags), **environment)


def packages(place: Place) -> None:
    """An empty environment and the packages of the requirement file."""
    shutil.rmtree(place.folder, ignore_errors=True)
    call(place, (sys.executable, "-m", "venv", place.folder))
    pip(place, "install", "-r", place.requirements)


def llama_pin() -> str:
    """The package with llama.cpp and its version."""
    lines = (REQUIREMENTS / "llama.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("llama-cpp-python=="))


def llama_packages(place: Place) -> None:
    """As ``packages``, with llama.cpp compiled once and its wheel kept."""
    pin = llama_pin()
    recipe = hashlib.sha256(f"{pin} {LLAMA_CMAKE} {LLAMA_INCLUDE}".encode()).hexdigest()[:12]
    wheels = place.root / "wheels" / recipe
    if not list(wheels.glob("llama_cpp_python-*.whl")):
        shutil.rmtree(place.folder, ignore_errors=True)
        call(place, (sys.executable, "-m", "venv", place.folder))
        print("peers: llama: compiling llama.cpp (minutes, once)", file=sys.stderr, flush=True)
        # Into a folder beside it first: a wheel that is there is whole.
        with tempfile.TemporaryDirectory(dir=place.root) as fresh:
            only = ("--no-deps", "--no-binary", "llama-cpp-python", "--no-cache-dir")
            include = Path(fresh, "llama.cmake")
            include.write_text(LLAMA_INCLUDE, encoding="utf-8")
            flags = f"{LLAMA_CMAKE} -DCMAKE_PROJECT_llama.cpp_INCLUDE={include}"
            pip(place, "wheel", *only, "--wheel-dir", f"{fresh}/wheels", pin, CMAKE_ARGS=flags)
            wheels.parent.mkdir(exist_ok=True)
            shutil.rmtree(wheels, ignore_errors=True)
            Path(fresh, "wheels").rename(wheels)
    shutil.rmtree(place.folder, ignore_errors=True)
    call(place, (sys.executable, "-m", "venv", place.folder))
    # The file itself: an index may offer the same version built with other flags.
    (wheel,) = wheels.glob("llama_cpp_python-*.whl")
    pip(place, "install", wheel, "-r", place.requirements)


def llama_server(place: Place) -> None:
    """``bin/llama-server``, compiled from the source in the package, by the environment's own CMake and Ninja."""
    print("peers: llama-server: compiling (ten minutes, once)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=place.root) as fresh:
        only = ("--no-deps", "--no-binary", "llama-cpp-python", "--no-cache-dir")
        pip(place, "download", *only, "--dest", fresh, llama_pin())
        (archive,) = Path(fresh).glob("llama_cpp_python-*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(fresh, filter="data")
        (source,) = Path(fresh).glob("llama_cpp_python-*/vendor/llama.cpp")
        cmake, built = place.folder / "bin" / "cmake", Path(fresh, "built")
        ninja = f"-DCMAKE_MAKE_PROGRAM={place.folder / 'bin' / 'ninja'}"
        call(place, (cmake, "-S", source, "-B", built, "-G", "Ninja", ninja, *LLAMA_SERVER_CMAKE.split()))
        call(place, (cmake, "--build", built, "--target", "llama-server"))
        shutil.copy(built / "bin" / "llama-server", place.folder / "bin" / "llama-server")


def perf_analyzer(place: Place) -> None:
    """``bin/perf_analyzer``: the binary from an old package, with the libraries it needs beside it."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise Missing(f"the binary is for Linux on x86_64, this is {platform.system()} on {platform.machine()}")
    home = place.folder / "perf_analyzer"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    with tempfile.TemporaryDirectory(dir=place.root) as fresh:
        pip(place, "download", "--no-deps", "--dest", fresh, TRITONCLIENT, CUDA_RUNTIME)
        for wheel in Path(fresh).glob("*.whl"):
            _unpack(wheel, ("/bin/perf_analyzer", "/libcudart.so.12"), home)
        _libb64(place, Path(fresh), home)
    (home / "perf_analyzer").chmod(0o755)
    wrapper = place.folder / "bin" / "perf_analyzer"
    wrapper.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{home}" exec "{home}/perf_analyzer" "$@"\n', encoding="utf-8")
    wrapper.chmod(0o755)
    # Without arguments it prints its usage; a missing library shows here and not in the first test.
    usage = subprocess.run([wrapper], check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if "Usage" not in usage.stdout + usage.stderr:
        raise Missing(f"perf_analyzer does not start: {(usage.stderr or usage.stdout).strip()[:500]}")


def _unpack(wheel: Path, endings: tuple[str, ...], into: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(endings):
                (into / Path(name).name).write_bytes(archive.read(name))


def _libb64(place: Place, scratch: Path, home: Path) -> None:
    """``libb64.so.0d``, out of Debian's package: nothing is installed on the machine."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise Missing(f"perf_analyzer needs libb64.so.0d, which comes from Debian's package {LIBB64}")
    fetch = ("sh", "-c", f'cd "$1" && apt-get download {LIBB64}', "sh", scratch)
    try:
        call(place, fetch)
    except Missing:
        if os.geteuid() != 0:
            raise
        call(place, ("apt-get", "update", "-qq"))  # a new machine has no package lists yet
        call(place, fetch)
    call(place, ("dpkg", "-x", next(scratch.glob("*.deb")), scratch / "deb"))
    library = next((scratch / "deb").rglob("libb64.so.0d"))
    shutil.copy(library, home / "libb64.so.0d")


def crate(place: Place) -> None:
    """``bin/NAME``: a program from the crate registry, compiled with the versions that its authors locked."""
    _compiled(place, "cargo", "install", place.name, "--version", place.version, "--locked", "--root", place.folder)


def go_module(place: Place) -> None:
    """``bin/NAME``: a program from the Go module proxy."""
    _compiled(place, "go", "install", f"{GO_MODULES[place.name]}@v{place.version}", GOBIN=str(place.folder / "bin"))


def go_program(place: Place) -> None:
    """``bin/hpa``: a test binary, since only tests have a clock of their own in Go.

    Compiled as ``kube`` is: most packages are the same, and Go compiles them anew for other options.
    """
    words = (*HPA_BUILD, "-o", place.folder / "bin" / place.name)
    _compiled(place, "go", "-C", PROGRAMS / place.name, "test", *words, CGO_ENABLED="0")


def kube_program(place: Place) -> None:
    """``bin/kube``: a control plane in one program, without symbols, linked with nothing of the machine's."""
    major, minor, _ = place.version.split(".")
    said = {"gitVersion": f"v{place.version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = " ".join(["-s -w", *(f"-X {KUBE_VERSION}.{name}={value}" for name, value in said.items())])
    words = (*KUBE_BUILD, flags, "-o", place.folder / "bin" / place.name, ".")
    _compiled(place, "go", "-C", PROGRAMS / place.name, "build", *words, CGO_ENABLED="0")


def kueue_program(place: Place) -> None:
    """``bin/kueue``: Kueue's parts for Jobs, compiled with the packages that ``kube`` is compiled with."""
    words = (*KUBE_BUILD, "-s -w", "-o", place.folder / "bin" / place.name, ".")
    _compiled(place, "go", "-C", PROGRAMS / place.name, "build", *words, CGO_ENABLED="0")


def kueue_config(place: Place) -> None:
    """``config``: the definitions of its kinds and its webhooks, which lie beside its code."""
    asked = ("go", "-C", PROGRAMS / place.name, "list", "-m", "-f", "{{.Dir}}", KUEUE)
    module = subprocess.run(asked, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout.strip()
    shutil.rmtree(place.folder / "config", ignore_errors=True)
    for part in ("crd/bases", "webhook"):
        target = place.folder / "config" / "components" / part
        target.mkdir(parents=True)
        for file in Path(module, "config", "components", part).glob("*.yaml"):
            # The module cache is read-only, and this is not.
            (target / file.name).write_bytes(file.read_bytes())


def _compiled(place: Place, compiler: str, *words: object, **environment: str) -> None:
    if not shutil.which(compiler):
        raise Missing(f"{place.name} is compiled by {compiler}, which is not on PATH")
    print(f"peers: {place.name}: compiling (minutes, once)", file=sys.stderr, flush=True)
    place.folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.root) as fresh:
        call(place, (compiler, *words), CARGO_TARGET_DIR=fresh, **environment)


TEST_PEERS: dict[str, dict[str, Callable[[Place], None]]] = {
    "triton": {"packages": packages},
    "clients": {"packages": packages, "perf_analyzer": perf_analyzer},
    "llama": {"packages": llama_packages},
    "hpa": {"program": go_program},
    "kube": {"program": kube_program},
}
"""Those that the tests need."""

LOAD_PEERS: dict[str, dict[str, Callable[[Place], None]]] = {
    "guidellm": {"packages": packages},
    "aiperf": {"packages": packages},
    "locust": {"packages": packages},
    "oha": {"program": crate},
    "k6": {"program": go_module},
}
"""Load generators that only a benchmark needs."""

SAMPLE_PEERS: dict[str, dict[str, Callable[[Place], None]]] = {"psutil": {"packages": packages}}
"""What `make bench-sample` puts beside the sampler."""

REAL_PEERS: dict[str, dict[str, Callable[[Place], None]]] = {
    "llama-server": {"packages": packages, "program": llama_server},
}
"""What `make bench-real` measures besides."""

QUEUE_PEERS: dict[str, dict[str, Callable[[Place], None]]] = {
    "kueue": {"program": kueue_program, "config": kueue_config},
}
"""A second scheduler on the control plane ``kube``; built when asked for by name, as it takes minutes more."""

PEERS = {**TEST_PEERS, **LOAD_PEERS, **SAMPLE_PEERS, **REAL_PEERS, **QUEUE_PEERS}
"""The peers; each is pieces in the order in which they are made."""


def default_root() -> Path:
    """Where peers are kept unless told otherwise."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpusize-peers"


def peer_folder(name: str, root: Path | None = None) -> Path:
    """The folder of a peer's environment for the Python that runs this, whether it is there or not."""
    recipe = [
        (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8"),
        f"{sys.implementation.cache_tag} {platform.python_version()} {sys.base_prefix} {platform.machine()}",
        f"{TRITONCLIENT} {CUDA_RUNTIME} {LIBB64}" if name == "clients" else "",
        f"{LLAMA_CMAKE} {LLAMA_INCLUDE}" if name == "llama" else "",
        "".join(each.read_text(encoding="utf-8") for each in sorted((PROGRAMS / name).rglob("*")) if each.is_file())
        if name in GO_PROGRAMS
        else "",
        # Not in the others' recipes, whose folders would change their names.
        *([f"{llama_pin()} {LLAMA_SERVER_CMAKE}"] if name == "llama-server" else []),
    ]
    return (root or default_root()) / f"{name}-{hashlib.sha256('|'.join(recipe).encode()).hexdigest()[:12]}"


def peer_pieces(folder: Path) -> set[str]:
    """The pieces that are whole in a peer's folder."""
    try:
        return set(json.loads((folder / DONE).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return set()


@contextlib.contextmanager
def _locked(root: Path, name: str) -> Iterator[None]:
    with (root / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"peers: {name}: waiting for another build of it", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _drop_unused(place: Place) -> None:
    """Remove environments of this peer that nobody has asked for in a month."""
    for other in place.root.glob(f"{place.name}-*"):
        marker = other / DONE
        if other != place.folder and marker.exists() and time.time() - marker.stat().st_mtime > UNUSED_DAYS * 86400:
            shutil.rmtree(other)


def build(name: str, root: Path) -> bool:
    """Make the missing pieces of one peer, one build at a time; whether all are there now."""
    root.mkdir(parents=True, exist_ok=True)
    place = Place(name, peer_folder(name, root), root)
    with _locked(root, name):
        start = time.monotonic()
        done = peer_pieces(place.folder)
        new = [piece for piece in PEERS[name] if piece not in done]
        if new:
            place.log.write_text("", encoding="utf-8")
        for piece in new:
            try:
                PEERS[name][piece](place)
            except Missing as error:
                print(f"peers: {name}: no {piece}: {error}", file=sys.stderr, flush=True)
                break
            done.add(piece)
            (place.folder / DONE).write_text(json.dumps(sorted(done)), encoding="utf-8")
        if done:
            (place.folder / DONE).touch()
        _drop_unused(place)
        whole = done >= set(PEERS[name])
        how = f"made in {time.monotonic() - start:.0f} s" if new else "was there"
        print(f"peers: {name}: {how if whole else 'not whole'}: {place.folder}", flush=True)
        return whole


def main() -> int:
    """0 when every peer asked for is whole, 1 otherwise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = f"{', '.join(PEERS)}; by default those that the tests need: {', '.join(TEST_PEERS)}"
    parser.add_argument("names", nargs="*", metavar="NAME", help=names)
    parser.add_argument("--load", action="store_true", help=f"the load generators: {', '.join(LOAD_PEERS)}")
    parser.add_argument("--where", type=Path, default=default_root(), help="folder to keep them in (%(default)s)")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(PEERS)):
        parser.error(f"no such peer: {', '.join(unknown)}; there are {', '.join(PEERS)}")
    asked = [*(arguments.names or ([] if arguments.load else TEST_PEERS)), *(LOAD_PEERS if arguments.load else ())]
    whole = [build(name, arguments.where.resolve()) for name in asked]
    return int(not all(whole))


if __name__ == "__main__":
    sys.exit(main())
