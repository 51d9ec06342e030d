"""What is said of a GPU, held against a real one: by nvidia-smi, by the GPU's own events, by a program's own sizes.

``make test-gpu`` runs these on a machine that has an NVIDIA GPU, PyTorch and nvidia-smi. Each figure is had a second
time by another way.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import gpusize
from gpusize.observe.metrics.nvml import LocalGpus
from gpusize.observe.metrics.prometheus_text import parse_labels

pytestmark = [pytest.mark.gpu, pytest.mark.alone("the GPU and its clocks are one")]

PROGRAMS = Path(__file__).with_name("programs.py")
GIB = 1 << 30


def smi(query: str, what: str = "gpu") -> list[list[str]]:
    """Rows of nvidia-smi, which reads the driver by itself."""
    command = ["nvidia-smi", f"--query-{what}={query}", "--format=csv,noheader,nounits"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [[cell.strip() for cell in line.split(",")] for line in told.splitlines() if line.strip()]


def program(*arguments: str) -> list[str]:
    return [sys.executable, str(PROGRAMS), *arguments]


def command(*arguments: str, cwd: Path) -> dict:
    """The document that a command of gpusize prints."""
    line = [sys.executable, "-m", "gpusize", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == 0, done.stderr
    document: dict = json.loads(done.stdout)
    return document


@contextmanager
def running(*arguments: str) -> Iterator[Iterator[dict]]:
    """A program beside the test, and what it prints; ended with the block."""
    with subprocess.Popen(program(*arguments), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield map(json.loads, child.stdout)
        finally:
            child.kill()


@pytest.fixture
def gpus() -> Iterator[LocalGpus]:
    source = LocalGpus()
    source.open()
    yield source
    source.close()


def values(source: LocalGpus) -> dict[str, dict[str, float]]:
    """By UUID and name what one reading told."""
    made: dict[str, dict[str, float]] = {}
    for (metric, labels), value in source.read().values.items():
        made.setdefault((parse_labels(labels) or {})["gpu"], {})[metric] = value
    return made


def test_facts_are_those_of_nvidia_smi(gpus: LocalGpus):
    told = values(gpus)
    rows = smi("uuid,memory.total,enforced.power.limit")
    assert {row[0] for row in rows} == set(told)
    for uuid, total_mib, limit_w in rows:
        assert told[uuid]["nvml_memory_total_bytes"] == pytest.approx(float(total_mib) * 2**20, rel=0.02)
        assert told[uuid]["nvml_power_limit_watts"] == pytest.approx(float(limit_w), rel=0.001)
    assert gpus.notes() == []


def test_energy_is_power_times_time(gpus: LocalGpus):
    first = values(gpus)
    samples: list[tuple[float, float]] = []
    over = threading.Event()

    def poll() -> None:
        while not over.is_set():
            samples.append((time.monotonic(), sum(float(row[0]) for row in smi("power.draw.instant"))))

    begun = time.monotonic()
    poller = threading.Thread(target=poll)
    poller.start()
    subprocess.run(program("duty", "0.9", "8"), check=True, capture_output=True)
    time.sleep(2)
    over.set()
    poller.join()
    spent = sum(
        now["nvml_energy_joules_total"] - first[uuid]["nvml_energy_joules_total"] for uuid, now in values(gpus).items()
    )
    took = time.monotonic() - begun
    t, watts = (np.array(column) for column in zip(*samples, strict=True))
    integral = np.trapezoid(watts, t) * took / (t[-1] - t[0])
    print(f"energy counter {spent:.0f} J, power of nvidia-smi times time {integral:.0f} J, {len(samples)} readings")
    assert watts.max() > 1.5 * watts.min()
    assert spent == pytest.approx(integral, rel=0.1)


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_utilization_is_the_share_of_time_with_a_kernel(gpus: LocalGpus, share: float):
    seen = []
    with running("duty", str(share), "8") as lines:
        assert next(lines)["ready"]
        time.sleep(1)
        values(gpus)
        for _ in range(6):
            time.sleep(1)
            seen.append(max(each["nvml_gpu_utilization"] for each in values(gpus).values()))
        told = next(lines)
    busy = told["busy_s"] / told["over_s"]
    print(f"utilization {np.mean(seen):.3f} {np.round(seen, 2)}, by the GPU's events {busy:.3f}")
    assert np.mean(seen) == pytest.approx(busy, abs=0.06)


def test_memory_of_a_command_is_what_it_holds(tmp_path: Path):
    size = 6 * GIB
    told = command("sample", "--quiet", "--no-plots", "--json", "--", *program("hold", str(size), "4"), cwd=tmp_path)
    (use,) = told["gpus"]
    print(f"held {size / GIB:.2f} GiB, told {use['mem_peak_bytes'] / GIB:.2f} GiB ({use['mem_from']})")
    # What CUDA itself needs of a process comes on top.
    assert size < use["mem_peak_bytes"] < size + 1.5 * GIB


@pytest.fixture
def server() -> Iterator[str]:
    with running("serve") as lines:
        yield f"http://127.0.0.1:{next(lines)['port']}/work"


def test_a_server_is_measured_and_sized_as_its_own_log_says(server: str, tmp_path: Path):
    """Utilization is throughput times service time; a GPU that serves one after the other carries users by hand."""
    loads = ["--concurrencies", "1,2,4", "--duration", "12s", "--warmup", "2s"]
    more = ["--api", "generic", "--prompt", "go", "--gpus", "1", "--gpu-sample", "--no-plots", "--quiet", "--json"]
    slo = ["--users", "16", "--slo", "p95 runtime <= 130ms"]
    told = command("run", "--url", server, *loads, *more, *slo, cwd=tmp_path)
    with urllib.request.urlopen(server) as answer:
        log = np.array(json.loads(answer.read()))
    service_s = float(np.median(log[:, 1]))
    result = gpusize.open_run(next((tmp_path / "runs").iterdir()))
    print(f"service time by the GPU's events {service_s * 1e3:.2f} ms, {len(log)} requests")
    shown = ("concurrency", "achieved_rate", "runtime_p50_s", "runtime_p95_s", "server_gpu_power_w")
    for row in result.summary.iter_rows(named=True):
        busy = row["server_gpu_utilization"]
        print({name: row[name] for name in shown}, f"busy {busy:.3f}, by law {row['achieved_rate'] * service_s:.3f}")
        assert row["runtime_p50_s"] == pytest.approx(row["concurrency"] * service_s, rel=0.1)
        assert busy == pytest.approx(row["achieved_rate"] * service_s, abs=0.1)
        assert row["server_gpu_power_w"] / row["server_gpu_power_limit_w"] == pytest.approx(
            row["server_gpu_power_share"], rel=0.01
        )
    estimate = told["estimates"][0]
    print({name: estimate[name] for name in ("method", "gpus", "gpus_low", "gpus_high", "warnings")})
    # Two users of a GPU wait for one another, 100 ms; three would take 150 ms.
    assert estimate["gpus"] == 8
