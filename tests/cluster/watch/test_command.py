"""``gpusize cluster sample`` as it is typed, against a server of the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpusize.cli import invoke
from gpusize.cluster.folder import append_rows, update_facts
from tests.cluster.watch.pods import pod, stamps
from tests.cluster.watch.watch_double import WatchDouble


def command(double: WatchDouble, folder: Path, *words: str) -> list[str]:
    return ["cluster", "sample", "--kubeconfig", double.kubeconfig(folder), "-o", str(folder / "out"), *words]


def attempt(number: int) -> dict[str, Any]:
    return {"workload": f"w-{number}", "index": number, "kind": "Pod", "uid": f"uid-{number}", "status": 201}


def test_it_lists_once_and_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with WatchDouble() as double:
        double.put("pods", pod(1, "scheduled"))
        double.put("pods", pod(2, "refused"))
        assert invoke(command(double, tmp_path, "-t", "pod", "--namespace", "team")) == 0
        assert capsys.readouterr().out.splitlines()[0] == "2 workloads, 1 of them complete; 2 pods"
        double.put("pods", pod(2, "ready"))
        assert invoke(command(double, tmp_path, "-t", "pod", "--namespace", "team", "--json")) == 0
        assert not any("watch" in each for each in double.asked)
    told = json.loads(capsys.readouterr().out)
    assert (told["workloads"], told["complete"], told["pods"], told["times"]) == (2, 2, 2, 2)
    sampled = json.loads((tmp_path / "out/sampled.json").read_text())
    assert [each["jobName"] for each in sampled] == ["w-1", "w-2"]
    assert not stamps(tmp_path / "out")["reported"].any()


def test_it_goes_by_what_the_folder_says_was_submitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = [{"api_version": "v1", "kind": "Pod"}]
    update_facts(tmp_path / "out", submit={"run": "r1", "namespace": "team", "kinds": kinds, "state": "done"})
    append_rows(tmp_path / "out", "attempts", [attempt(1)])
    with WatchDouble() as double:
        double.put("pods", pod(1, "ready"))
        double.put("pods", pod(2, "new", run="another"))
        assert invoke(command(double, tmp_path, "--until", "ready", "--no-canary", "--json")) == 0
        assert not any("leases" in each for each in double.asked)
    told = json.loads(capsys.readouterr().out)
    assert (told["pods"], told["namespace"]) == (1, "team")
    assert told["kinds"]["Pod"]["selector"] == "gpusize.dev/run=r1"


def test_another_tests_jobs_in_the_namespace_are_none_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kinds that controllers make are watched without a label: those of an earlier test are seen as well."""
    kinds = [{"api_version": "v1", "kind": "Pod"}]
    update_facts(tmp_path / "out", submit={"run": "r1", "namespace": "team", "kinds": kinds, "state": "done"})
    append_rows(tmp_path / "out", "attempts", [{**attempt(1), "sent_ns": 1_795_825_010_000_000_000}])
    job = {key: value for key, value in pod(7, "new", run="another").items() if key == "metadata"}
    lost = pod(3, "new")
    lost["metadata"]["labels"]["gpusize.dev/workload"] = "j-r1-3"  # its attempt was not written: it was killed
    with WatchDouble() as double:
        double.put("jobs", job)
        double.put("pods", pod(1, "ready"))
        double.put("pods", lost)
        assert invoke(command(double, tmp_path, "--json")) == 0
    assert json.loads(capsys.readouterr().out)["workloads"] == 2
    assert "w-7" in set(stamps(tmp_path / "out")["workload"]), "it was seen"
    assert invoke(["cluster", "report", "-o", str(tmp_path / "out"), "--json"]) == 0
    outcomes = json.loads(capsys.readouterr().out)["outcomes"]
    assert sum(each["n"] for each in outcomes) == 2


def test_a_time_that_is_over_before_they_are_ready_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with WatchDouble() as double:
        double.put("pods", pod(1, "scheduled"))
        words = ("-t", "pod", "--namespace", "team", "--until", "ready", "--for", "300ms")
        assert invoke(command(double, tmp_path, *words)) == 130
        assert invoke(command(double, tmp_path, "-t", "pod", "--namespace", "team", "--for", "300ms")) == 0
    assert "the server's clock is" in capsys.readouterr().out


def test_ctrl_c_ends_it_in_order(tmp_path: Path) -> None:
    with WatchDouble() as double:
        double.put("pods", pod(1, "new"))
        words = command(double, tmp_path, "-t", "pod", "--namespace", "team", "--follow")
        code = "import sys; from gpusize.cli import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        while not double.watching("pods") and process.poll() is None:
            pass
        double.put("pods", pod(1, "scheduled"))
        while not (tmp_path / "out/stamps").exists() and process.poll() is None:
            pass
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 0, err
    assert out.startswith("1 workloads, 1 of them complete; 1 pods")
    assert "bound" in set(stamps(tmp_path / "out")["moment"])


def test_what_cannot_be_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with WatchDouble() as double:
        assert invoke(command(double, tmp_path, "--until", "soon")) == 2
        assert "--until: there is no soon" in capsys.readouterr().err
        assert invoke(command(double, tmp_path, "-t", "zeppelin")) == 2
        assert "zeppelin is not a known type" in capsys.readouterr().err
        assert invoke(command(double, tmp_path, "-t", "training")) == 2
        assert "the cluster knows no TrainingWorkload of run.ai/v2alpha1" in capsys.readouterr().err
        double.refused["/pods"] = 403
        assert invoke(command(double, tmp_path, "-t", "pod", "--namespace", "team")) == 3
        assert "403" in capsys.readouterr().err
    assert invoke(["cluster", "sample", "--kubeconfig", str(tmp_path / "none"), "-o", str(tmp_path / "out")]) == 2
