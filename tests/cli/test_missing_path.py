"""A path that is named and is not there is a mistake in the command: one exit code, whatever the command."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Gpusize

AT = ("--url", "http://127.0.0.1:1/v1", "--model", "m")


@pytest.mark.parametrize(
    "words",
    [
        ("estimate", "missing"),
        ("plan", "missing"),
        ("report", "missing"),
        ("runs", "verify", "missing"),
        ("study", "missing.yaml"),
        ("import", "nat", "missing"),
        ("import", "perf_analyzer", "missing"),
        ("pipeline", "run", "missing"),
        ("pipeline", "show", "missing"),
        ("dataset", "show", "missing.jsonl"),
        ("dataset", "traccc", "missing", "--out", "out.npz"),
        ("load", "show", "--load", "missing.yaml"),
        ("load", "show", "--arrivals", "missing.csv"),
        ("load", "show", "--plan", "missing"),
        ("run", "--config", "missing.toml"),
        ("run", "--resume", "missing"),
        ("run", "--url", "@missing"),
        ("run", *AT, "--dataset", "missing.jsonl"),
        ("run", *AT, "--prompt", "x", "--body-template", "missing.json"),
        ("run", "--url", "https://127.0.0.1:1", "--prompt", "x", "--cacert", "missing.pem"),
    ],
    ids=" ".join,
)
def test_a_missing_path_is_named_and_ends_with_code_2(gpusize: Gpusize, words: tuple[str, ...]) -> None:
    done = gpusize(*words)
    assert done.code == 2
    assert "missing" in done.complaint


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--config", "missing"),
        ("study", "missing"),
        ("load", "show", "--load", "missing.txt"),
        ("load", "show", "--arrivals", "missing"),
        ("dataset", "show", "missing"),
        ("run", *AT, "--dataset", "missing"),
    ],
    ids=" ".join,
)
def test_that_it_is_not_there_comes_before_its_format(gpusize: Gpusize, words: tuple[str, ...]) -> None:
    done = gpusize(*words)
    assert done.code == 2
    assert done.complaint == f"{words[-1]}: there is no such file. Check the path"
