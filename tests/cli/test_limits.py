"""Numbers, names and files that nobody can mean: one line each with the right exit code, whatever they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gpusize.base.errors import UsageError
from gpusize.base.numeric import FIELDS, LIMITS
from gpusize.options.assemble import RUN_OPTIONS, read_options
from gpusize.targets.server import Target
from gpusize.workload.load import Load, Stream
from gpusize.workload.load.stages import Stage
from gpusize.workload.load.trace import ArrivalTrace
from tests.cli.conftest import Gpusize

NUMERIC = [name for name, kind in RUN_OPTIONS.items() if kind in ("whole", "number", "duration")]
WHOLE = [name for name in NUMERIC if RUN_OPTIONS[name] == "whole"]
BEYOND: list[Any] = [-1, -(2**63), 2**64, 10**6000, 1e300, -1e300, float("inf"), float("-inf"), float("nan")]
TO = ("--url", "http://127.0.0.1:1/v1", "--quiet")
SENT = ("--prompt", "x", *TO)


def test_the_table_has_every_option_that_is_a_number() -> None:
    assert sorted(LIMITS) == sorted(NUMERIC)


@pytest.mark.parametrize("name", NUMERIC)
def test_every_number_is_within_its_limits_or_refused_by_name(name: str) -> None:
    limit = LIMITS[name]
    for value in (limit.least, limit.most):
        # Both ends may be meant, as the option's own kind of number.
        read_options(None, {name: int(value) if name in WHOLE else value})
    tiny = [] if limit.least == 0 else [0, 1e-300, limit.least / 2]
    for value in (*BEYOND, *tiny, limit.most * 2 + 1):
        with pytest.raises(UsageError) as caught:
            read_options(None, {name: value})
        assert caught.value.where == name
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize("name", NUMERIC)
def test_the_command_line_says_it_in_one_line(gpusize: Gpusize, name: str) -> None:
    low = "nan" if RUN_OPTIONS[name] == "duration" else "-1"
    for value in (low, "9" * 30):
        done = gpusize("run", *SENT, f"--{name.replace('_', '-')}={value}")
        assert (done.code, name.replace("_", "-") in done.complaint.replace("_", "-")) == (2, True), done.err


@pytest.mark.parametrize(
    "make",
    [
        lambda: ArrivalTrace("dataset", speed=1e-300),
        lambda: ArrivalTrace("dataset", rate_scale=1e-300),
        lambda: Load(rates=[1], count=1, process="gamma", burstiness=1e-300),
        lambda: Stream(rate=1, process="gamma", burstiness=1e300),
        lambda: Stage(1, None, 1, process="gamma", shape=1e-300),
        lambda: Target("http://h", gpus=10**6000),
        lambda: Target("http://h", temperature=float("nan")),
        lambda: Target("http://h", timeout_s=1e-300),
    ],
)
def test_from_python_the_same_table_holds(make: Any) -> None:
    with pytest.raises(UsageError, match=r" must be .*\. Give "):
        make()


@pytest.mark.parametrize("field", [*FIELDS])
@pytest.mark.parametrize("digits", ["9" * 17, "9" * 30, "-" + "9" * 30, "9" * 5000])
def test_counts_in_rows_beyond_64_bits(gpusize: Gpusize, field: str, digits: str) -> None:
    Path("rows.jsonl").write_text(f'{{"prompt": "x"}}\n{{"prompt": "x", "{field}": {digits}}}\n')
    done = gpusize("run", *TO, "--dataset", "rows.jsonl")
    assert done.code == 2, done.err
    assert "rows.jsonl:2" in done.complaint
    assert not Path("runs").exists()


@pytest.mark.parametrize("at_s", ["1e10", "-1e10", "1e300", "9" * 400])
def test_times_of_traces_that_no_clock_has(gpusize: Gpusize, at_s: str) -> None:
    Path("trace.csv").write_text(f"arrival_s\n0\n{at_s}\n")
    for command in (("load", "show"), ("run", *SENT)):
        done = gpusize(*command, "--arrivals", "trace.csv")
        assert done.code == 2, done.err
        assert "trace.csv" in done.complaint


@pytest.mark.parametrize("option", ["prompt", "dataset", "label", "slo", "out", "config", "url", "header"])
def test_arguments_that_are_no_text(gpusize: Gpusize, option: str) -> None:
    done = gpusize("run", *SENT, f"--{option}", os.fsdecode(b"k=\xff"))
    assert done.code == 2
    assert "is not UTF-8" in done.complaint
    assert "\\xff" in done.complaint or "\\udcff" in done.complaint


@pytest.mark.parametrize("option", ["dataset", "config", "load", "arrivals", "plan", "cacert", "resume"])
def test_names_that_are_too_long(gpusize: Gpusize, option: str) -> None:
    url = ("--url", "https://127.0.0.1:1/v1") if option == "cacert" else ()
    sent = () if option == "dataset" else ("--prompt", "x")
    done = gpusize("run", *sent, "--quiet", *(url or TO), f"--{option}", "n" * 300 + ".toml")
    assert done.code in (2, 3), done.err
    assert "nnnn" in done.complaint
    assert len(done.complaint) < 500


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A pipe that nobody writes into: reading it would never begin."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    return tmp_path / "pipe.jsonl"


@pytest.mark.parametrize(
    "option", ["--dataset", "--load", "--arrivals", "--url=@", "--header=X-Key: file:", "--config"]
)
def test_devices_and_pipes_are_no_files(gpusize: Gpusize, pipe: Path, option: str) -> None:
    fmt = (f"{option}-format", "jsonl") if option in ("--dataset", "--arrivals") else ()
    for path, kind in ((pipe, "pipe"), (Path("/dev/zero"), "device")):
        if option in ("--load", "--config"):
            link = pipe.with_name(f"{kind}.yaml")
            link.symlink_to(path)
            path = link  # noqa: PLW2901 -- a name that says the format
        given = [f"{option}{path}"] if "=" in option else [option, str(path)]
        url = () if "--url" in option else ("--url", "http://127.0.0.1:1/v1")
        sent = () if option == "--dataset" else ("--prompt", "x")
        done = gpusize("run", "--quiet", *url, *sent, *given, *fmt)
        assert done.code == 2, done.err
        assert f"this is a {kind}, which may never end" in done.complaint


@pytest.mark.parametrize(
    "option, least, most",
    [
        ("--users", "positive", "1000000000"),
        ("--gpus", "1", "1000000"),
        ("--gpus-per-replica", "1", "1000000"),
        ("--host-gpus", "1", "1000000"),
        ("--spare", "0", "1000000"),
    ],
)
def test_an_estimate_names_the_option_and_its_bounds(gpusize: Gpusize, option: str, least: str, most: str) -> None:
    """``--users 1e30`` reached the extension and came back in the words of its parser."""
    for value, bound in (("-1", least), ("9" * 30, most)):
        done = gpusize("estimate", "runs", f"{option}={value}")
        assert done.code == 2
        assert done.complaint.startswith(f"{option}: ")
        assert bound in done.complaint


def test_a_float_beyond_what_is_simulated_does_not_reach_the_extension(gpusize: Gpusize) -> None:
    for value in ("1e30", "inf", "nan"):
        done = gpusize("estimate", "runs", "--users", value)
        assert done.code == 2
        assert done.complaint.startswith("--users: ")
