"""A Docker daemon for tests: one that is there, or one of ours; and an image made from this machine's busybox."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

__all__ = ["IMAGE", "busybox_tree", "daemon_address", "import_image", "our_daemon"]

# Of this test run alone: another one may use the same daemon, and removes its images at its end.
IMAGE = f"gpusize-test/box-{secrets.token_hex(4)}:1"
APPLETS = (
    "sh",
    "cat",
    "cp",
    "ls",
    "sleep",
    "echo",
    "dd",
    "wc",
    "id",
    "rm",
    "env",
    "head",
    "touch",
    "nc",
    "httpd",
    "true",
)
START_S = 60.0


def _answers(address: str) -> bool:
    # The SDK lets the socket of a connection that fails leak, so it is tried first.
    with socket.socket(socket.AF_UNIX) as tried:
        try:
            tried.connect(address.removeprefix("unix://"))
        except OSError:
            return not address.startswith("unix://")
    try:
        client = docker.APIClient(base_url=address, version="auto", timeout=10)
    except docker.errors.DockerException:
        return False
    client.close()
    return True


@contextlib.contextmanager
def daemon_address() -> Iterator[str]:
    """The address of a daemon: ``DOCKER_HOST``, the usual socket, or a daemon of ours in temporary folders."""
    for address in filter(None, (os.environ.get("DOCKER_HOST"), "unix:///var/run/docker.sock")):
        if _answers(address):
            yield address
            return
    program = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None or os.geteuid() != 0:
        pytest.skip("no Docker daemon answers, and none can be started without root and dockerd")
    # A socket's path may have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="gz"))
    address = f"unix://{folder}/d.sock"
    places = {"--data-root": "data", "--exec-root": "exec", "--pidfile": "pid"}
    words = [program, *(word for option, name in places.items() for word in (option, str(folder / name)))]
    with our_daemon([*words, "-H", address], folder, address):
        yield address


@contextlib.contextmanager
def our_daemon(words: list[str], folder: Path, address: str, **more: Any) -> Iterator[None]:
    """A daemon that keeps everything in a folder, which is removed at its end with what is left mounted there."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True, **more)
    try:
        until = time.monotonic() + START_S
        while not _answers(address):
            if process.poll() is not None or time.monotonic() > until:
                tail = (folder / "log").read_text("utf-8", "replace")[-1500:]
                pytest.skip(f"{Path(words[0]).name} does not start here: {tail}")
            time.sleep(0.1)
        yield
    finally:
        _end(process, folder)


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(30)
    if process.poll() is None:
        process.kill()
        process.wait()
    for line in reversed(Path("/proc/mounts").read_text("utf-8").splitlines()):
        if line.split()[1].startswith(f"{folder}/"):
            subprocess.run(["umount", line.split()[1]], check=False)
    shutil.rmtree(folder, ignore_errors=True)


def busybox_tree(more: dict[str, bytes] | None = None) -> bytes:
    """A tar of a root file system with busybox and nothing else, besides some files that may be run."""
    program = shutil.which("busybox")
    if program is None or b"ld-linux" in Path(program).read_bytes()[:4096]:
        pytest.skip("there is no statically linked busybox (Debian: busybox-static)")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tree:
        for folder in ("bin", "tmp", "etc", "models"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tree.addfile(entry)
        files = {"bin/busybox": Path(program).read_bytes(), **(more or {})}
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            tree.addfile(entry, io.BytesIO(data))
        for applet in APPLETS:
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tree.addfile(entry)
    return buffer.getvalue()


def import_image(client: Any, name: str = IMAGE, tree: bytes | None = None, changes: list[str] | None = None) -> str:
    """Make an image out of a tree, without a registry."""
    repository, _, tag = name.rpartition(":")
    said = client.import_image_from_data(tree or busybox_tree(), repository=repository, tag=tag, changes=changes)
    # Podman forgets the tag.
    client.tag(json.loads(said)["status"], repository, tag)
    return name
