"""The same value on the command line, in a file, in a study, in a run folder and from Python: the same specification.

Every option of ``gpusize run`` has a case here. Whoever adds an option to one door only fails a test of this file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import certifi
import pytest
from typer.main import get_command

import gpusize
from gpusize.api import run as api
from gpusize.api.run_options import RunArguments, RunOptions
from gpusize.base.errors import UsageError
from gpusize.base.interrupt import StopSwitch
from gpusize.cli.app import application
from gpusize.measure import execute
from gpusize.measure.spec import RunSpec
from gpusize.options import demo
from gpusize.options.assemble import RUN_OPTIONS
from gpusize.studies.conduct import measure
from gpusize.targets.simulated import cluster as clusters
from gpusize.workload.load import ArrivalTrace
from gpusize.workload.schedule.export import write_plan

URL = "http://127.0.0.1:9/v1/chat/completions"
SLO = "p95 runtime <= 10s"
ROWS = '{"text": "one", "question": "two", "name": "a", "at": 0.5}\n{"text": "x", "question": "y", "name": "b"}\n'
FILES = {
    "rows.jsonl": ROWS,
    "rows.json": json.dumps(["one", "two"]),
    "token": "a token for tests, long enough",
    "arrivals.csv": "timestamp\n0.5\n1.5\n2.5\n",
    "load.json": json.dumps({"streams": [{"name": "a", "rate": 2, "priority": 1}], "duration": "5s"}),
}
GONE = object()
"""Takes an option of the base away."""


made: list[RunSpec] = []
"""The specifications that doors have made, instead of runs of them."""


class NothingIsRun(UsageError):
    """Ends a run before it begins."""


@dataclass(frozen=True)
class Case:
    """One option beside those of the base.

    Attributes:
        given: options, as files and the command line have them.
        target: arguments of ``gpusize.Target``, or what makes the target.
        load: arguments of ``gpusize.Load``; ``GONE``: no load.
        rows: makes what is sent.
        run: arguments of ``gpusize.run``.
        words: the command line, where it is not that of ``given``.
        once: whether the run folder does not keep it, so that a run that goes on has not got it.
    """

    given: Mapping[str, Any]
    target: Mapping[str, Any] | Callable[[], Any] = field(default_factory=dict)
    load: Any = field(default_factory=dict)
    rows: Callable[[], Any] = lambda: gpusize.Dataset.from_prompt("hello")
    run: Mapping[str, Any] = field(default_factory=dict)
    words: Mapping[str, Any] | None = None
    once: bool = False


def target(option: str, value: Any, **python: Any) -> dict[str, Case]:
    """An option of the target, whose argument in Python has its name where none is given."""
    return {option: Case({option: value}, target=python or {option: value})}


def load(option: str, value: Any, /, *, more: Mapping[str, Any] | None = None, **python: Any) -> dict[str, Case]:
    """An option of the load, likewise; ``more`` are further options that it needs, as both name them."""
    mine = python or {option: value}
    return {option: Case({option: value, **(more or {})}, load={**(more or {}), **mine})}


def beside(option: str, value: Any, /, **more: Any) -> dict[str, Case]:
    """An option that ``gpusize.run`` takes by its own name."""
    return {option: Case({option: value, **more}, run={option: value, **more})}


def rows(option: str, value: Any, make: Callable[[], Any], /, **more: Any) -> dict[str, Case]:
    """An option of the dataset."""
    return {option: Case({"prompt": GONE, option: value, **more}, rows=make)}


def search(option: str, value: Any, **terms: Any) -> dict[str, Case]:
    """An option of a search, which names no levels."""
    asked = gpusize.Adaptive(**terms) if terms else value
    bare = {"concurrencies": GONE, "passes": GONE, "slo": [SLO]}
    return {option: Case({**bare, option: value}, load=GONE, run={"adaptive": asked, "slos": SLO})}


RATES = {"concurrencies": GONE, "passes": GONE, "rates": [5.0], "count": 10}
GROWING = {**RATES, "overload": "grow"}
ARRIVING = {"concurrencies": GONE, "passes": GONE, "arrivals": "arrivals.csv"}


def tensors(**given: Any) -> Case:
    """A KServe run; the address of the server is put in by the test."""
    options = {"prompt": GONE, "model": "double", "api": "kserve", "url": "KSERVE", "input": ["random:3"], "seed": 7}
    python = {"model": "double", "api": "kserve", "url": "KSERVE"}
    run = {name: value for name, value in {"shapes": given.get("shape"), "batch": given.get("batch")}.items() if value}
    return Case(
        {**options, **given}, target=python, load={"seed": 7}, rows=lambda: given.get("input", "random:3"), run=run
    )


def simulated(given: Mapping[str, Any], config: Mapping[str, Any], **run: Any) -> Case:
    """A run against the cluster that the command starts without an address."""
    made = {**demo.CLUSTER, "model": "m", **config}
    return Case(
        {"url": GONE, "users": 5, "slo": [SLO], **given},
        target=lambda: clusters.SimulatedCluster(made),
        run={"users": 5, "slos": SLO, **run},
    )


CASES: dict[str, Case] = {
    **target("url", ["http://127.0.0.1:9/v1", "http://127.0.0.1:10/v1"], url="http://127.0.0.1:9/v1",
             replicas=("http://127.0.0.1:10/v1",)),
    **target("api", "openai-completions"),
    **target("model", "a=3,b=1"),
    "workflow": Case(
        {"url": GONE, "workflow": "tests.workflow.flows:plain"},
        target=lambda: gpusize.WorkflowTarget("tests.workflow.flows:plain", model="m"),
    ),
    "command": Case(
        {"url": GONE, "prompt": GONE, "command": "echo {question}", "dataset": "rows.jsonl", "model": GONE},
        target=lambda: gpusize.WorkflowTarget(command="echo {question}"),
        rows=lambda: "rows.jsonl",
    ),
    "llm_proxy": Case(
        {"url": GONE, "workflow": "tests.workflow.flows:plain", "llm_proxy": "http://127.0.0.1:9/v1"},
        target=lambda: gpusize.WorkflowTarget("tests.workflow.flows:plain", model="m"),
        run={"llm_proxy": "http://127.0.0.1:9/v1"},
    ),
    **target("gpus", 4),
    "header": Case({"header": ["X-Team: blue"]}, target={"headers": {"X-Team": "blue"}}),
    "headers": Case({"headers": {"X-Team": "blue"}}, target={"headers": {"X-Team": "blue"}},
                    words={"header": ["X-Team: blue"]}),
    **target("api_key_env", "GPUSIZE_TEST_KEY"),
    "cacert": Case({"url": "https://127.0.0.1:9/v1", "cacert": "authority.pem"},
                   target={"url": "https://127.0.0.1:9/v1", "cacert": "authority.pem"}),
    "insecure": Case({"url": "https://127.0.0.1:9/v1", "insecure": True},
                     target={"url": "https://127.0.0.1:9/v1", "insecure": True}),
    **target("balance", "least_outstanding"),
    **target("http2", True),
    "streams": Case({"http2": True, "streams": 4}, target={"http2": True, "streams": 4}),
    "replicas": simulated({"replicas": "1@0s,2@30s"}, {"gpus": 2, "replicas": "1@0s"}, replicas="1@0s,2@30s"),
    "start_delay": simulated({"start_delay": "1500ms"}, {"start_delay_s": 1.5}),
    **target("timeout", "5s", timeout_s=5.0),
    **target("connect_timeout", "2s", connect_timeout_s=2.0),
    **target("resolve_every", "3s", resolve_every_s=3.0),
    "method": Case(
        {"method": "GET", "url": "http://127.0.0.1:9/x", "prompt": GONE, "model": GONE},
        target={"method": "GET", "url": "http://127.0.0.1:9/x", "model": None},
        rows=lambda: None,
    ),
    "stream": Case({"stream": False}, target={"stream": False}),
    **target("max_tokens", 100),
    **target("output_length", "exact"),
    **target("history", "answers"),
    **target("temperature", 0.5),
    "extra_body": Case({"extra_body": '{"top_k": 20}'}, target={"extra_body": {"top_k": 20}}),
    "body_template": Case(
        {"url": "http://127.0.0.1:9/x", "body_template": '{"q": "${question}"}', "prompt": GONE,
         "dataset": "rows.jsonl", "model": GONE},
        target={"url": "http://127.0.0.1:9/x", "body_template": '{"q": "${question}"}', "model": None},
        rows=lambda: "rows.jsonl",
    ),
    "content_type": Case(
        {"url": "http://127.0.0.1:9/x", "content_type": "text/plain", "model": GONE},
        target={"url": "http://127.0.0.1:9/x", "content_type": "text/plain", "model": None},
    ),
    "response": Case(
        {"url": "http://127.0.0.1:9/x", "response": ["success=200-204"], "model": GONE},
        target={"url": "http://127.0.0.1:9/x", "response": {"success": (200, 204)}, "model": None},
    ),
    "success": Case({"success": "any"}, target={"response": {"success_if": None}}),
    "record_events": Case({"record_events": True}, target={"record_events": True}),
    **rows("dataset", "rows.json", lambda: "rows.json"),
    **rows("dataset_key", "question", lambda: gpusize.Dataset.read("rows.jsonl", "question"), dataset="rows.jsonl"),
    **rows("dataset_format", "json", lambda: gpusize.Dataset.read("rows.json", fmt="json"), dataset="rows.json"),
    **rows("dataset_id_key", "name", lambda: gpusize.Dataset.read("rows.jsonl", "text", id_key="name"),
           dataset="rows.jsonl", dataset_key="text"),
    **rows("prompt", "bye", lambda: gpusize.Dataset.from_prompt("bye")),
    **rows("synthetic", "input=32 rows=3", lambda: gpusize.Dataset.from_synthetic("input=32 rows=3")),
    **rows("tokenizer", "estimate", lambda: gpusize.Dataset.from_synthetic("input=32 rows=3", "estimate"),
           synthetic="input=32 rows=3"),
    "input": tensors(input=["random:2", "random:3"], shape=["INPUT:4"]),
    "shape": tensors(shape=["INPUT:4"]),
    "batch": tensors(shape=["INPUT:4"], batch=2),
    **load("concurrencies", [3, 5], concurrencies=(3, 5)),
    **load("rates", [5.0], more={"concurrencies": GONE, "passes": GONE, "count": 10}, rates=(5.0,)),
    **load("stages", ["1/s@5s, 2/s@5s"], more={"concurrencies": GONE, "passes": GONE}, stages="1/s@5s, 2/s@5s"),
    **load("profile", "spike", more={"concurrencies": GONE, "passes": GONE},
           stages="0.1/s@15m, 1.1/s@10m, 0.1/s@10m", process="constant"),
    "load": Case(
        {"concurrencies": GONE, "passes": GONE, "load": "load.json"},
        load={"concurrencies": GONE, "passes": GONE, "duration_s": 5.0,
              "streams": [gpusize.Stream("a", rate=2, priority=1)]},
    ),
    **load("arrivals", "arrivals.csv", more={"concurrencies": GONE, "passes": GONE}),
    **{
        option: Case(
            {**ARRIVING, option: value},
            load=lambda python=python: {
                "concurrencies": GONE, "passes": GONE, "arrivals": traced("arrivals.csv", **python)
            },
        )
        for option, value, python in (
            ("arrivals_format", "csv", {"fmt": "csv"}),
            ("arrivals_from", "500ms", {"from_s": 0.5}),
            ("arrivals_until", "2s", {"until_s": 2.0}),
            ("speed", 2.0, {"speed": 2.0}),
            ("rate_scale", 2.0, {"rate_scale": 2.0}),
        )
    },
    "plan": Case(
        {"concurrencies": GONE, "passes": GONE, "plan": "plan.parquet"},
        load={"concurrencies": GONE, "passes": GONE, "plan": "plan.parquet"},
    ),
    **load("process", "constant", more=RATES),
    **load("burstiness", 0.5, more={**RATES, "process": "gamma"}),
    "sessions": Case({"sessions": True}, load={"sessions": True}),
    **load("passes", 3),
    **load("count", 7, more={"passes": GONE}),
    **load("duration", "5s", more={"passes": GONE}, duration_s=5.0),
    "warmup": Case({"passes": GONE, "duration": "5s", "warmup": "1s"},
                   load={"passes": GONE, "duration_s": 5.0, "warmup_s": 1.0}),
    **load("wait_between", "4s", wait_between_s=4.0),
    **load("drain", "3s", drain_s=3.0),
    **load("max_error_rate", 0.2, max_error_share=0.2),
    "order": Case({"order": "shuffled"}, load={"order": "shuffled"}, words={"shuffle": True}),
    **load("seed", 9),
    **load("think", "2s", think_s=2.0),
    **load("overload", "shed", more=RATES),
    **load("connections", 8, more=RATES),
    **load("max_connections", 400, more=GROWING),
    **load("queue", 50, more=RATES),
    **load("priority_header", "X-Priority", more=RATES),
    **load("sample_records", "1/10", sample_records=10),
    **load("workers", 2),
    **load("pin", "0"),
    **load("source_address", ["127.0.0.1"], source_addresses=("127.0.0.1",)),
    **beside("hosts", 2),
    **beside("ray", "10.0.0.5:6379", hosts=2),
    **beside("listen", "127.0.0.1:7071", hosts=2),
    **beside("token_file", "token", hosts=2, listen="0.0.0.0:7070"),
    **beside("hosts_ca", "authority.pem", hosts=2, hosts_cert="cert.pem", hosts_key="key.pem"),
    **beside("hosts_cert", "cert.pem", hosts=2, hosts_ca="authority.pem", hosts_key="key.pem"),
    **beside("hosts_key", "key.pem", hosts=2, hosts_cert="cert.pem", hosts_ca="authority.pem"),
    **beside("hosts_wait", "90s", hosts=2),
    **beside("records", "remote", hosts=2),
    **beside("stop_when", ["p99 runtime > 2s for 30s"]),
    **beside("metrics_port", 0),
    **beside("metrics_address", "0.0.0.0", metrics_port=0),
    **beside("push_gateway", "http://127.0.0.1:9"),
    **beside("push_every", "20s", push_gateway="http://127.0.0.1:9"),
    **beside("metrics_url", ["http://127.0.0.1:9/metrics"]),
    **beside("metrics_keep", "vllm:"),
    **beside("prometheus", "http://127.0.0.1:9"),
    **beside("prometheus_match", 'namespace="llm"', prometheus="http://127.0.0.1:9"),
    **beside("prometheus_header", ["X-Team: blue"], prometheus="http://127.0.0.1:9"),
    **beside("prometheus_token_env", "GPUSIZE_TEST_KEY", prometheus="https://127.0.0.1:9"),
    **beside("prometheus_cacert", "authority.pem", prometheus="https://127.0.0.1:9"),
    **beside("prometheus_insecure", True, prometheus="https://127.0.0.1:9"),
    **beside("gpu_sample", False),
    **beside("sample_container", ["web"]),
    **beside("sample_pid", ["1"]),
    **beside("sample_cgroup", ["/"]),
    **beside("sample_interval", "50ms", sample_pid=["1"]),
    **search("adaptive", True),
    **search("precision", "5%", precision="5%"),
    **search("budget", "4000", budget=4000),
    **search("most_users", 64, most_users=64),
    **search("gpu_hour_price", "2.5 EUR", gpu_hour_price="2.5 EUR"),
    **beside("users", 12.5),
    "slo": Case({"slo": [SLO, "p99 ttft <= 2s"]}, run={"slos": [SLO, "p99 ttft <= 2s"]}),
    "out": Case({"out": "elsewhere"}, run={"out": "elsewhere"}, once=True),
    "label": Case({"label": ["gpu=H200"]}, run={"labels": {"gpu": "H200"}}),
    "append": Case({"append": True}, run={"append": True}, once=True),
}  # fmt: skip
BASE = {"url": URL, "model": "m", "prompt": "hello", "concurrencies": [1, 2], "passes": 2}
BASE_TARGET = {"url": URL, "model": "m"}
BASE_LOAD = {"concurrencies": (1, 2), "passes": 2}

PRINTED = {"strict", "plots", "quiet", "json"}
"""Options that say what is done with a result; a program does that itself."""

ELSEWHERE = {"config", "resume", "debug", "help", "install_completion", "show_completion"}
"""Options that are no options of a run: where others stand, and what the command itself does."""


def traced(source: str, **terms: Any) -> Any:
    return ArrivalTrace(source, **terms)


def over(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**base, **more}.items() if value is not GONE}


def words_of(options: Mapping[str, Any]) -> Iterator[str]:
    """The options as words of a command line."""
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if name in ("concurrencies", "rates"):
            yield from (option, ",".join(f"{each:g}" for each in value))
        elif isinstance(value, bool):
            yield option if value else option.replace("--", "--no-", 1)
        else:
            for each in value if isinstance(value, list) else [value]:
                yield from (option, str(each))


SKIPPED = ("command", "resume", "_levels", "_own")
"""What doors may tell differently: how the run was asked for; and what loads remember of what they worked out."""


STATED = ("api_is_open", "api_is_guessed")
"""A run folder states the API, whoever decided on it."""


def told(value: Any, seen: tuple[int, ...] = ()) -> Any:
    """All that an object of ours holds, as plain values, so that two can be compared."""
    if isinstance(value, str):
        # A run folder keeps whole paths.
        return value.replace(f"{Path.cwd()}/", "")
    if value is None or isinstance(value, int | float | bytes):
        return value
    if isinstance(value, Path):
        return told(str(value))
    if id(value) in seen:
        return "itself"
    inner = (*seen, id(value))
    if isinstance(value, Mapping):
        return {str(name): told(each, inner) for name, each in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [told(each, inner) for each in value]
    if isinstance(value, re.Pattern):
        return value.pattern
    return held(value, inner)


def held(value: Any, seen: tuple[int, ...]) -> Any:
    """What an object of ours has as attributes; of another's only what it is."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if not kind.startswith("gpusize."):
        return getattr(value, "__qualname__", kind)
    slots = [name for each in type(value).__mro__ for name in getattr(each, "__slots__", ())]
    found = {name: getattr(value, name) for name in slots} if slots else vars(value)
    return {"type": kind, **{name: told(each, seen) for name, each in found.items() if name not in SKIPPED}}


def differences(one: Any, other: Any, place: str = "", skip: Sequence[str] = ()) -> list[str]:
    """Where two such values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = [name for name in {**one, **other} if name not in skip]
        return [
            each
            for name in names
            for each in differences(one.get(name, "nothing"), other.get(name, "nothing"), f"{place}.{name}", skip)
        ]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [each for number, (a, b) in pairs for each in differences(a, b, f"{place}[{number}]", skip)]
    return [] if one == other else [f"{place}: {one!r} and {other!r}"]


@pytest.fixture(scope="module")
def kserve() -> Iterator[str]:
    """A server that answers questions about its models."""
    with clusters.SimulatedCluster({"gpus": 1}) as cluster:
        yield cluster.url


class Standing:
    """A cluster's process that only says that it is up."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._config = json.loads(arguments[-1])

    def read(self) -> dict[str, Any]:
        return {"url": "http://127.0.0.1:9", "grpc_url": "127.0.0.1:10", "config": self._config}

    def end(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(autouse=True)
def doors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files to name, and no run: what a door asks for is captured."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)
    Path("authority.pem").symlink_to(certifi.where())
    planned = gpusize.Load(rates=(5.0,), count=4)
    write_plan(Path("plan.parquet"), planned.levels(1), 1)
    monkeypatch.setenv("GPUSIZE_TEST_KEY", "not-a-secret")

    def capture(spec: RunSpec, **_: Any) -> None:
        made.append(spec)
        raise NothingIsRun("nothing is run")

    monkeypatch.setattr(execute, "execute", capture)
    monkeypatch.setattr(api, "execute", capture)


def spec_of(call: Callable[[], Any]) -> RunSpec:
    """The specification that a call makes."""
    made.clear()
    with pytest.raises(NothingIsRun):
        call()
    [spec] = made
    return spec


@functools.cache
def command() -> Any:
    """The command line, put together once."""
    return get_command(application())


def of_words(*words: str) -> RunSpec:
    return spec_of(lambda: command()(args=["run", "--quiet", *words], standalone_mode=False))


def of_command(options: Mapping[str, Any]) -> RunSpec:
    return of_words(*words_of(options))


def of_file(options: Mapping[str, Any]) -> RunSpec:
    Path("options.json").write_text(json.dumps(options))
    return of_words("--config", "options.json")


def of_study(options: Mapping[str, Any]) -> RunSpec:
    return spec_of(lambda: measure(options, command=(), resume=None, stop=StopSwitch()))


def of_run_folder(spec: RunSpec) -> RunSpec:
    """The run that goes on in the folder of another."""
    Path("begun").mkdir()
    Path("begun/run.json").write_text(json.dumps({"schema": 1, **spec.facts()}))
    return of_words("--resume", "begun")


def of_python(case: Case) -> RunSpec:
    loads = {} if case.load is GONE else over(BASE_LOAD, case.load() if callable(case.load) else case.load)
    planned = gpusize.Load(**loads) if loads or case.load is not GONE else None
    with contextlib.ExitStack() as stack:
        what = case.target() if callable(case.target) else gpusize.Target(**over(BASE_TARGET, case.target))
        where = stack.enter_context(what) if isinstance(what, clusters.SimulatedCluster) else what
        return spec_of(lambda: gpusize.run(where, case.rows(), planned, **case.run))


def prepared(option: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    """The case of an option, with the servers that it needs."""
    case = CASES[option]
    if "KSERVE" in case.given.values():
        url = request.getfixturevalue("kserve")
        assert isinstance(case.target, Mapping)
        return dataclasses.replace(case, given={**case.given, "url": url}, target={**case.target, "url": url})
    if callable(case.target):
        monkeypatch.setattr(clusters, "Child", Standing)
        monkeypatch.setattr(clusters.SimulatedCluster, "replicas", lambda _: {"desired": 1})
    return case


@pytest.mark.parametrize("option", CASES)
def test_every_door_makes_the_same_run_of_an_option(
    option: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = prepared(option, request, monkeypatch)
    options = over(BASE, case.given)
    written = over(options, {} if case.words is None else {option: GONE, **case.words})
    line = told(of_command(written))
    assert differences(line, told(of_file(options))) == []
    assert differences(line, told(of_study(options))) == []
    spec = of_python(case)
    assert differences(line, told(spec)) == []
    if not case.once:
        assert differences(line, told(of_run_folder(spec)), skip=STATED) == []


def test_every_option_of_the_command_is_one_of_a_file_and_has_a_case() -> None:
    shown = [each for each in command().commands["run"].params if not getattr(each, "hidden", False)]
    of_command = {each.opts[0].removeprefix("--").replace("-", "_") for each in shown} - ELSEWHERE
    # A file has a table of headers besides, and says the order of the rows by name.
    assert of_command - {"shuffle"} | {"headers", "order"} == set(RUN_OPTIONS)
    assert set(CASES) | PRINTED == set(RUN_OPTIONS)


def test_every_argument_from_python_has_a_case() -> None:
    used = {name for case in CASES.values() for name in case.run}
    # What goes on, what is told and who else watches are no options of the command.
    assert used == {*RunOptions.__annotations__, *RunArguments.__annotations__} - {"resume", "progress", "observers"}
    of_load = {each.name for each in dataclasses.fields(gpusize.Load) if each.init}
    loads = [case.load() if callable(case.load) else case.load for case in CASES.values() if case.load is not GONE]
    assert {name for each in loads for name in each} == of_load - {"think"}
    of_target = {each.name for each in dataclasses.fields(gpusize.Target) if each.init}
    assert {name for case in CASES.values() if isinstance(case.target, Mapping) for name in case.target} == of_target
