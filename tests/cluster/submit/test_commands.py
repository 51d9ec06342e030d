"""``gpusize cluster submit`` and ``clean`` as they are typed: exit codes, what is said, Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from ruamel.yaml import YAML

from gpusize.cluster.folder import read_facts, scan_table
from gpusize.cluster.submit.templates import template_names
from tests.cli.conftest import Gpusize, gpusize
from tests.cluster.api_double import ApiDouble, Asked, Reply, refusal

__all__ = ["gpusize"]


@pytest.mark.parametrize("kind", ["training", "distributed", "job"])
def test_a_dry_run_prints_what_would_be_sent_and_asks_no_server(gpusize: Gpusize, tmp_path: Path, kind: str) -> None:
    asked = ("cluster", "submit", "-t", kind, "--namespace", "runai-project-0")
    done = gpusize(*asked, "-n", 7, "--dry-run", "-o", "out", "--kubeconfig", tmp_path / "none")
    assert done.code == 0, done.err
    assert "nothing was sent. This is the first workload of 7" in done.err
    assert not (tmp_path / "out").exists()
    printed = list(YAML(typ="safe").load_all(done.out))
    with ApiDouble() as double:
        config = double.kubeconfig(tmp_path)
        assert gpusize(*asked, "-n", 1, "-o", "sent", "--kubeconfig", config).code == 0
        created = list(double.objects.values())
    run = [each["metadata"]["labels"]["gpusize.dev/run"] for each in (printed[0], created[0])]
    assert sorted(plain(each, run[0]) for each in printed) == sorted(plain(each, run[1]) for each in created)


def plain(made: dict[str, Any], run: str) -> str:
    """An object whatever its run is called, without what a server adds."""
    kept = {key: value for key, value in made["metadata"].items() if key in ("name", "namespace", "labels")}
    return json.dumps({**made, "metadata": kept, "status": None}, sort_keys=True).replace(run, "RUN")


@pytest.mark.parametrize("kind", template_names())
def test_every_template_can_be_looked_at(gpusize: Gpusize, kind: str) -> None:
    done = gpusize("cluster", "submit", "-t", kind, "-n", 1, "--namespace", "team-a", "--dry-run")
    assert done.code == 0, done.err
    for each in YAML(typ="safe").load_all(done.out):
        assert each["metadata"]["namespace"] == "team-a"
        assert "gpusize.dev/run" in each["metadata"]["labels"]


def test_a_dry_run_of_what_cannot_be_made_says_so(gpusize: Gpusize) -> None:
    done = gpusize("cluster", "submit", "-t", "job", "-n", 1, "--set", "spec.nothing.here[2]=1", "--dry-run")
    assert done.code == 2
    assert "spec.nothing" in done.complaint


def test_submit_and_clean(gpusize: Gpusize, tmp_path: Path) -> None:
    with ApiDouble() as double:
        config = double.kubeconfig(tmp_path)
        done = gpusize("cluster", "submit", "-t", "training", "-n", 7, "-p", 3, "-o", "out", "--kubeconfig", config)
        assert done.code == 0, done.err
        run = read_facts(tmp_path / "out")["submit"]["run"]
        assert done.out.splitlines()[0] == f"run {run}: 7 of 7 workloads created in namespace runai-project-0"
        assert len(double.objects) == 7
        plan = gpusize("cluster", "clean", "-o", "out", "--dry-run", "--kubeconfig", config)
        assert plan.out.splitlines() == [
            f"run {run} in namespace runai-project-0: 7 objects would be deleted",
            "  7 trainingworkloads.run.ai",
        ]
        assert len(double.objects) == 7
        done = gpusize("cluster", "clean", "-o", "out", "--json", "--kubeconfig", config)
        assert done.code == 0
        assert json.loads(done.out)["found"] == {"trainingworkloads.run.ai": 7}
        assert double.objects == {}


def test_names_of_the_seed_with_underscores(gpusize: Gpusize, tmp_path: Path) -> None:
    with ApiDouble() as double:
        options = "--workload_type distributed --num_workloads 3 --num_processes 1 --num_workers 7 --num_gpus 2"
        more = f"--output_dir out2 --project p --delay 0.01 --pvc --kubeconfig {double.kubeconfig(tmp_path)}"
        double.namespaces = ("runai-p",)
        assert gpusize("cluster", "submit", *options.split(), *more.split()).code == 0
    specs = [asked.body["spec"] for asked in double.asked if asked.creates]
    assert [(each["workers"], each["gpu"], "pvcs" in each) for each in specs] == [
        ({"value": 7}, {"value": "2"}, True)
    ] * 3
    options_of = read_facts(tmp_path / "out2")["submit"]["options"]
    assert (options_of["num_processes"], options_of["delay_s"]) == (1, 0.01)


def test_the_folder_is_logs_and_the_facts_are_printed_as_json(gpusize: Gpusize, tmp_path: Path) -> None:
    with ApiDouble() as double:
        done = gpusize("cluster", "submit", "-t", "pod", "-n", 2, "--json", "--kubeconfig", double.kubeconfig(tmp_path))
    facts = json.loads(done.out)
    assert facts["counts"]["created"] == 2
    assert facts["server"]["version"] == "v1.0.0-double"
    assert facts["run"] == read_facts(tmp_path / "logs")["submit"]["run"]


def test_one_that_was_not_created_is_exit_code_1(gpusize: Gpusize, tmp_path: Path) -> None:
    def fault(asked: Asked) -> Reply | None:
        return refusal(422, "Invalid", "no") if asked.creates and asked.name.endswith("-1") else None

    with ApiDouble(fault) as double:
        done = gpusize("cluster", "submit", "-t", "pod", "-n", 3, "--kubeconfig", double.kubeconfig(tmp_path))
    assert done.code == 1
    assert done.complaint == "2 of 3 workloads were created"
    assert "failed: 1 with 422 Invalid" in done.out


@pytest.mark.parametrize(
    "words, code, says",
    [
        (["submit", "-t", "pod"], 2, "num_workloads: how many workloads is not said"),
        (
            ["submit", "--workload-type", "podd", "-n", "1"],
            2,
            '--workload-type: there is no template "podd". Did you mean "pod"?',
        ),
        (["submit", "-t", "pod", "-n", "1", "--rate", "x"], 2, '--rate: "x" is not a rate'),
        (["submit", "-t", "pod", "-n", "1", "--delay", "-1s"], 2, "-1s"),
        (["submit", "-t", "pod", "-n", "1", "--set", "spec"], 2, '--set: "spec" has no value'),
        (["submit", "-t", "pod", "-n", "1", "--context", "y"], 2, '--context: there is no context "y"'),
        (["clean"], 2, "it takes a folder or the id of a run"),
        (["clean", "--run", ""], 2, '--run: "" is no id of a run'),
        (["clean", "-o", "nothing"], 2, "not a folder of a cluster test"),
    ],
)
def test_mistakes_are_one_line(gpusize: Gpusize, tmp_path: Path, words: list[str], code: int, says: str) -> None:
    with ApiDouble() as double:
        done = gpusize("cluster", *words, "--kubeconfig", double.kubeconfig(tmp_path))
    assert done.code == code
    assert says in done.err.replace("\n", " ")
    assert "Traceback" not in done.err
    assert double.created() == []


def test_a_refusal_of_the_server_is_one_line(gpusize: Gpusize, tmp_path: Path) -> None:
    def fault(asked: Asked) -> Reply | None:
        return refusal(422, "Invalid", "spec.x: no") if "dryRun" in asked.query else None

    with ApiDouble(fault) as double:
        done = gpusize("cluster", "submit", "-t", "pod", "-n", 3, "--kubeconfig", double.kubeconfig(tmp_path))
    assert done.code == 3
    assert "before anything was created: 422 Invalid: spec.x: no" in done.complaint


def test_what_holds_out_is_exit_code_1(gpusize: Gpusize, tmp_path: Path) -> None:
    with ApiDouble() as double:
        metadata = {"name": "a", "uid": "u", "labels": {"gpusize.dev/run": "rrrr"}, "finalizers": ["x/y"]}
        double.objects["pods", "default", "a"] = {"metadata": metadata}
        words = ("clean", "--run", "rrrr", "--timeout", "1s", "--kubeconfig", double.kubeconfig(tmp_path))
        done = gpusize("cluster", *words)
    assert done.code == 1
    assert "1 objects are still there, and nothing has gone for 1s\n  pods/a (held by x/y)" in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_all_in_order(tmp_path: Path, number: signal.Signals) -> None:
    some, gate = threading.Event(), threading.Event()

    def fault(asked: Asked) -> None:
        if asked.creates and asked.name.endswith("-6"):
            some.set()
            gate.wait(20)

    with ApiDouble(fault) as double:
        words = ["-t", "pod", "-n", "100", "-p", "4", "-o", "out", "--kubeconfig", double.kubeconfig(tmp_path)]
        command = [sys.executable, "-m", "gpusize", "cluster", "submit", *words]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert some.wait(60)
            process.send_signal(number)
            # The answer that is under way is still waited for.
            threading.Timer(0.5, gate.set).start()
            out, err = process.communicate(timeout=60)
        finally:
            gate.set()
            process.kill()
        assert process.returncode == 130, err
        created = len(double.objects)
        assert 7 <= created < 100
        assert f"interrupted: {created} of 100 workloads were created" in err
        assert "gpusize cluster clean -o out deletes it" in err
        assert f"{created} of 100 workloads created" in out
        rows = scan_table(tmp_path / "out", "attempts").collect()
        assert rows["uid"].is_not_null().sum() == created
        assert rows.filter(pl.col("name").str.ends_with("-6"))["status"].to_list() == [201]
        assert len(json.loads((tmp_path / "out" / "submitted.json").read_text())) == created
        assert read_facts(tmp_path / "out")["submit"]["state"] == "interrupted"
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert len(double.objects) == 100
        assert len(set(double.created())) == len(double.created()) == 100


def test_ctrl_c_while_the_server_does_not_answer_yet_creates_nothing(tmp_path: Path) -> None:
    asked_for, gate = threading.Event(), threading.Event()

    def fault(asked: Asked) -> None:
        if asked.path == "/version":
            asked_for.set()
            gate.wait(30)

    with ApiDouble(fault) as double:
        words = ["-t", "pod", "-n", "100", "-o", "out", "--kubeconfig", double.kubeconfig(tmp_path)]
        command = [sys.executable, "-m", "gpusize", "cluster", "submit", *words]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert asked_for.wait(60)
            process.send_signal(signal.SIGINT)
            # It ends although the gate is shut.
            _, err = process.communicate(timeout=25)
        finally:
            gate.set()
            process.kill()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert double.created() == []
    assert not (tmp_path / "out").exists()
