"""A real Prometheus on loopback, over blocks that promtool made or a target that it scrapes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import httpx

from tests.servers.child import free_ports

__all__ = ["RealPrometheus", "fill", "is_there"]

_READY_S = 60.0


def is_there() -> bool:
    """Whether both programs are on the path."""
    return all(shutil.which(name) is not None for name in ("prometheus", "promtool"))


def fill(folder: Path, lines: Iterable[str]) -> Path:
    """Blocks of a storage, out of lines of OpenMetrics with times; its path.

    Args:
        folder: of the storage and of what goes into it.
        lines: without the last one.
    """
    file = folder / "samples.om"
    with file.open("w") as out:
        out.writelines(f"{line}\n" for line in lines)
        out.write("# EOF\n")
    make = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(file), str(folder / "data")]
    done = subprocess.run(make, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    file.unlink()
    return folder / "data"


class RealPrometheus:
    """One server; a context manager. It may be stopped and started again, on the same port.

    Args:
        folder: with its storage in ``data``, where it has one.
        scrape: addresses of targets, host and port.
        interval: between scrapes.
        flags: of the program.
    """

    def __init__(
        self, folder: Path, *, scrape: Sequence[str] = (), interval: str = "200ms", flags: Sequence[str] = ()
    ) -> None:
        self._folder = folder
        targets = ", ".join(f'"{each}"' for each in scrape)
        job = f"[{{job_name: test, static_configs: [{{targets: [{targets}]}}]}}]" if scrape else "[]"
        config = f"global: {{scrape_interval: {interval}, scrape_timeout: {interval}}}\nscrape_configs: {job}\n"
        (folder / "config.yml").write_text(config)
        self._flags = list(flags)
        (self._port,) = free_ports(1)
        self._child: subprocess.Popen[bytes] | None = None
        # One for all questions: each would read the system's certificates.
        self._client = httpx.Client(trust_env=False, verify=False, timeout=60)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [
            "prometheus",
            f"--config.file={self._folder}/config.yml",
            f"--storage.tsdb.path={self._folder}/data",
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address=127.0.0.1:{self._port}",
            *self._flags,
        ]
        with (self._folder / "log").open("ab") as log:
            self._child = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "GOGC": "50"})
        pause = threading.Event()
        for _ in range(round(_READY_S / 0.05)):
            assert self._child.poll() is None, (self._folder / "log").read_text()[-2000:]
            with contextlib.suppress(httpx.TransportError):
                if self._client.get(f"{self.url}/-/ready").status_code == httpx.codes.OK:
                    return
            pause.wait(0.05)
        raise AssertionError("Prometheus does not get ready")

    def stop(self) -> None:
        """End it as a restart would."""
        if self._child is not None:
            self._child.terminate()
            self._child.wait()
            self._child = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._client.close()

    def query(self, query: str, time_s: float | None = None) -> list[dict[str, Any]]:
        """An instant query's result."""
        form = {"query": query, **({} if time_s is None else {"time": repr(time_s)})}
        answer = self._client.post(f"{self.url}/api/v1/query", data=form)
        assert answer.status_code == httpx.codes.OK, (query, answer.text)
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return found

    def value(self, query: str, time_s: float | None = None) -> float:
        """The value of a query that has one."""
        [only] = self.query(query, time_s)
        return float(only["value"][1])

    def asked(self) -> int:
        """How many queries it has answered since it started, by its own count."""
        page = self._client.get(f"{self.url}/metrics").text
        lines = [line for line in page.splitlines() if line.startswith("prometheus_http_requests_total{")]
        return sum(int(float(line.rpartition(" ")[2])) for line in lines if 'handler="/api/v1/query' in line)
