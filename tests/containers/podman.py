"""Podman's service, which speaks Docker's API, with all that it keeps in temporary folders."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.engine import our_daemon

__all__ = ["podman_address"]

# No systemd to ask for groups and to log to. Limits below those of this process, which may not be raised everywhere,
# and equal, since 4.3 takes the lower for the upper one. A folder for networks, or everybody's Podman would find them.
CONFIG = """\
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
{runtime}
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""


@contextlib.contextmanager
def podman_address() -> Iterator[str]:
    """The address of a service of ours."""
    program = shutil.which("podman")
    if program is None or os.geteuid() != 0:
        pytest.skip("no Podman service can be started without root and podman")
    folder = Path(tempfile.mkdtemp(prefix="gp"))
    address = f"unix://{folder}/p.sock"
    # Debian's crun refuses machines that have both versions of cgroups.
    runc = shutil.which("runc", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    config = CONFIG.format(folder=folder, runtime='runtime = "runc"' if runc else "")
    (folder / "containers.conf").write_text(config, "utf-8")
    environment = {**os.environ, "CONTAINERS_CONF": f"{folder}/containers.conf"}
    environment.pop("CONTAINER_HOST", None)
    places = {"--root": "root", "--runroot": "run", "--tmpdir": "tmp"}
    words = [program, *(word for option, name in places.items() for word in (option, str(folder / name)))]
    service = [*words, "system", "service", "--time=0", address]
    with our_daemon(service, folder, address, env=environment):
        yield address
