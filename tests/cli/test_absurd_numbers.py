"""Numbers that nobody means: the answer names the option in words of ours, never in those of the extension."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pytest

import gpusize as package
from gpusize import GpusizeError, UsageError
from gpusize.api.run_options import RunOptions
from gpusize.options.table import OPTIONS
from tests.cli.conftest import Gpusize

NUMBERS: Final = (0, -1, 1e30, -1e30, 1e-30, math.nan, math.inf, 10**30, -(10**30), True)
WRITTEN: Final = ("0", "-1", "1e30", "-1e30", "1e-30", "nan", "inf", str(10**30), str(-(10**30)))
KINDS: Final = ("whole", "number", "duration", "concurrencies", "rates", "sample", "think", "any")
NAMES: Final = [name for name, option in OPTIONS.items() if option.kind in KINDS and option.places != "file"]
INSIDE: Final = re.compile(
    r"\bexpected |invalid type|integer `|floating point `|`[fiu]\d+`|line \d+ column|convert|Error\b|too large|serde"
)
"""How serde, pyo3 and Python itself speak."""
NOWHERE: Final = "http://127.0.0.1:1/v1"
"""Nobody listens there: what is taken up to the first request ends with that."""

AT_RATES: Final = ("--rates", "5", "--count", "1")
BESIDE: Final[Mapping[str, tuple[str, ...]]] = {
    "burstiness": (*AT_RATES, "--process", "gamma"),
    "max_connections": (*AT_RATES, "--overload", "grow"),
    "concurrencies": ("--passes", "1"),
    "rates": ("--count", "1"),
    "passes": ("--concurrencies", "1"),
    "count": ("--rates", "5"),
    "duration": ("--rates", "5"),
    "think": ("--concurrencies", "1", "--passes", "1"),
    "precision": ("--slo", "p95 runtime <= 1s"),
    "budget": ("--slo", "p95 runtime <= 1s"),
    "most_users": ("--slo", "p95 runtime <= 1s"),
    "synthetic": AT_RATES,
}
"""What an option needs beside it to be read at all."""


@pytest.mark.parametrize("name", NAMES)
def test_a_command_line_says_it_in_its_own_words(gpusize: Gpusize, name: str) -> None:
    fixed = ("--url", NOWHERE, "--model", "m", "--metrics-url", "none", "--quiet", "--no-gpu-sample")
    rows = () if name == "synthetic" else ("--prompt", "x")
    for value in WRITTEN:
        done = gpusize("run", *fixed, *rows, *BESIDE.get(name, AT_RATES), f"--{name.replace('_', '-')}={value}")
        assert done.code in (2, 3), (value, done)
        assert not INSIDE.search(done.complaint), (value, done.complaint)


def complaint(call: Callable[..., object], *given: Any, **more: Any) -> str:
    """What a call is refused with; empty where it is not."""
    try:
        call(*given, **more)
    except GpusizeError as problem:
        return str(problem)
    return ""


ROWS: Final = package.Dataset.from_rows([{"prompt": "a"}], key="prompt")


def sent(target: package.Target | None = None, load: package.Load | None = None, **options: Any) -> None:
    usual = package.Load(rates=[1.0], count=1)
    package.run(target or package.Target(NOWHERE, model="m"), ROWS, load or usual, metrics_url="none", **options)


def with_load(**fields: Any) -> None:
    sent(load=package.Load(**fields))


def to_target(**fields: Any) -> None:
    sent(package.Target(NOWHERE, model="m", **fields))


OPTION_NAMES: Final = [
    *("users", "batch"),
    *(name for name in RunOptions.__annotations__ if OPTIONS[name].kind in (*KINDS, "text", "texts", "flag")),
]


@pytest.mark.parametrize("name", [name for name in OPTION_NAMES if name != "metrics_url"])
def test_an_argument_of_run_is_named(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for value in NUMBERS:
        said = complaint(sent, **{name: value})
        assert not INSIDE.search(said), (value, said)


LOADS: Final[Mapping[str, Mapping[str, Any]]] = {
    "concurrencies": {"passes": 1},
    "rates": {"count": 1},
    "passes": {},
    "count": {"rates": [5]},
    "duration_s": {},
    "warmup_s": {"duration_s": 1},
    "wait_between_s": {"duration_s": 1},
    "drain_s": {"duration_s": 1},
    "max_error_share": {"duration_s": 1},
    "seed": {"duration_s": 1},
    "think_s": {"duration_s": 1},
    "connections": {"rates": [5], "duration_s": 1},
    "queue": {"rates": [5], "duration_s": 1},
    "workers": {"duration_s": 1},
    "burstiness": {"rates": [5], "duration_s": 1, "process": "gamma"},
    "max_connections": {"rates": [5], "duration_s": 1, "overload": "grow"},
    "sample_records": {"duration_s": 1},
}


@pytest.mark.parametrize("name", LOADS)
def test_a_field_of_a_load_is_named(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    several = name in ("concurrencies", "rates")
    for value in NUMBERS:
        given: Any = [value] if several else value
        said = complaint(with_load, **{**LOADS[name], name: given})
        assert not INSIDE.search(said), (value, said)


FIELDS: Final = ("gpus", "max_tokens", "temperature", "timeout_s", "connect_timeout_s", "resolve_every_s", "streams")


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_a_target_is_named(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for value in NUMBERS:
        said = complaint(to_target, **{name: value})
        assert not INSIDE.search(said), (value, said)


CLUSTER: Final[Sequence[tuple[Mapping[str, Any], str]]] = (
    ({"gpus": 1e30}, "cluster: gpus must be a whole number, 0 or more, not 1e+30"),
    ({"gpus": -1}, "cluster: gpus must be a whole number, 0 or more, not -1"),
    ({"gpus": 0}, "gpus of the simulated cluster must be between 1 and 100000, not 0"),
    ({"gpus": math.nan}, "cluster: gpus must be a number, not nan"),
    ({"gpus": object()}, "cluster: gpus is of type object"),
    ({"gpu": 2}, "cluster: there is no field gpu; known are model, gpus, "),
    ({"faults": {"fail_rat": 1}}, "cluster: there is no field faults.fail_rat; known are fail_rate, "),
    ({"router": "best"}, "cluster: router must be one of least_loaded, round_robin, random, shared, not best"),
    ({"output_tokens": 4}, "cluster: output_tokens does not fit: 4"),
    ({"output_tokens": {"fixed": {}}}, "cluster: output_tokens.fixed lacks tokens"),
    ({"tensor_models": [{}, {"instances": "x"}]}, "cluster: tensor_models[1].instances must be a whole number"),
    ({"model": 3}, "cluster: model must be a text, not 3"),
)


@pytest.mark.parametrize("config, said", CLUSTER, ids=[said for _, said in CLUSTER])
def test_a_field_of_a_simulated_cluster_is_named(config: Mapping[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused, package.SimulatedCluster(config):
        pass
    assert str(refused.value).startswith(said)
    assert not INSIDE.search(str(refused.value))


def test_the_command_of_the_cluster_says_the_same(gpusize: Gpusize) -> None:
    done = gpusize("simulate", "--cluster", '{"max_batch": -1}')
    assert done.code == 2
    assert done.complaint.startswith("--cluster: max_batch must be a whole number, 0 or more, not -1. See docs/")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> package.Result:
    with package.SimulatedCluster({"gpus": 1, "output_tokens": {"fixed": {"tokens": 2}}}) as cluster:
        for replicas in NUMBERS:
            assert not INSIDE.search(complaint(cluster.scale, replicas))
        load = package.Load(concurrencies=[1, 2], passes=5)
        folder = tmp_path_factory.mktemp("runs")
        for users in NUMBERS:
            with pytest.raises(UsageError, match=r"^users: "):
                package.run(cluster, ROWS, load, users=users, out=folder)
        return package.run(cluster, ROWS, load, slos="p95 runtime <= 10s", out=folder)


def test_questions_to_a_simulated_run_are_refused_by_name(measured: package.Result) -> None:
    for users in NUMBERS:
        with pytest.raises(UsageError, match=r"^users: "):
            _ = measured.asking(users).truth
    assert measured.asking(2).truth is not None


@pytest.mark.parametrize("name", ["growth", "bounds"])
def test_a_plan_names_what_is_no_list(measured: package.Result, name: str) -> None:
    more: dict[str, Any] = {name: 1.5}
    with pytest.raises(UsageError, match=f"^{name}: {name} is of type float"):
        package.what_if(measured, [4], **more)


@pytest.mark.parametrize("name", ["users", "rates", "token_rates"])
def test_a_plan_names_what_is_no_number(measured: package.Result, name: str) -> None:
    for value in (["x"], [math.nan], math.inf, [None]):
        more: dict[str, Any] = {name: value}
        with pytest.raises(UsageError, match=f"^{name.removesuffix('s')}"):
            package.what_if(measured, **more)
