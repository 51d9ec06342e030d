"""Pulling from a double that is down, restarts, refuses, cuts off and lies."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest

from gpusize.api.pull import CHECK_S, PulledSeries, Server, check_server, pull_series
from gpusize.base.errors import StoreError, TargetError, UsageError
from gpusize.observe.series.intervals import joined
from gpusize.observe.series.time_range import TimeRange
from gpusize.records.series import read_series_facts, scan_series
from tests.series.double import Asked, Double, Fault, html, refusal, truncated
from tests.virtual_time import VirtualClock

BEGIN_S, HOURS = 1_699_980_000, 4
END_S = BEGIN_S + HOURS * 3600
SELECTOR = 'mine=my_queue{app="x"}'


def gauge(name: str, seed: int, **labels: str) -> tuple[dict[str, str], list[tuple[int, str]]]:
    random_ = random.Random(seed)
    times = range(BEGIN_S * 1000 - 90_000, END_S * 1000 + 90_000, 15_000)
    samples = [(at + random_.randrange(40), str(random_.randrange(50))) for at in times]
    return {"__name__": name, "job": "j", **labels}, samples


def stored() -> list[tuple[dict[str, str], list[tuple[int, str]]]]:
    return [
        gauge("vllm:num_requests_running", 1, instance="a"),
        gauge("vllm:num_requests_running", 2, instance="b"),
        gauge("vllm:num_requests_waiting", 3, instance="a"),
        gauge("kube_deployment_status_replicas_ready", 4, instance="k", deployment="d"),
    ]


@pytest.fixture
def double() -> Iterator[Double]:
    with Double(stored(), now_ms=(END_S + 600) * 1000) as double:
        yield double


Pull = Callable[..., PulledSeries]


@pytest.fixture
def pull(double: Double, tmp_path: Path) -> Pull:
    """Pulls the four hours; one question at a time, on a clock that passes only while it waits."""

    def pull(begin_s: float = BEGIN_S, end_s: float = END_S, **options: Any) -> PulledSeries:
        options = {"presets": ["vllm", "deployment"], "parallel": 1, "margin_s": 0.0, **options}
        clock = options.pop("clock", None) or VirtualClock()
        server = Server(
            double.url,
            clock=clock,
            wall_ns=double.wall_ns,
            retry_s=options.pop("retry_s", 30.0),
            **options.pop("more", {}),
        )
        time_range = TimeRange(round(begin_s * 1e9), round(end_s * 1e9), "test")
        return pull_series(server, tmp_path / "out", time_range, **options)

    return pull


def expected(
    double: Double, begin_s: float = BEGIN_S, end_s: float = END_S, until_ms: int | None = None
) -> list[tuple]:
    """What must be there, from the double's own series."""
    names = {
        "vllm:num_requests_running": "running",
        "vllm:num_requests_waiting": "waiting",
        "kube_deployment_status_replicas_ready": "replicas_ready",
    }
    high = min(end_s * 1000, until_ms or 1 << 62)
    return sorted(
        (names[labels["__name__"]], labels["instance"], at * 1_000_000, float(text))
        for labels, samples in double.series
        for at, text in samples
        if begin_s * 1000 <= at <= high
    )


def found(done: PulledSeries) -> list[tuple]:
    rows = done.scan().select("name", pl.col("labels").str.json_path_match("$.instance"), "t_ns", "value").collect()
    return sorted(rows.rows())


def once(fault: Fault, *numbers: int) -> Fault:
    """Fails so with the questions for series of these numbers, from 0."""
    counter = itertools.count()

    def each(asked: Asked) -> Any:
        if asked.form["query"] == "time()":
            return None
        return fault(asked) if next(counter) in numbers else None

    return each


def test_every_sample_is_there_once(double: Double, pull: Pull):
    done = pull()
    assert found(done) == expected(double)
    assert done.complete
    assert done.facts["missing"] == []
    assert done.requests == len(double.asked) + double.times
    facts = done.facts["names"]
    assert {name for name, each in facts.items() if each["samples"]} == {"running", "waiting", "replicas_ready"}
    running = facts["running"]
    assert (running["kind"], running["unit"], running["across"], running["presets"]) == (
        "gauge",
        "requests",
        "sum",
        ["vllm"],
    )
    assert (running["series"], running["samples"]) == (2, len([row for row in found(done) if row[0] == "running"]))
    assert running["interval_s"] == pytest.approx(15, abs=0.05)
    assert running["gaps"] == []
    assert facts["ttft"]["gaps"] == [[(BEGIN_S * 1000 - 1) * 1_000_000, END_S * 10**9]]
    assert read_series_facts(done.path) == done.facts


def test_in_parallel_it_is_the_same(double: Double, pull: Pull):
    assert found(pull(parallel=4)) == expected(double)


def test_again_only_what_is_missing_is_asked(double: Double, pull: Pull):
    pull()
    before = len(double.asked)
    again = pull()
    assert (len(double.asked), again.complete, found(again)) == (before, True, expected(double))
    pull(BEGIN_S - 60, END_S + 60)
    spans = joined(asked.interval for asked in double.asked[before:])
    low, high = (BEGIN_S * 1000 - 1, END_S * 1000)
    assert spans == [(low - 60_000, low), (high, high + 60_000)]
    assert found(pull(BEGIN_S - 60, END_S + 60)) == expected(double, BEGIN_S - 60, END_S + 60)


def test_a_preset_that_is_added_is_asked_alone(double: Double, pull: Pull):
    pull(presets=["vllm"])
    before = len(double.asked)
    done = pull()
    assert all("vllm" not in asked.form["query"] for asked in double.asked[before:])
    assert found(done) == expected(double)


def test_what_was_asked_otherwise_is_not_mixed(pull: Pull):
    pull(match='namespace="a"')
    with pytest.raises(UsageError, match=r"is in .* already, asked as .*namespace=\\?\"a"):
        pull(match='namespace="b"')


def test_down_at_the_start_and_up_in_time(double: Double, pull: Pull):
    clock = VirtualClock()
    double.fault = lambda _: (0, {}, b"")
    clock.at(5, lambda: setattr(double, "fault", None))
    assert found(pull(clock=clock)) == expected(double)
    assert 5 <= clock.passed_s < 30


def test_down_for_good_is_one_line_and_no_folder(double: Double, pull: Pull, tmp_path: Path):
    double.fault = lambda _: (0, {}, b"")
    with pytest.raises(TargetError, match=r"http://127.*disconnected.*Nothing was pulled"):
        pull()
    assert not (tmp_path / "out").exists()


def test_a_restart_in_the_middle_costs_nothing_but_time(double: Double, pull: Pull):
    clock = VirtualClock()
    double.fault = once(lambda _: refusal(503, "Service Unavailable"), 1, 2, 3, 6)
    done = pull(clock=clock)
    assert done.complete
    assert found(done) == expected(double)
    assert clock.waits == [0.5, 1, 2, 0.5]


def test_one_that_does_not_come_back_leaves_what_was_pulled(double: Double, pull: Pull):
    number = itertools.count()
    double.fault = lambda asked: (0, {}, b"") if "time()" not in str(asked) and next(number) >= 3 else None
    done = pull()
    assert "disconnected" in str(done.fatal)
    assert not done.complete
    kept = found(done)
    assert kept
    assert set(kept) < set(expected(double))
    lost = [(each["from_ns"], each["to_ns"]) for each in done.facts["missing"] if "running" in each["names"]]
    times = {row[2] for row in expected(double) if row[0] == "running"} - {
        row[2] for row in kept if row[0] == "running"
    }
    assert all(any(low < at <= high for low, high in lost) for at in times)
    # Gone for good for this pull: it is not asked hundreds of times.
    assert len(double.asked) < 20
    double.fault = None
    again = pull()
    assert again.complete
    assert found(again) == expected(double)


@pytest.mark.parametrize(
    "cut", [lambda _: truncated(), lambda _: (200, {"Content-Type": "application/json"}, b'{"sta')]
)
def test_a_body_that_is_cut_off_is_asked_for_again(double: Double, pull: Pull, cut: Fault):
    double.fault = once(cut, 0, 2)
    assert found(pull()) == expected(double)


def test_so_much_at_once_is_refused_and_halved(double: Double, pull: Pull):
    def fault(asked: Asked) -> Any:
        if "time()" in str(asked):
            return None
        low, high = asked.interval
        return (
            refusal(422, "query processing would load too many samples into memory") if high - low > 700_000 else None
        )

    double.fault = fault
    done = pull()
    assert done.complete
    assert found(done) == expected(double)
    assert max(high - low for low, high in (asked.interval for asked in double.asked)) > 700_000


def test_what_cannot_be_halved_is_a_stated_gap(double: Double, pull: Pull):
    def fault(asked: Asked) -> Any:
        return refusal(422, "too many samples") if "vllm" in str(asked) else None

    double.fault = fault
    done = pull(END_S - 2, END_S)
    assert not done.complete
    assert done.fatal is None
    told = {name for each in done.facts["missing"] for name in each["names"]}
    assert "running" in told
    assert "replicas_ready" not in told
    assert all("too many samples" in each["why"] for each in done.facts["missing"])


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_server_that_never_gives_it_is_not_asked_for_ever(double: Double, pull: Pull, parallel: int):
    def fault(asked: Asked) -> Any:
        # A limit on series, for instance: less time does not help.
        return (
            refusal(422, "the query exceeds the limit of 1 series")
            if "vllm:num_requests_waiting" in str(asked)
            else None
        )

    double.fault = fault
    done = pull(parallel=parallel)
    assert found(done) == [row for row in expected(double) if row[0] != "waiting"]
    low, high = (BEGIN_S * 1000 - 1) * 1_000_000, END_S * 10**9
    lost = [(each["from_ns"], each["to_ns"]) for each in done.facts["missing"] if "waiting" in each["names"]]
    assert joined(lost) == [(low, high)]
    assert {name for each in done.facts["missing"] for name in each["names"]} == {"waiting"}
    # Halving all of four hours to seconds would be tens of thousands.
    assert len(double.asked) < 250


@pytest.mark.parametrize("status", [401, 403])
def test_without_a_token_it_is_one_line(double: Double, pull: Pull, status: int):
    double.fault = lambda _: refusal(status, "Unauthorized")
    with pytest.raises(TargetError, match=f"status {status}: Unauthorized: a token"):
        pull()


def test_a_token_that_expires_leaves_what_was_pulled(double: Double, pull: Pull, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOKEN", "t0ken-t0ken")
    number = itertools.count()
    double.fault = lambda asked: refusal(401) if "time()" not in str(asked) and next(number) >= 2 else None
    done = pull(more={"headers": {"Authorization": "Bearer env:TOKEN"}})
    assert "status 401" in str(done.fatal)
    assert found(done)
    assert set(double.tokens) == {"Bearer t0ken-t0ken"}
    files = [file for file in done.path.rglob("*") if file.is_file()]
    assert not [file for file in files if b"t0ken" in file.read_bytes()]


def test_a_login_page_is_told_as_one(double: Double, pull: Pull):
    double.fault = lambda _: html()
    with pytest.raises(TargetError, match="text/html, not Prometheus's JSON"):
        pull()
    double.fault = lambda _: html(302, {"Location": "https://login.example/?to=x"})
    with pytest.raises(TargetError, match=r"leads to https://login\.example/: is a login before it"):
        pull()


def test_a_wrong_expression_is_refused_and_the_rest_is_pulled(double: Double, pull: Pull):
    def fault(asked: Asked) -> Any:
        return refusal(400, "parse error: unexpected end") if asked.path.endswith("query_range") else None

    double.fault = fault
    done = pull(series=["mine=sum("])
    assert found(done) == expected(double)
    [lost] = done.facts["missing"]
    assert (lost["names"], lost["why"]) == (["mine"], "status 400: parse error: unexpected end")
    assert done.fatal is None
    assert not done.complete


def test_expressions_are_evaluated_on_one_grid(double: Double, pull: Pull):
    def fault(asked: Asked) -> Any:
        if not asked.path.endswith("query_range"):
            return None
        start, end, step = (float(asked.form[name]) for name in ("start", "end", "step"))
        assert (end - start) / step < 11_000
        from tests.series.double import matrix

        count = round((end - start) / step) + 1
        return matrix([{"metric": {}, "values": [[start + k * step, str(start + k * step)] for k in range(count)]}])

    double.fault = fault
    options = {"presets": [], "series": ["mine=sum(up)"], "step_s": 0.5}
    done = pull(BEGIN_S + 0.2, END_S - 7, **options)
    done = pull(BEGIN_S, END_S, **options)
    times = done.scan().select("t_ns").collect()["t_ns"].to_list()
    assert sorted(times) == [at * 500_000_000 for at in range(BEGIN_S * 2, END_S * 2 + 1)]
    assert len([asked for asked in double.asked if "query_range" in asked.path]) >= 4
    assert done.facts["names"]["mine"]["interval_s"] == 0.5


def test_unknown_series_are_told(double: Double, pull: Pull):
    done = pull(series=[SELECTOR])
    mine = done.facts["names"]["mine"]
    assert (mine["series"], mine["samples"], mine["interval_s"]) == (0, 0, None)
    assert mine["queries"] == ['{__name__="my_queue",app="x"}']
    assert done.complete


def test_gaps_stay_gaps(double: Double, pull: Pull):
    cut = [BEGIN_S * 1000 + 3_600_000, BEGIN_S * 1000 + 3_900_000]
    for labels, samples in double.series:
        if labels["__name__"] == "vllm:num_requests_running":
            replaced = [(at, "NaN" if cut[0] < at < cut[1] else text) for at, text in samples]
            samples[:] = replaced if labels["instance"] == "a" else [each for each in replaced if each[1] != "NaN"]
    done = pull()
    running = done.facts["names"]["running"]
    [(low, high)] = running["gaps"]
    assert cut[0] - 15_100 <= low / 1e6 <= cut[0]
    assert cut[1] <= high / 1e6 <= cut[1] + 15_100
    assert [(each["series"], each["samples"], each["why"]) for each in running["dropped"]] == [
        ("vllm:num_requests_running", 20, "not a number")
    ]
    assert done.facts["names"]["waiting"]["gaps"] == []
    assert not done.scan().select(pl.col("value").is_nan().any()).collect().item()


def test_old_and_new_prefixes_count_once(double: Double, pull: Pull):
    new = gauge("llm_d_epp_request_total", 7, instance="e")
    double.series += [new, ({**new[0], "__name__": "inference_objective_request_total"}, new[1])]
    done = pull(presets=["epp"])
    facts = done.facts["names"]["gateway_requests"]
    assert facts["samples"] == len([at for at, _ in new[1] if BEGIN_S * 1000 <= at <= END_S * 1000])
    assert facts["series"] == 1
    [dropped] = facts["dropped"]
    assert (dropped["series"], dropped["samples"]) == ("inference_objective_request_total", facts["samples"])


def test_what_the_server_has_not_yet_is_asked_for_later(double: Double, pull: Pull):
    double.now_ms = (END_S - 1800) * 1000
    done = pull()
    until_ms = done.facts["until_ns"] // 1_000_000
    # Scrapes that have begun may not have been stored.
    assert double.now_ms - 15_100 < until_ms <= double.now_ms - 15_000
    assert found(done) == expected(double, until_ms=until_ms)
    [late] = done.facts["missing"]
    assert (late["from_ns"], late["to_ns"]) == (until_ms * 1_000_000, END_S * 10**9)
    assert late["why"] == "the server's clock is not there yet"
    double.now_ms = (END_S + 600) * 1000
    assert found(pull()) == expected(double)


def test_it_waits_for_the_end(double: Double, pull: Pull):
    double.now_ms = (END_S - 100) * 1000
    clock = VirtualClock()
    clock.at(114, lambda: setattr(double, "now_ms", (END_S + 16) * 1000))
    assert found(pull(clock=clock, wait_for_end=True)) == expected(double)
    assert clock.passed_s == pytest.approx(115, abs=0.2)


def test_what_has_not_begun_is_refused(double: Double, pull: Pull):
    double.now_ms = (BEGIN_S - 1) * 1000
    with pytest.raises(UsageError, match="not begun yet"):
        pull()


def test_our_times_are_moved_to_the_servers_clock(double: Double, tmp_path: Path):
    ahead_ns = 120 * 10**9
    server = Server(double.url, clock=VirtualClock(), wall_ns=lambda: double.wall_ns() - ahead_ns)
    ours = TimeRange(BEGIN_S * 10**9 - ahead_ns, END_S * 10**9 - ahead_ns, "run", ours=True)
    done = pull_series(server, tmp_path / "out", ours, presets=["vllm", "deployment"], margin_s=0.0, parallel=1)
    assert found(done) == expected(double)
    assert abs(done.facts["clock"]["offset_ns"] - ahead_ns) <= done.facts["clock"]["uncertainty_ns"]
    assert done.facts["range"]["start_ns"] == ours.start_ns


def test_warnings_of_a_partial_answer_are_kept(double: Double, pull: Pull):
    import json

    def fault(asked: Asked) -> Any:
        if "time()" in str(asked):
            return None
        status, headers, body = double._series(asked)
        return status, headers, json.dumps({**json.loads(body), "warnings": ["a store is down"]}).encode()

    double.fault = fault
    assert pull().facts["warnings"] == ["a store is down"]


def test_a_damaged_part_is_named(pull: Pull, tmp_path: Path):
    pull()
    part = min((tmp_path / "out" / "series.parquet").iterdir())
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(StoreError, match=r"part-000001.parquet: not a part of pulled series"):
        pull()


def test_a_folder_of_something_else_is_left_alone(pull: Pull, tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "series.parquet").write_bytes(b"")
    with pytest.raises(StoreError, match="not made by a pull"):
        pull()
    with pytest.raises(StoreError, match="not a folder of pulled series"):
        read_series_facts(tmp_path)
    assert scan_series(tmp_path).collect().is_empty()


def test_a_proxy_that_only_lets_read_is_asked_by_get(double: Double, pull: Pull):
    first = itertools.count()
    double.fault = lambda _: refusal(405) if next(first) == 0 else None
    assert found(pull()) == expected(double)


@pytest.mark.parametrize("options, words", [({"parallel": 0}, "from 1 to 16"), ({"step_s": 0.0}, "at least 1 ms")])
def test_absurd_arguments_are_refused(pull: Pull, options: dict[str, Any], words: str):
    with pytest.raises(UsageError, match=words):
        pull(**options)


@pytest.mark.parametrize("parallel", [1, 4])
def test_ctrl_c_keeps_and_describes_what_was_pulled(double: Double, pull: Pull, tmp_path: Path, parallel: int):
    said = itertools.count()

    def stop(_: str) -> None:
        if next(said) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(parallel=parallel, progress=stop)
    facts = read_series_facts(tmp_path / "out")
    assert {each["why"] for each in facts["missing"]} == {"the pull was interrupted"}
    kept = scan_series(tmp_path / "out").select(pl.len()).collect().item()
    assert 0 < kept < len(expected(double))
    assert found(pull(parallel=parallel)) == expected(double)


def test_a_bug_in_a_thread_is_not_swallowed(pull: Pull, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("gpusize.observe.series.pull.samples_of", broken)
    with pytest.raises(ZeroDivisionError):
        pull(parallel=2)


def test_whether_a_server_is_there_is_known_in_seconds():
    """A pull asks for half a minute; before a load nothing is lost, and whoever mistyped the address waits."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    clock = VirtualClock()
    with pytest.raises(TargetError, match="refused"):
        check_server(Server("http://127.0.0.1:9", clock=clock, transport=httpx.MockTransport(refuse)))
    assert 0 < clock.passed_s <= CHECK_S
