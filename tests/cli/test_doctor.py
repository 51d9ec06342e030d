"""``gpusize doctor``: a table, a document, exit codes, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

import gpusize.doctor
from gpusize.cli import invoke
from gpusize.doctor import Finding

OK = Finding("clock", "clock", "ok", "tsc", "", {"read_s": 2e-8})
LACKS = Finding("software", "Docker", "lacks", "not reachable", "needed only for containers")
PREVENTS = Finding("ceiling", "null server", "lacks", "it did not start", prevents=True)


@pytest.fixture
def found(monkeypatch):
    def pretend(*findings: Finding) -> None:
        monkeypatch.setattr(gpusize.doctor, "examine", lambda **_: list(findings))

    return pretend


def test_a_lack_is_no_failure(found, capsys) -> None:
    found(OK, LACKS)
    assert invoke(["doctor"]) == 0
    out, err = capsys.readouterr()
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[:2] == ["clock", "  clock   ok     tsc"]
    assert lines[-2:] == ["  Docker  lacks  not reachable", "                 needed only for containers"]
    assert err == ""


def test_what_prevents_measuring_is_exit_code_3(found, capsys) -> None:
    found(OK, PREVENTS)
    assert invoke(["doctor"]) == 3
    assert "nothing can be measured here: null server: it did not start" in capsys.readouterr().err


def test_the_document(found, capsys) -> None:
    found(OK, LACKS)
    assert invoke(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["can_measure"] is True
    assert document["findings"][0]["facts"] == {"read_s": 2e-8}
    assert document["findings"][1]["todo"] == "needed only for containers"


def test_this_machine(capsys) -> None:
    assert invoke(["doctor", "--quick", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    groups = list(dict.fromkeys(row["group"] for row in document["findings"]))
    assert groups == ["clock", "cpu", "limits", "container", "software"]
    assert all(row["verdict"] in ("ok", "warn", "lacks") and row["value"] for row in document["findings"])


def test_ctrl_c_ends_it_and_its_server() -> None:
    program = """
import gpusize.doctor.ceiling as ceiling, sys
from gpusize.cli import main
def endless(server, *_, **__):
    print(server._child.pid, flush=True)
    while True:
        server.stats()
ceiling.measured = endless
sys.argv = ["gpusize", "doctor"]
main()
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    server = int(child.stdout.readline())
    child.send_signal(signal.SIGINT)
    out, err = child.communicate()
    assert (child.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "gpusize: interrupted"
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)
