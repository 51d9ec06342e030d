"""Boots a Debian with systemd, which makes the groups of containers (of version 2) itself, and runs tests in it.

    python -m scripts.machine docker [ARGUMENT OF pytest...]
    python -m scripts.machine podman [ARGUMENT OF pytest...]

Most servers are such machines; where this is built, and in CI, containers' groups are of version 1. Without arguments
the tests of containers are run that need no more than the daemon. The system is made by debootstrap once and kept, and
no run changes it. Needs root, debootstrap, mke2fs, qemu-system-x86_64 and Debian's packages; no KVM: the processor is
emulated and many times slower, so nothing that is read there is a measurement.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scripts.kernel import cache

ROOT = Path(__file__).resolve().parent.parent
SUITE = "bookworm"
PYTHON = "3.11"
PACKAGES = (
    *("systemd", "systemd-sysv", "udev", "dbus", "iproute2", "iptables", "procps", "ca-certificates"),
    *("docker.io", "podman", "netavark", "aardvark-dns", "catatonit", "busybox-static"),
    *("python3", f"libpython{PYTHON}", "linux-image-cloud-amd64", "initramfs-tools"),
)
PLATFORM = ("--python-version", PYTHON, "--platform", "manylinux2014_x86_64", "--platform", "manylinux_2_28_x86_64")
TESTED = ("python", "tests", "scripts", "pyproject.toml")
SOCKETS = {"docker": "/var/run/docker.sock", "podman": "/run/podman/podman.sock"}
TESTS = (
    *("tests/containers/test_run.py", "tests/containers/test_command.py", "tests/containers/test_sample.py"),
    *("tests/containers/test_servers.py", "tests/containers/test_sizing.py", "tests/containers/test_verify.py"),
    # A container takes ten seconds there.
    *("-k", "not many_containers and not a_spike"),
)
DISK = "6G"
SAYS = "machine.py: exit status "

FSTAB = "/dev/vda / ext4 defaults 0 1\n/dev/vdb /opt/src ext4 defaults 0 2\n"
UNIT = """\
[Unit]
After=multi-user.target
[Service]
ExecStart=/bin/sh /opt/src/run.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
[Install]
WantedBy=multi-user.target
"""
RUN = """\
cd /opt/src
export PYTHONPATH=/opt/src/python:/opt/src PYTHONDONTWRITEBYTECODE=1 HOME=/root TERM=dumb
export DOCKER_HOST=unix://{socket} CONTAINER_HOST=unix://{socket}
echo "$(uname -r), groups: $(stat -fc %T /sys/fs/cgroup)"
systemctl start {engine}.socket
python3 -u -m pytest -v -p no:cacheprovider --timeout-method thread {tests}
echo "{says}$?"
sync
poweroff -f
"""


def _call(*words: str | Path) -> None:
    subprocess.run([str(word) for word in words], check=True, stdin=subprocess.DEVNULL)


def system() -> Path:
    """The folder with the system's disk, kernel and initial file system, made where it is not there yet."""
    asked = "\n".join([Path(__file__).read_text("utf-8"), (ROOT / "requirements" / "run.txt").read_text("utf-8")])
    place = cache().parent / "machine" / hashlib.sha256(asked.encode()).hexdigest()[:12]
    if place.is_dir():
        return place
    # An earlier one is of no use any more.
    shutil.rmtree(place.parent, ignore_errors=True)
    place.parent.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        root, made = Path(folder, "root"), Path(folder, "made")
        _call("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, root)
        # pip takes the versions that the tests have here too, as far as they are asked for.
        constraints = ("-c", ROOT / "requirements" / "dev.txt", "-r", ROOT / "requirements" / "run.txt")
        tools = ("pytest", "pytest-timeout", "hypothesis")
        pip = (sys.executable, "-m", "pip", "--quiet", "install", "--only-binary=:all:", *PLATFORM)
        _call(*pip, "--target", root / "usr/local/lib" / f"python{PYTHON}" / "dist-packages", *constraints, *tools)
        units = root / "etc" / "systemd" / "system"
        (units / "trial.service").write_text(UNIT, "utf-8")
        (units / "multi-user.target.wants" / "trial.service").symlink_to("/etc/systemd/system/trial.service")
        (units / "serial-getty@ttyS0.service").symlink_to("/dev/null")
        (root / "etc" / "fstab").write_text(FSTAB, "utf-8")
        (root / "opt" / "src").mkdir()
        made.mkdir()
        for name in ("vmlinuz", "initrd.img"):
            [file] = (root / "boot").glob(f"{name}-*")
            shutil.copy(file, made / name)
        _disk(root, made / "disk", DISK)
        made.rename(place)
    return place


def _disk(folder: Path, file: Path, size: str) -> None:
    _call("truncate", "-s", size, file)
    _call("mke2fs", "-q", "-t", "ext4", "-d", folder, file)


def boot(engine: str, tests: Sequence[str]) -> int:
    """Run tests in the machine and return pytest's exit status; 3 where the machine did not get so far."""
    made = system()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        source.mkdir()
        for name in TESTED:
            here = ROOT / name
            leave = shutil.ignore_patterns("__pycache__", "peers")
            shutil.copytree(here, source / name, ignore=leave) if here.is_dir() else shutil.copy(here, source / name)
        script = RUN.format(engine=engine, socket=SOCKETS[engine], tests=shlex.join(tests), says=SAYS)
        (source / "run.sh").write_text(script, "utf-8")
        _disk(source, Path(folder, "disk"), "512M")
        words = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "4096"]
        words += ["-nographic", "-no-reboot", "-kernel", str(made / "vmlinuz"), "-initrd", str(made / "initrd.img")]
        for disk in (made / "disk", Path(folder, "disk")):
            words += ["-drive", f"file={disk},format=raw,if=virtio,snapshot=on"]
        # Docker asks for AppArmor's programs where the kernel has it on.
        words += ["-append", "root=/dev/vda rw console=ttyS0 apparmor=0 quiet loglevel=3 panic=-1"]
        status = 3
        with subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace"
        ) as vm:
            try:
                for line in vm.stdout or ():
                    print(line.rstrip("\r\n"), flush=True)
                    if line.startswith(SAYS):
                        status = int(line.removeprefix(SAYS))
            finally:
                vm.kill()
    return status


def main(argv: Sequence[str]) -> int:
    """The exit status for the shell."""
    if not argv or argv[0] not in SOCKETS:
        print(__doc__, file=sys.stderr)
        return 2
    lacks = [each for each in ("debootstrap", "mke2fs", "qemu-system-x86_64") if shutil.which(each) is None]
    lacks += ["root"] if os.geteuid() != 0 else []
    if lacks:
        print(f"machine.py: needs {', '.join(lacks)}", file=sys.stderr)
        return 3
    return boot(argv[0], argv[1:] or TESTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
