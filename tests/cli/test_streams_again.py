"""A run of streams with rows, models and priorities of their own, sent again from its folder: the same bodies."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.conftest import Gpusize
from tests.cli.test_interrupted import SWEEP
from tests.servers.scripted import ScriptedServer

CHAT = "{name: chat, rate: 40/s, dataset: p.jsonl, model: m1, priority: 10}"
BATCH = "{name: batch, rate: 30/s, dataset: arr.csv, model: m2, priority: 2}"
PLAIN = "{name: plain, rate: 20/s}"
LATE = "{name: late, rate: 20/s, start: 300ms, model: m3}"
QUICK = (*SWEEP[:2], "--no-stream", "--quiet", "--no-plots")

Body = tuple[str, int | None, str]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Two datasets beside the load files that name them."""
    (tmp_path / "p.jsonl").write_text("".join(f'{{"prompt": "p{n}"}}\n' for n in range(3)), "utf-8")
    (tmp_path / "arr.csv").write_text("prompt\n" + "".join(f"a{n}\n" for n in range(4)), "utf-8")
    return tmp_path


def load_of(folder: Path, *streams: str) -> Path:
    path = folder / "load.yaml"
    path.write_text("duration: 600ms\nstreams:\n" + "".join(f"  - {each}\n" for each in streams), "utf-8")
    return path


def taken(server: ScriptedServer) -> Counter[Body]:
    """What came since the last time but for the request that tries the target: model, priority and prompt of each."""
    bodies = [json.loads(request.body) for request in server.requests[1:]]
    server.requests.clear()
    return Counter((body["model"], body.get("priority"), body["messages"][-1]["content"]) for body in bodies)


def only(folder: Path) -> Path:
    [path] = folder.iterdir()
    return path


@pytest.mark.parametrize(
    "streams, more",
    [
        ((CHAT, BATCH), ()),
        ((CHAT, BATCH, PLAIN), ("--model", "base", "--prompt", "hi")),
        ((CHAT, PLAIN, LATE), ("--model", "base=2,other=1", "--dataset", "arr.csv")),
    ],
    ids=["all-named", "one-model", "a-mix"],
)
def test_a_run_of_several_models_is_sent_again(
    gpusize: Gpusize, chat_server: ScriptedServer, files: Path, streams: tuple[str, ...], more: tuple[str, ...]
) -> None:
    url = f"http://127.0.0.1:{chat_server.port}/v1"
    done = gpusize("run", "--url", url, *QUICK, "--load", load_of(files, *streams), *more, "--out", "first")
    assert done.code == 0, done.err
    first = only(files / "first")
    sent = taken(chat_server)
    assert {(model, priority) for model, priority, _ in sent} >= {("m1", -10)}
    facts = json.loads((first / "run.json").read_text("utf-8"))
    assert facts["options"].get("model") == (more[1] if more else None)
    for number, way in enumerate((("--config", first), ("--plan", first, "--config", first))):
        again = gpusize("run", *way, "--out", f"again{number}", "--quiet", "--no-plots")
        assert again.code == 0, again.err
        assert taken(chat_server) == sent, way
        repeated = json.loads((only(files / f"again{number}") / "run.json").read_text("utf-8"))
        assert repeated["models"] == facts["models"]
        assert repeated["dataset"]["sha256"] == facts["dataset"]["sha256"]


def test_the_rest_of_a_run_of_several_models_is_that_of_its_plan(
    gpusize: Gpusize, chat_server: ScriptedServer, files: Path
) -> None:
    url = f"http://127.0.0.1:{chat_server.port}/v1"
    load = load_of(files, CHAT, BATCH, LATE.replace("}", ", dataset: arr.csv}"))
    done = gpusize("run", "--url", url, *QUICK, "--load", load)
    assert done.code == 0, done.err
    path = only(files / "runs")
    sent = taken(chat_server)
    levels = sorted(each for each in (path / "levels").iterdir() if each.name.isdigit())
    assert len(levels) == 2
    # A crash in the second level: it was never committed.
    records = levels[1] / "records"
    for part in records.iterdir():
        part.unlink()
    levels[1].rename(levels[1].with_name(f".{levels[1].name}.open"))
    done = gpusize("run", "--resume", path, "--quiet", "--no-plots")
    assert done.code == 0, done.err
    rest = taken(chat_server)
    assert {model for model, _, _ in rest} == {"m1", "m2", "m3"}
    assert rest <= sent
    # What the first run sent beside that was its first level, in which the late stream sent nothing.
    assert {model for model, _, _ in sent - rest} == {"m1", "m2"}
