"""A virtual machine for one program: Debian's kernel, an initramfs made here, software emulation, a serial console."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path

QEMU = "qemu-system-x86_64"
INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t cgroup2 cgroup2 /sys/fs/cgroup
/guest || /bin/busybox echo "FAILED $?"
/bin/busybox poweroff -f
"""


def static_busybox() -> Path | None:
    """The busybox of Debian's busybox-static; the other one names the linker that loads its libraries."""
    found = shutil.which("busybox")
    return Path(found) if found and b"/ld-linux" not in Path(found).read_bytes() else None


def initramfs(program: Path, busybox: Path) -> bytes:
    """An archive in cpio's newc format: numbers as eight hexadecimal digits, everything padded to four bytes."""
    folders = ["bin", "dev", "proc", "sys"]
    entries = [(name, stat.S_IFDIR | 0o755, b"") for name in folders]
    entries += [("init", stat.S_IFREG | 0o755, INIT.encode())]
    entries += [("guest", stat.S_IFREG | 0o755, program.read_bytes())]
    entries += [("bin/busybox", stat.S_IFREG | 0o755, busybox.read_bytes())]
    archive = bytearray()
    for number, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")]):
        #            inode   mode  uid gid links mtime size          device   special  name's size      check
        fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
        archive += b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        archive += b"\0" * (-len(archive) % 4) + content
        archive += b"\0" * (-len(archive) % 4)
    return bytes(archive)


def console_of(kernel: Path, archive: Path, timeout_s: float) -> str:
    """Boot it, wait until it powers off, and give what it said."""
    # One thread for both cores: with one each, a core once ran the trap that another had just put over an instruction
    # of the kernel while it patched it, and the kernel took that for a fault of its own ("Oops: int3").
    command = [QEMU, "-accel", "tcg,thread=single", "-smp", "2", "-m", "768"]
    command += ["-nographic", "-no-reboot", "-nic", "none"]
    command += ["-kernel", str(kernel), "-initrd", str(archive)]
    command += ["-append", "console=ttyS0 quiet panic=-1 psi=1 cgroup_no_v1=all"]
    nothing = subprocess.DEVNULL
    done = subprocess.run(command, capture_output=True, timeout=timeout_s, stdin=nothing, check=False)
    return (done.stdout + done.stderr).decode(errors="replace")
