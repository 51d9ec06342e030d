"""What the doctor says of made-up machines."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from gpusize.doctor.clock import Wakes, clock_findings, timer_finding, wake_up
from gpusize.doctor.cpu import cpu_findings
from gpusize.doctor.examine import examine
from gpusize.doctor.finding import System
from gpusize.doctor.limits import container_findings, limit_findings
from gpusize.doctor.software import software_findings
from gpusize.observe.machine import CpuTimes, cpu_times
from gpusize.observe.metrics.reading import SourceFailed
from tests.doctor.machine import machine, named

IDLE = CpuTimes(1000, 1000, 0)
V1_MOUNTS = """\
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
"""


def test_a_good_machine_has_nothing_to_be_done(tmp_path: Path) -> None:
    system = machine(tmp_path)
    later = CpuTimes(2000, 1950, 0)
    findings = [*cpu_findings(system, IDLE, later), *limit_findings(system)[1:], *container_findings(system)]
    wrong = [finding for finding in findings if finding.verdict != "ok" or finding.todo]
    assert [finding.name for finding in wrong if finding.name != "cores"] == []
    assert named(findings, "others").value == "5% of the cores busy with other work, load 0.25"
    assert named(findings, "local ports").facts["connections_per_target"] == 28_232
    assert named(findings, "closed ports").facts == {"connects_per_s": pytest.approx(470.5, abs=0.1)}
    assert named(findings, "control groups").value == "v2"
    assert named(findings, "memory").value == "8 GiB, no limit of a container"
    assert "Fast CPU 9000" in named(findings, "cores").value


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    system = System(tmp_path)
    findings = [*cpu_findings(system, None, None), *limit_findings(system), *container_findings(system)]
    assert named(findings, "local ports").verdict == "warn"
    assert named(findings, "memory").value == "the system does not report it, no limit of a container"
    assert named(findings, "control groups").value == "none"
    assert "others" not in [finding.name for finding in findings]
    assert cpu_times("") is None


def test_busy_and_robbed_cores(tmp_path: Path) -> None:
    findings = cpu_findings(machine(tmp_path), IDLE, CpuTimes(2000, 1500, 100))
    assert named(findings, "others").verdict == "warn"
    assert named(findings, "steal").value == "10.0% taken away by the host"
    assert "dedicated" in named(findings, "steal").todo


def test_the_first_line_of_proc_stat() -> None:
    stat = "cpu  10 20 30 400 50 6 7 8 1000 1000\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
    assert cpu_times(stat) == CpuTimes(531, 450, 8), "guests are in user and nice already"


def test_a_governor_that_saves_power(tmp_path: Path) -> None:
    slow = machine(tmp_path, sys__devices__system__cpu__cpu0__cpufreq__scaling_governor="powersave\n")
    assert named(cpu_findings(slow, None, None), "governor").verdict == "warn"


@pytest.mark.parametrize("reuse, said", [("0", "never; else"), ("1", "towards any target"), ("2", "towards this mach")])
def test_closed_ports(tmp_path: Path, reuse: str, said: str) -> None:
    findings = limit_findings(machine(tmp_path, proc__sys__net__ipv4__tcp_tw_reuse=reuse))
    assert said in named(findings, "closed ports").value


def test_few_ports_and_a_short_queue(tmp_path: Path) -> None:
    tight = {"proc__sys__net__ipv4__ip_local_port_range": "40000 40999", "proc__sys__net__core__somaxconn": "128"}
    findings = limit_findings(machine(tmp_path, **tight))
    assert "--source-address" in named(findings, "local ports").todo
    assert named(findings, "somaxconn").verdict == "warn"


@pytest.mark.parametrize(
    "soft, hard, verdict, prevents",
    [(1024, 1_048_576, "ok", False), (1024, 4096, "warn", False), (64, 64, "warn", True), (-1, -1, "ok", False)],
)
def test_open_files(monkeypatch, tmp_path: Path, soft: int, hard: int, verdict: str, prevents: bool) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, hard))
    found = named(limit_findings(machine(tmp_path)), "open files")
    assert (found.verdict, found.prevents) == (verdict, prevents)


def test_limits_of_version_2(tmp_path: Path) -> None:
    system = machine(
        tmp_path,
        **{
            "sys__fs__cgroup__system.slice__cpu.max": "150000 100000\n",
            "sys__fs__cgroup__system.slice__run.scope__memory.max": "536870912\n",
        },
    )
    findings = container_findings(system)
    assert named(findings, "CPU limit").value == "1.5 cores", "that of the group above holds as well"
    assert named(findings, "memory").value == "0.5 GiB, limit of the container 0.5 GiB"
    assert named(findings, "memory").verdict == "warn"


def test_limits_of_version_1(tmp_path: Path) -> None:
    system = machine(
        tmp_path,
        **{
            "proc__self__mountinfo": V1_MOUNTS,
            "proc__self__cgroup": "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/x\n0::/\n",
            "sys__fs__cgroup__cpu,cpuacct__docker__abc__cpu.cfs_quota_us": "-1\n",
            "sys__fs__cgroup__cpu,cpuacct__docker__cpu.cfs_quota_us": "200000\n",
            "sys__fs__cgroup__cpu,cpuacct__docker__cpu.cfs_period_us": "100000\n",
            "sys__fs__cgroup__memory__docker__abc__memory.limit_in_bytes": "9223372036854771712\n",
            "sys__fs__cgroup__memory__docker__memory.limit_in_bytes": "4294967296\n",
        },
    )
    findings = container_findings(system)
    assert named(findings, "control groups").value == "v1"
    assert named(findings, "CPU limit").facts == {"cores": 2.0}
    assert named(findings, "memory").value == "4 GiB, limit of the container 4 GiB"


def test_both_versions_at_once(tmp_path: Path) -> None:
    unified = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    system = machine(tmp_path, proc__self__mountinfo=V1_MOUNTS + unified)
    assert named(container_findings(system), "control groups").value == "hybrid"


def test_clocks(tmp_path: Path) -> None:
    second = 1_000_000_000
    findings = clock_findings(machine(tmp_path), (0, 0, 20), (second, second + 50_000, 20))
    assert "tsc, steps of 1 ns" in named(findings, "clock").value
    assert named(findings, "time of day").verdict == "ok"
    assert named(findings, "time of day").facts["wall_drift_ppm"] == pytest.approx(50)
    jumped = clock_findings(machine(tmp_path), (0, 0, 20), (second, second + 600_000, 20))
    assert named(jumped, "time of day").verdict == "warn"
    unsure = clock_findings(machine(tmp_path), (0, 0, 20), (second, second + 600_000, 300_000))
    assert named(unsure, "time of day").verdict == "ok", "not more than the readings' own error"


def test_timers() -> None:
    assert timer_finding(Wakes(6e-5, 2e-4, 9e-3), 50_000).verdict == "ok"
    late = timer_finding(Wakes(6e-5, 2e-3, 9e-3), None)
    assert (late.verdict, late.facts) == ("warn", {"p50_s": 6e-5, "p99_s": 2e-3, "max_s": 9e-3})
    wakes = wake_up(20, 1e-4)
    assert 0 <= wakes.p50_s <= wakes.p99_s <= wakes.most_s


def no_driver() -> list[str]:
    raise SourceFailed("no NVIDIA driver on this machine", final=True)


def no_docker() -> str:
    try:
        raise FileNotFoundError(2, "No such file or directory")
    except OSError as error:
        raise RuntimeError(f"Error while fetching: ({error!r})") from error


def test_software() -> None:
    findings = software_findings(gpus=lambda: ["H200", "H200"], ping=lambda: "29.1")
    assert named(findings, "GPUs").value == "2: H200"
    assert named(findings, "Docker").value == "version 29.1"
    lacking = software_findings(gpus=no_driver, ping=no_docker)
    assert [(finding.verdict, finding.prevents) for finding in lacking[1:]] == [("lacks", False)] * 2
    assert named(lacking, "Docker").value == "not reachable: No such file or directory"


def test_without_the_extension_nothing_else_is_looked_at(monkeypatch) -> None:
    import gpusize.engine.session
    from gpusize.base.errors import EnvironmentLacks

    def missing() -> None:
        raise EnvironmentLacks("the gpusize extension cannot be loaded", "gpusize._core", "install it again")

    monkeypatch.setattr(gpusize.engine.session, "core", missing)
    findings = examine(quick=True)
    assert findings[0].prevents
    assert {finding.group for finding in findings} == {"software"}
