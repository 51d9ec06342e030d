"""A run from its first request to its result, with an engine without a network."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import pytest

from gpusize.analysis.slo import Slo
from gpusize.api import run
from gpusize.base.errors import StoreError, TargetError, UsageError
from gpusize.base.interrupt import StopSwitch
from gpusize.engine.clock_log import ClockLog
from gpusize.measure.execute import execute
from gpusize.measure.monitor.options import MonitorOptions
from gpusize.measure.spec import RunSpec
from gpusize.records.store import RunStore, level_dirs, read_level, read_run
from gpusize.result import open_run
from gpusize.targets.server import Target
from gpusize.workload.dataset import Dataset
from gpusize.workload.load import Load
from tests.run.fakes import FakeClock, FakeEngine, FakeLevel, write_part

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusize.engine.session import Engine
    from gpusize.result import Result


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakeClock().pair
    resumed = ClockLog.resumed

    def with_fake_clock(file: Path) -> ClockLog:
        log = resumed(file)
        log.read = pair
        return log

    monkeypatch.setattr(ClockLog, "resumed", with_fake_clock)


@pytest.fixture
def request_(tmp_path: Path) -> RunSpec:
    return RunSpec(
        target=Target("http://127.0.0.1:9/v1", model="m", gpus=2, headers={"X-Key": "env:NOT_READ"}),
        dataset=Dataset.from_rows([{"prompt": "a"}, {"prompt": "b"}]),
        load=Load(concurrencies=(1, 2, 4), passes=1),
        slos=(Slo.parse("p95 runtime <= 1s"),),
        users=10,
        out=tmp_path / "runs",
        labels={"k": "v"},
        command=["gpusize", "run"],
    )


class Made(FakeEngine):
    """A fake engine that notes what it was made of."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.made_of: tuple[Any, ...] = ()
        self.mix: object = None
        self.answer: dict[str, Any] = {"outcome": "ok", "status": 200, "message": None, "service_ns": 1}

    def __call__(self, *args: Any, workers: int, mix: object = None) -> Made:
        self.made_of = (*args, workers)
        self.mix = mix
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def probe(self) -> dict[str, Any]:
        return self.answer


def go(request: RunSpec, engine: Made | None = None, **more: Any) -> Result:
    made = engine or Made()
    return execute(request, engine=cast("Callable[..., Engine]", made), **more)


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOT_READ", "s3cret")


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"slos": ()}, "there is no SLO to size 10 users for; add one"),
        ({"target": Target("http://127.0.0.1:9/v1", model="m")}, "GPU count unknown; pass --gpus N"),
        ({}, None),
        ({"slos": (), "users": None}, None),
    ],
)
def test_what_a_number_of_gpus_will_lack_is_said_before_the_load(
    request_: RunSpec, changes: dict[str, Any], said: str | None
) -> None:
    engine = Made()
    told: list[tuple[str, int]] = []
    go(replace(request_, **changes), engine, note=lambda text: told.append((text, len(engine.levels))))
    lacks = [(text, sent) for text, sent in told if "no number of GPUs" in text]
    assert [sent for _, sent in lacks] == ([] if said is None else [0]), "before the first level"
    assert all(said is not None and said in text for text, _ in lacks)


def test_a_run_leaves_a_folder_that_says_everything(request_: RunSpec) -> None:
    engine = Made()
    result = go(request_, engine)
    meta = read_run(result.path)
    assert meta["schema"] == 1
    assert list(meta) == [
        "schema", "gpusize", "run", "created", "command", "options", "targets", "models", "hosts", "dataset", "seed",
        "labels", "levels",
    ]  # fmt: skip
    assert meta["targets"][0] == {
        "url": "http://127.0.0.1:9/v1/chat/completions",
        "api": "openai-chat",
        "nature": "language_model",
        "model": "m",
        "gpus": 2,
        "tls_verified": None,
        "simulated": None,
    }
    assert meta["dataset"]["rows"] == 2
    assert meta["options"]["slo"] == ["p95 runtime <= 1s"]
    assert meta["options"]["users"] == 10
    assert [level["concurrency"] for level in meta["levels"]] == [1, 2, 4]
    assert "s3cret" not in (result.path / "run.json").read_text()
    assert "s3cret" in json.dumps(engine.made_of[0])
    assert result.summary["concurrency"].to_list() == [1, 2, 4]
    assert result.records.height == 12
    assert (result.users, [str(slo) for slo in result.slos]) == (10, ["p95 runtime <= 1s"])
    assert not result.cancelled
    assert engine.log[-1] == "close"
    assert (result.path / "clocks.parquet").is_file()


def test_a_program_learns_where_the_metrics_were_and_that_a_gateway_failed(request_: RunSpec) -> None:
    monitor = MonitorOptions.of({"metrics_port": 0, "push_gateway": "http://127.0.0.1:1"})
    result = go(replace(request_, monitor=monitor))
    page, failed = (next((text for text in result.notes if word in text), "") for word in ("metrics are at", ":1"))
    assert page.startswith("the run's metrics are at http://127.0.0.1:")
    assert "http://127.0.0.1:1" in failed


def test_the_result_can_be_opened_again(request_: RunSpec) -> None:
    made = go(request_)
    opened = open_run(made.path)
    assert opened.summary.equals(made.summary)
    assert opened.users == 10
    assert opened.slos == made.slos
    assert repr(opened) == f"Result('{made.path}', 3 levels)"
    assert made.path.name in opened._repr_html_()


@pytest.mark.parametrize(
    "outcome, status, message, expected",
    [
        ("connect_error", 0, "Connection refused (os error 111)", r"connect: Connection refused \(os error 111\)\. Is"),
        ("tls_error", 0, "UnknownIssuer", "TLS handshake failed: UnknownIssuer. Name its authority"),
        ("tls_error", 0, "Other(OtherError(CaUsedAsEndEntity))", r"marked as an authority \(CA:TRUE\)\. Make one with"),
        ("timeout", None, None, r"in time \(5s to connect, 5m in all\)\. Raise --timeout"),
        (
            "http_error",
            404,
            "no model \x1b[31mx\n\ny",
            r"status 404: no model \\x1b\[31mx y\. Is this the path of the op",
        ),
        ("http_error", 401, "", r"status 401\. Is it the right key"),
        ("http_error", 500, "x" * 9999, "status 500: x{290,299}…"),
        ("http_error", 422, "bad", "status 422: bad. Does the server want other fields"),
        ("http_error", 429, "", "status 429. The server limits requests"),
        ("api_error", 200, "busy", "answered with an error: busy"),
        ("truncated", 200, None, "ended too early"),
        ("protocol_error", None, "not HTTP", "cannot be read: not HTTP"),
    ],
)
def test_a_bad_first_answer_is_told_and_nothing_is_written(
    request_: RunSpec, outcome: str, status: int | None, message: str | None, expected: str
) -> None:
    engine = Made()
    engine.answer = {"outcome": outcome, "status": status, "message": message, "service_ns": None}
    with pytest.raises(TargetError, match=expected) as caught:
        go(request_, engine)
    assert caught.value.exit_code == 3
    assert str(caught.value).startswith("http://127.0.0.1:9/v1/chat/completions: ")
    assert "\n" not in str(caught.value)
    assert not request_.out.exists()


def test_a_secret_that_the_server_repeats_is_not_kept(request_: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "sk-0123456789")
    monkeypatch.setenv("WHO", "tenant-42")
    headers = {"X-Tenant": "env:WHO", "X-Plain": "plain"}
    target = replace(cast("Target", request_.target), api_key_env="KEY", headers=headers)
    request = replace(request_, target=target)
    said = "Bearer sk-0123456789 of tenant-42 is plain"
    error = {"id": 0, "outcome": "http_error", "status": 401, "message": said, "count": 1}
    result = go(request, Made(outcomes={0: {"outcomes": {"ok": 1, "http_error": 1}, "rows": 2, "errors": [error]}}))
    level = json.loads((result.path / "levels" / "0000" / "level.json").read_text())
    assert level["errors"][0]["message"] == "(hidden) of (hidden) is plain"
    written = [path.read_bytes() for path in result.path.rglob("*") if path.is_file()]
    assert not any(b"0123456789" in content or b"tenant-42" in content for content in written)


def test_an_interrupted_run_says_so_and_keeps_what_it_has(request_: RunSpec) -> None:
    switch = StopSwitch()
    engine = Made()

    def ask_in_second(level: FakeLevel) -> None:
        if level.visit == 1:
            switch.ask()

    engine.on_end = ask_in_second
    result = go(request_, engine, stop=switch)
    assert result.cancelled
    assert result.summary["state"].to_list() == ["done", "done"]


def test_resume_measures_what_is_missing(request_: RunSpec) -> None:
    switch = StopSwitch()
    engine = Made()
    engine.on_end = lambda _level: switch.ask()
    first = go(request_, engine, stop=switch)
    assert first.summary["concurrency"].to_list() == [1]
    # What a crash would have left of the second level:
    with RunStore.reopen(first.path) as store:
        folder = store.open_level(1, {"setting": request_.load.settings(2)[1], "step": 1})
        write_part(folder / "records" / "part-00000.parquet", 1, ["ok"], 0)

    result = go(replace(request_, resume=first.path))

    assert result.path == first.path
    assert [read_level(each)["state"] for each in level_dirs(first.path)] == ["done", "partial", "done", "done"]
    assert result.summary["concurrency"].to_list() == [1, 2, 2, 4]
    again = go(replace(request_, resume=first.path))
    assert again.summary.height == 4


@pytest.mark.parametrize(
    "changed, what",
    [
        ({"load": Load(concurrencies=(1, 2), passes=1)}, "sweep"),
        ({"load": Load(concurrencies=(1, 2, 4), passes=1, seed=9)}, "seed"),
        ({"dataset": Dataset.from_prompt("other")}, "dataset"),
        ({"target": Target("http://127.0.0.1:9/v1", model="n")}, "model"),
        ({"target": Target("http://127.0.0.1:8/v1", model="m")}, "target"),
    ],
)
def test_resume_with_something_else_is_refused(request_: RunSpec, changed: dict[str, Any], what: str) -> None:
    first = go(request_)
    with pytest.raises(UsageError, match=f"the {what} differs"):
        go(replace(request_, resume=first.path, **changed))
    assert len(level_dirs(first.path)) == 3
    with RunStore.reopen(first.path):
        pass


def test_append_includes_the_earlier_runs(request_: RunSpec) -> None:
    first = go(request_)
    second = go(replace(request_, append=True))
    assert second.paths == (second.path, first.path)
    assert second.summary.height == 6
    assert second.scan().collect_schema().names()[0] == "run"
    assert set(second.records["run"].unique()) == {first.path.name, second.path.name}
    assert open_run(request_.out).summary.height == 6
    assert open_run([request_.out, first.path]).summary.height == 6


def test_append_to_something_else_is_refused_before_any_load(request_: RunSpec) -> None:
    go(request_)
    engine = Made()
    other = replace(request_, append=True, dataset=Dataset.from_prompt("other"))
    with pytest.raises(UsageError, match="another dataset"):
        go(other, engine)
    assert engine.log == []


def test_labels_choose_runs(request_: RunSpec) -> None:
    first = go(request_)
    go(replace(request_, labels={"k": "w"}))
    assert open_run(request_.out, labels={"k": "v"}).paths == (first.path,)
    with pytest.raises(UsageError, match="no run is labelled k=x"):
        open_run(request_.out, labels={"k": "x"})


def test_a_full_disk_names_the_way_on(request_: RunSpec) -> None:
    engine = Made(outcomes={1: {"write_error": "No space left on device (os error 28)"}})
    with pytest.raises(StoreError, match="--resume") as caught:
        go(request_, engine)
    [path] = request_.out.iterdir()
    assert str(path) in str(caught.value)
    assert [read_level(each)["state"] for each in level_dirs(path)] == ["done", "partial"]
    resumed = go(replace(request_, resume=path))
    assert resumed.summary.filter(state="done")["concurrency"].to_list() == [1, 2, 4]


@pytest.mark.parametrize("users", [0, -1, float("nan")])
def test_users_that_cannot_be_meant(request_: RunSpec, users: float) -> None:
    with pytest.raises(UsageError, match="users"):
        replace(request_, users=users)


def test_a_cancelled_task_ends_the_run_in_order(request_: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Made(looks=10**9)
    monkeypatch.setattr(run, "execute", partial(execute, engine=cast("Callable[..., Engine]", engine)))
    running = threading.Event()

    async def main() -> None:
        task = asyncio.create_task(
            run.arun(
                request_.target,
                request_.dataset,
                request_.load,
                out=request_.out,
                progress=lambda _event: running.set(),
            )
        )
        await asyncio.to_thread(running.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    result = open_run(request_.out)
    assert result.summary["state"].to_list() == ["cancelled"]


def test_arun_hands_back_the_result(request_: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "execute", partial(execute, engine=cast("Callable[..., Engine]", Made())))
    result = asyncio.run(run.arun(request_.target, request_.dataset, request_.load, out=request_.out))
    assert result.summary.height == 3
