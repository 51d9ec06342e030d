"""The whole path from the command line, against a server on loopback."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gpusize.base.errors import StoreError
from tests.cli.conftest import Gpusize, chat
from tests.servers.scripted import Request, Script, ScriptedServer, Send, Step, answer

_opened: list[str] = []
sys.addaudithook(lambda event, told: _opened.append(str(told[0])) if event == "open" else None)


def opens(path: Path) -> int:
    """How often this process has opened a file since `_opened` was emptied; the interpreter itself says so."""
    return sum(Path(name).name == path.name for name in _opened)


SWEEP = ("--metrics-url", "none", "--prompt", "x", "--no-stream", "--model", "m", "--gpus", "2", "--quiet")
QUESTION = ("--users", "8", "--slo", "p95 runtime <= 60s")


def only_run() -> Path:
    [path] = Path("runs").iterdir()
    return path


def levels(path: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(path.glob("levels/*/level.json"))]


def test_a_sweep_leaves_everything_that_the_reference_names(gpusize: Gpusize, url: str) -> None:
    done = gpusize("run", "--url", url, *SWEEP, *QUESTION, "--concurrencies", "1,2,4", "--passes", "3")
    # Whether so short levels follow a line is chance; either way everything is written.
    assert done.code in (0, 1), done.err
    path = only_run()
    assert str(path / "report.html") in done.out
    names = {entry.name for entry in path.iterdir()}
    derived = {"summary.parquet", "summary.csv", "summary.json", "estimate.json", "plots", "report.html", "tables"}
    assert names == {"run.json", "dataset.parquet", "clocks.parquet", "levels", ".lock", *derived}
    assert {file.suffix for file in (path / "plots").iterdir()} == {".png", ".svg"}
    for level, concurrency in zip(levels(path), (1, 2, 4), strict=True):
        assert level["schema"] == 1
        assert level["state"] == "done"
        assert level["setting"]["concurrency"] == concurrency
        assert level["rows"] == 3 * concurrency == level["outcomes"]["ok"]
        assert [each["name"] for each in level["intervals"]] == ["steady"]
    records = pl.read_parquet(path / "levels" / "0002" / "records" / "part-*.parquet")
    assert records["tokens_out"].to_list() == [7] * 12
    assert pl.read_parquet(path / "clocks.parquet").height >= 2
    assert pl.read_parquet(path / "levels" / "0000" / "histograms" / "part-*.parquet").height > 0


def test_estimate_answers_from_what_was_measured_without_sending_anything(
    gpusize: Gpusize, url: str, chat_server: ScriptedServer
) -> None:
    gpusize("run", "--url", url, *SWEEP, "--concurrencies", "1,2,4", "--passes", "2", "--no-plots")
    path, sent = only_run(), len(chat_server.requests)
    done = gpusize("estimate", path, "--users", "2", "--slo", "p95 runtime <= 60s", "--method", "crossing", "--json")
    document = json.loads(done.out)
    assert len(chat_server.requests) == sent
    [estimate] = document["estimates"]
    assert estimate["method"] == "crossing"
    assert estimate["tested_gpus"] == 2
    assert document["summary"][0]["concurrency"] == 1
    assert done.code in (0, 1)


def test_the_calculators_fields_carry_the_datasets_ids(gpusize: Gpusize, url: str) -> None:
    Path("d.json").write_text('[{"id": "a", "prompt": "x"}, {"id": "b", "prompt": "y"}]', encoding="utf-8")
    asked = [each for each in SWEEP if each not in ("--prompt", "x")]
    options = ("--dataset", "d.json", "--concurrencies", "1,3", "--passes", "1")
    gpusize("run", "--url", url, *asked, *QUESTION, *options)
    document = json.loads((only_run() / "estimate.json").read_text(encoding="utf-8"))
    items = {c: set(data["sizing_metrics"]["per_item_metrics"]) for c, data in document["calc_data"].items()}
    assert items == {"1": {"a"}, "3": {"a", "b", "a_rep1"}}


def test_json_is_one_document_and_nothing_else(gpusize: Gpusize, url: str) -> None:
    options = ("--concurrencies", "1,2", "--passes", "1", "--json", "--no-plots")
    noisy = [each for each in SWEEP if each != "--quiet"]
    done = gpusize("run", "--url", url, *noisy, *options)
    document = json.loads(done.out)
    assert [row["concurrency"] for row in document["summary"]] == [1, 2]
    assert document["path"] == str(only_run())
    assert "level 2/2" in done.err


def test_quiet_says_nothing_while_it_runs(gpusize: Gpusize, url: str) -> None:
    done = gpusize("run", "--url", url, *SWEEP, "--concurrencies", "1", "--passes", "1", "--no-plots")
    assert done.err == ""


def test_a_page_that_cannot_be_written_does_not_take_the_answer(
    gpusize: Gpusize, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StoreError("the disk is full", "report.html", "free some space")

    monkeypatch.setattr("gpusize.report.page.html.write_html", full)
    done = gpusize("run", "--url", url, *SWEEP[:-1], *QUESTION, "--concurrencies", "1,2", "--passes", "3", "--no-plots")
    assert (done.code, done.complaint) == (3, "report.html: the disk is full. Free some space")
    assert "p95 runtime <= 60s" in done.out
    assert "GPU" in done.out
    assert "report.html" not in done.out


def test_a_level_that_is_missing_is_named(gpusize: Gpusize, url: str) -> None:
    gpusize("run", "--url", url, *SWEEP, *QUESTION, "--concurrencies", "1,2", "--passes", "3", "--no-plots")
    (only_run() / "levels" / "0001" / "level.json").unlink()
    for words in (("estimate", only_run()), ("report", only_run())):
        done = gpusize(*words)
        assert done.code != 0
        assert "0001/level.json: this file is missing. Restore it from a copy" in done.complaint
        assert "--skip-damaged" in done.complaint


def test_the_rows_of_a_file_are_kept_with_their_lengths(gpusize: Gpusize, url: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"prompt": "x" * n}) + "\n" for n in (3, 1, 4)))
    rows = ("--dataset", tmp_path / "rows.jsonl", *SWEEP[:2], *SWEEP[4:])
    gpusize("run", "--url", url, *rows, "--concurrencies", "1", "--count", "2", "--no-plots")
    assert pl.read_parquet(only_run() / "dataset.parquet")["length"].to_list() == [3, 1, 4]


def test_run_json_repeats_the_run(gpusize: Gpusize, url: str) -> None:
    asked = ("--concurrencies", "1,2", "--passes", "2", "--seed", "7", "--label", "a=b", *QUESTION)
    gpusize("run", "--url", url, *SWEEP, *asked, "--no-plots")
    first = only_run()
    again = gpusize("run", "--config", first / "run.json", "--out", "again", "--no-plots", "--quiet")
    assert again.code in (0, 1), again.err
    [second] = Path("again").iterdir()
    one, two = (json.loads((path / "run.json").read_text()) for path in (first, second))
    for name in ("targets", "models", "dataset", "seed", "labels", "levels", "options"):
        assert one[name] == two[name], name


def test_the_command_line_wins_over_the_file(gpusize: Gpusize, url: str) -> None:
    Path("sweep.toml").write_text(
        f'url = "{url}"\nprompt = "x"\nstream = false\nconcurrencies = [1, 2]\nduration = "9h"\n'
        "plots = false\nquiet = true\n"
    )
    done = gpusize("run", "--config", "sweep.toml", "--count", "3")
    assert done.code == 0, done.err
    assert [level["rows"] for level in levels(only_run())] == [3, 3]


def test_resume_goes_on(gpusize: Gpusize, url: str) -> None:
    gpusize("run", "--url", url, *SWEEP, "--concurrencies", "1,2,4", "--passes", "1", "--no-plots")
    path = only_run()
    # A crash: the last level was never committed, and its only part was cut off.
    last = path / "levels" / "0002"
    part = last / "records" / "part-00000.parquet"
    part.write_bytes(part.read_bytes()[:-100])
    last.rename(last.with_name(".0002.open"))
    done = gpusize("run", "--resume", path, "--quiet", "--no-plots")
    assert done.code == 0, done.err
    assert [level["state"] for level in levels(path)] == ["done", "done", "partial", "done"]
    assert levels(path)[3]["setting"]["concurrency"] == 4


def test_append_pools_the_runs(gpusize: Gpusize, url: str) -> None:
    asked = ("--concurrencies", "1,2", "--passes", "2", "--no-plots", *QUESTION)
    gpusize("run", "--url", url, *SWEEP, *asked)
    done = gpusize("run", "--url", url, *SWEEP, *asked, "--append", "--json")
    document = json.loads(done.out)
    assert len(document["summary"]) == 4
    assert len({row["run"] for row in document["summary"]}) == 2
    refused = gpusize("run", "--url", url, *SWEEP, "--model", "other", *asked, "--append")
    assert refused.code == 2
    assert "another model" in refused.complaint


def test_no_level_within_the_slo_is_a_measured_no(gpusize: Gpusize, url: str) -> None:
    asked = ("--concurrencies", "1,2", "--passes", "2", "--no-plots", "--slo", "p95 runtime <= 0.001us")
    done = gpusize("run", "--url", url, *SWEEP, *asked)
    assert done.code == 1
    assert "no measured level meets" in done.complaint
    assert (only_run() / "report.html").is_file()


def test_a_failure_voids_its_level_with_passes_and_the_sweep_goes_on(
    gpusize: Gpusize, scripted_server: Callable[[Script], ScriptedServer]
) -> None:
    failing = 3  # the probe is the first, then one request of level 1, then the first of level 2
    # The two of level 2 come at once: each takes a number of its own.
    numbers = itertools.count(1)

    def script(request: Request) -> Sequence[Step]:
        if next(numbers) == failing:
            return [Send(answer(b"too busy", status="503 Service Unavailable"))]
        return chat(request)

    server = scripted_server(script)
    asked = ("--url", f"http://127.0.0.1:{server.port}/v1", "--concurrencies", "1,2,4", "--passes", "1")
    done = gpusize("run", *asked, *SWEEP, "--no-plots")
    assert done.code == 0
    found = levels(only_run())
    # The load before it is measured once more: did the server fail, or was it too much for it?
    expected = {1: ["done", "done"], 2: ["interrupted"], 4: ["done"]}
    states = {users: [each["state"] for each in found if each["setting"]["concurrency"] == users] for users in expected}
    assert states == expected
    [alert] = [text for text in found[1]["alerts"] if text.startswith("interrupted")]
    assert "http_error 503" in alert
    assert "too busy" in alert
    assert "interrupted" in done.out


def test_an_allowed_share_of_failures_does_not_void(
    gpusize: Gpusize, scripted_server: Callable[[Script], ScriptedServer]
) -> None:
    def script(request: Request) -> Sequence[Step]:
        if request.number == 2:
            return [Send(answer(b"no", status="500 Internal Server Error"))]
        return chat(request)

    server = scripted_server(script)
    asked = ("--url", f"http://127.0.0.1:{server.port}/v1", "--concurrencies", "1", "--count", "10")
    gpusize("run", *asked, *SWEEP, "--max-error-rate", "0.5", "--no-plots")
    [level] = levels(only_run())
    assert level["state"] == "done"
    assert level["outcomes"] == {"ok": 9, "http_error": 1}


def test_secrets_reach_the_server_and_nothing_else(
    gpusize: Gpusize, url: str, chat_server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "s3cret-value")
    asked = ("--api-key-env", "MY_KEY", "--header", "X-Token: env:MY_KEY", "--concurrencies", "1", "--passes", "1")
    done = gpusize("run", "--url", url, *SWEEP, *asked)
    assert chat_server.requests[0].header("Authorization") == "Bearer s3cret-value"
    assert chat_server.requests[0].header("X-Token") == "s3cret-value"
    assert "s3cret-value" not in done.out + done.err
    for file in only_run().rglob("*"):
        assert not file.is_file() or b"s3cret-value" not in file.read_bytes(), file


def test_report_makes_the_derived_files_again(gpusize: Gpusize, url: str) -> None:
    gpusize("run", "--url", url, *SWEEP, *QUESTION, "--concurrencies", "1,2", "--passes", "2", "--no-plots")
    path = only_run()
    before = (path / "summary.json").read_bytes()
    (path / "summary.json").unlink()
    done = gpusize("report", path)
    assert done.out.strip() == str(path / "report.html")
    assert (path / "summary.json").read_bytes() == before
    assert (path / "plots" / "runtime.svg").is_file()
    elsewhere = gpusize("report", path, "--out", "elsewhere", "--no-plots")
    assert elsewhere.out.strip() == "elsewhere/report.html"


def test_an_open_loop_keeps_its_rate_and_shows_it(gpusize: Gpusize, url: str) -> None:
    done = gpusize(
        "run", "--url", url, *SWEEP, "--rates", "200", "--process", "constant", "--count", "40", "--no-plots"
    )
    assert done.code == 0, done.err
    [level] = levels(only_run())
    assert level["setting"] == {
        "kind": "open", "rate": 200.0, "process": "constant", "passes": None, "count": 40, "duration_s": None,
        "connections": 256, "queue": 10_000, "overload": "queue", "expected": 40,
    }  # fmt: skip
    assert level["rows"] == 40


@pytest.mark.parametrize(
    "rates, given, told",
    [
        ("200,300", ("--slo", "p95 runtime <= 5s"), True),
        ("200", ("--slo", "p95 runtime <= 5s"), False),
        ("200,300", (), False),
        ("200,300", ("--slo", "p95 runtime <= 5s", "--quiet"), False),
    ],
)
def test_rates_within_an_slo_end_with_how_to_size_by_them(
    gpusize: Gpusize, url: str, rates: str, given: tuple[str, ...], told: bool
) -> None:
    """Not where one rate was measured, from which nothing follows."""
    loud = [each for each in SWEEP if each != "--quiet"]
    asked = ("run", "--url", url, *loud, "--rates", rates, "--process", "constant", "--count", "40", "--no-plots")
    done = gpusize(*asked, *given)
    assert done.code == 0, done.err
    hint = f"gpusize: gpusize estimate {only_run()} --rate R says how many GPUs R requests/s need"
    assert (hint in done.err) is told


def test_dataset_rows_are_sent_in_order_and_repeat(gpusize: Gpusize, url: str, chat_server: ScriptedServer) -> None:
    Path("rows.jsonl").write_text("".join(f'{{"id": {k}, "question": "q{k}"}}\n' for k in range(3)))
    asked = ("--dataset", "rows.jsonl", "--concurrencies", "1", "--passes", "5", "--metrics-url", "none")
    gpusize("run", "--url", url, *asked, "--no-stream", "--quiet", "--no-plots")
    sent = [json.loads(each.body)["messages"][-1]["content"] for each in chat_server.requests]
    assert sent == ["q0", "q0", "q1", "q2", "q0", "q1"]
    records = pl.read_parquet(only_run() / "levels" / "0000" / "records" / "part-*.parquet").sort("seq")
    assert records["row"].to_list() == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("ways", ["dataset", "streams", "streams of one model each", "workflow"])
def test_each_dataset_is_read_once(gpusize: Gpusize, url: str, ways: str) -> None:
    files = [Path(f"{name}.jsonl") for name in ("one", "two")]
    for file in files:
        file.write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    model = ", model: m" if "model" in ways else ""
    streams = ", ".join(f"{{rate: 20, dataset: {file.absolute()}{model}}}" for file in files)
    Path("load.yaml").write_text(f"duration: 300ms\nstreams: [{streams}]\n")
    load: tuple[str, ...] = ("--load", "load.yaml")
    if ways == "dataset":
        files = files[:1]
        load = ("--dataset", str(files[0]), "--concurrencies", "1,2", "--passes", "1")
    target = ("--url", url, "--no-stream") if ways != "workflow" else ("--command", "true {prompt}")
    _opened.clear()
    done = gpusize("run", *target, *load, "--quiet", "--no-plots", "--metrics-url", "none")
    assert done.code == 0, done.err
    assert [opens(file) for file in files] == [1] * len(files)
