"""Series pulled from a real Prometheus, against what was put into it, numpy over the observations, and its PromQL."""

from __future__ import annotations

import contextlib
import json
import math
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
import pytest

import gpusize
from gpusize.analysis.series import bucket_rises, increases, total_increases
from gpusize.api.pull import PulledSeries, pull_series
from gpusize.observe.series.definition import Definition
from gpusize.observe.series.presets import PRESETS
from gpusize.observe.series.time_range import TimeRange, of_run
from gpusize.report.exchange.grafana import FILTER, queries_of
from tests.series.observed import S, frame_of, replica
from tests.servers.real_prometheus import RealPrometheus, fill, is_there

pytestmark = [
    pytest.mark.optional_in_ci("Debian packages, and installing them takes root"),
    pytest.mark.skipif(not is_there(), reason="there is no prometheus or promtool on the path"),
]
BEGIN_S = 1_750_000_200
"""In the past, and a multiple of a minute."""
TTFT = "vllm:time_to_first_token_seconds"


def pull(server: RealPrometheus, out: Path, begin_s: float, end_s: float, **options: Any) -> PulledSeries:
    whole = TimeRange(round(begin_s * 1e9), round(end_s * 1e9), "test")
    return pull_series(server.url, out, whole, **{"presets": ["vllm"], "margin_s": 0.0, **options})


def lines_of(frame: pl.DataFrame, metric: str, name: str) -> Iterator[str]:
    """A histogram's samples as OpenMetrics."""
    yield f"# TYPE {metric} histogram"
    for part, mine in (("_bucket", frame.filter(name=name)), ("_count", frame.filter(name=f"{name}_count"))):
        for t_ns, _, labels, le, value in mine.sort("labels", "le", "t_ns").iter_rows():
            pairs = {**json.loads(labels), **({} if le is None else {"le": "+Inf" if math.isinf(le) else repr(le)})}
            text = ",".join(f'{key}="{content}"' for key, content in pairs.items())
            yield f"{metric}{part}{{{text}}} {value:g} {t_ns // 10**6 / 1e3:.3f}"


@pytest.mark.parametrize("seed", range(3))
def test_percentiles_of_windows(seed: int, tmp_path: Path):
    random = np.random.default_rng(seed)
    replicas = [replica(random, f"r{k}") for k in range(3)]
    # To the millisecond, as it stores them.
    made = frame_of(replicas, "ttft").with_columns(pl.col("t_ns") // 10**6 * 10**6 + BEGIN_S * S)
    fill(tmp_path, lines_of(made, TTFT, "ttft"))
    windows = [(BEGIN_S + low, BEGIN_S + low + 600) for low in (0, 300, 600, 900, 1200)]
    with RealPrometheus(tmp_path) as server:
        done = pull(server, tmp_path / "out", BEGIN_S, BEGIN_S + 1800)
        keys = ["name", "labels", "le", "t_ns"]
        pulled = done.scan().collect().sort(keys)
        assert pulled.equals(made.select(pulled.columns).sort(keys))
        rises = bucket_rises(pulled, [(low * S, high * S) for low, high in windows], name="ttft")
        checked = 0
        for (low, high), rise in zip(windows, rises, strict=True):
            for share in (0.5, 0.9, 0.99):
                query = f"histogram_quantile({share}, sum by (le) (increase({TTFT}_bucket[{high - low}s])))"
                theirs, ours = server.value(query, high), rise.percentile(share)
                if ours is None:
                    continue
                # Theirs is extrapolated to the borders: a rank may fall into the next bucket.
                at = int(np.searchsorted(rise.bounds, ours.high))
                least = float(rise.bounds[at - 2]) if at > 1 else 0.0
                most = float(rise.bounds[min(at + 1, rise.bounds.size - 1)])
                assert least <= theirs <= most
                checked += 1
        assert checked >= 12


def test_increases_are_prometheus_where_nothing_is_to_extrapolate(tmp_path: Path):
    random = np.random.default_rng(3)
    values = {}
    for pod in "abc":
        course = np.cumsum(random.integers(0, 9, 241)).astype(float)
        for at in random.integers(1, 240, 3):
            course[at:] -= course[at] - random.integers(0, 3)
        values[pod] = np.abs(course)
    lines = ["# TYPE vllm:prompt_tokens counter"]
    lines += [
        f'vllm:prompt_tokens_total{{pod="{pod}"}} {value:g} {BEGIN_S + 15 * k}'
        for pod, course in values.items()
        for k, value in enumerate(course)
    ]
    fill(tmp_path, lines)
    with RealPrometheus(tmp_path) as server:
        frame = pull(server, tmp_path / "out", BEGIN_S, BEGIN_S + 3600).scan().collect()
        for low, length in ((0, 300), (600, 900), (1500, 1800), (0, 3600)):
            window = (BEGIN_S + low, BEGIN_S + low + length)
            # A scrape on each border: there is nothing to extrapolate.
            theirs = {
                each["metric"]["pod"]: float(each["value"][1])
                for each in server.query(f"increase(vllm:prompt_tokens_total[{length}s])", window[1])
            }
            ours = increases(frame, [(window[0] * S, window[1] * S)], name="tokens_in")
            told = {json.loads(row["labels"])["pod"]: row["value"] for row in ours.iter_rows(named=True)}
            assert told == pytest.approx(theirs)
            steps = {pod: np.diff(course[low // 15 : (low + length) // 15 + 1]) for pod, course in values.items()}
            raw = {
                pod: np.where(step < 0, values[pod][low // 15 + 1 : (low + length) // 15 + 1], step).sum()
                for pod, step in steps.items()
            }
            assert told == pytest.approx(raw)


@pytest.fixture
def gauges(tmp_path: Path) -> dict[tuple[str, int], float]:
    """Blocks of 40 series over two hours; every sample by instance and time."""
    random = np.random.default_rng(1)
    made = {
        (f"i{k}", BEGIN_S + at): float(value)
        for k in range(40)
        for at, value in zip(range(k % 15, 7200, 15), random.integers(0, 99, 480), strict=True)
    }
    head = ["# TYPE vllm:num_requests_running gauge"]
    fill(tmp_path, head + [f'vllm:num_requests_running{{instance="{i}"}} {v:g} {t}' for (i, t), v in made.items()])
    return made


def samples(done: PulledSeries) -> dict[tuple[str, int], float]:
    frame = done.scan().collect()
    assert not frame.select("labels", "t_ns").is_duplicated().any()
    return {(json.loads(labels)["instance"], t_ns // S): v for t_ns, _, labels, _, v in frame.iter_rows()}


def test_again_only_what_is_missing_by_the_servers_own_count(gauges: dict, tmp_path: Path):
    with RealPrometheus(tmp_path) as server:
        out = tmp_path / "out"
        half = pull(server, out, BEGIN_S, BEGIN_S + 3600)
        first = server.asked()
        assert first == half.requests
        assert samples(half) == {key: value for key, value in gauges.items() if key[1] <= BEGIN_S + 3600}
        whole = pull(server, out, BEGIN_S, BEGIN_S + 7200)
        assert samples(whole) == gauges
        assert whole.complete
        before = server.asked()
        again = pull(server, out, BEGIN_S, BEGIN_S + 7200)
        # Five questions for its time, and none for series.
        assert (again.requests, server.asked() - before) == (5, 5)
        assert samples(again) == gauges


def test_it_refuses_so_many_samples_and_is_asked_for_less(gauges: dict, tmp_path: Path):
    with RealPrometheus(tmp_path, flags=["--query.max-samples=1000"]) as server:
        done = pull(server, tmp_path / "out", BEGIN_S, BEGIN_S + 7200)
        assert done.complete
        assert samples(done) == gauges


@pytest.mark.parametrize("parallel", [1, 4])
def test_it_restarts_in_the_middle(gauges: dict, tmp_path: Path, parallel: int):
    with RealPrometheus(tmp_path, flags=["--query.max-samples=1000"]) as server:
        again: list[threading.Thread] = []

        def restart(_: str) -> None:
            if not again:
                server.stop()
                again.append(threading.Thread(target=server.start))
                again[0].start()

        done = pull(server, tmp_path / "out", BEGIN_S, BEGIN_S + 7200, progress=restart, parallel=parallel)
        again[0].join()
        assert done.complete
        assert samples(done) == gauges


def test_expressions_are_its_own_at_each_step(gauges: dict, tmp_path: Path):
    with RealPrometheus(tmp_path) as server:
        # More steps than it gives at once.
        done = pull(
            server,
            tmp_path / "out",
            BEGIN_S,
            BEGIN_S + 7199.5,
            presets=[],
            series=["mine=sum(vllm:num_requests_running)"],
            step_s=0.5,
        )
        frame = done.scan().collect().sort("t_ns")
        assert frame["t_ns"].to_list() == [BEGIN_S * S + k * S // 2 for k in range(14_400)]
        for at in (0, 1234, 7000):
            mine = frame.filter(t_ns=(BEGIN_S + at) * S)["value"].item()
            assert mine == server.value("sum(vllm:num_requests_running)", BEGIN_S + at)
        wrong = pull(server, tmp_path / "out", BEGIN_S, BEGIN_S + 60, series=["wrong=sum("])
        [lost] = wrong.facts["missing"]
        assert lost["names"] == ["wrong"]
        assert "parse error" in lost["why"]


class Page:
    """What a target shows, scraped on loopback."""

    def __init__(self, page: Callable[[], tuple[str, bytes]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kind, body = page()
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def until(good: Callable[[], bool]) -> None:
    """Ask until it is so; the test's own timeout bounds it."""
    pause = threading.Event()
    while not good():
        pause.wait(0.05)


def test_a_stale_marker_is_an_end_and_no_sample(tmp_path: Path):
    shown = ["vllm:num_requests_running 3", "vllm:num_requests_waiting 5"]
    with (
        Page(lambda: ("text/plain; version=0.0.4", "\n".join([*shown, ""]).encode())) as page,
        RealPrometheus(tmp_path, interval="1s", scrape=[page.address]) as server,
    ):
        until(lambda: len(server.query("vllm:num_requests_waiting")) > 0)
        gone_s = server.value("timestamp(vllm:num_requests_waiting)")
        shown.pop()
        # The marker is there: else the instant query would find the old value for five minutes.
        until(lambda: not server.query("vllm:num_requests_waiting"))
        newest = server.value("timestamp(vllm:num_requests_running)")
        until(lambda: server.value("timestamp(vllm:num_requests_running)") > newest + 5)
        now_s = server.value("vector(time())")
        done = pull_series(
            server.url,
            tmp_path / "out",
            TimeRange(round((now_s - 60) * 1e9), round(now_s * 1e9), "t"),
            presets=["vllm"],
            margin_s=0.0,
            wait_for_end=True,
        )
        last = dict(done.scan().group_by("name").agg(pl.col("t_ns").max()).collect().iter_rows())
        assert last["waiting"] < last["running"] - S
        assert last["waiting"] / 1e9 < gone_s + 3
        assert done.scan().select(pl.col("value").is_nan().any()).collect().item() is False
        assert done.facts["names"]["waiting"]["dropped"] == []
        assert done.facts["names"]["waiting"]["gaps"][-1][1] == done.facts["until_ns"]


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, content: bytes | float) -> bytes:
    """A field of a protobuf message: bytes, a varint, or a double."""
    if isinstance(content, bytes):
        return varint(number << 3 | 2) + varint(len(content)) + content
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 1) + np.float64(content).tobytes()


def native_page(values: np.ndarray, schema: int) -> bytes:
    """The observations as a native histogram in Prometheus's protobuf, io.prometheus.client.MetricFamily."""

    def zigzag(number: int) -> int:
        return number << 1 if number >= 0 else (-number << 1) - 1

    places, counts = np.unique(np.ceil(np.log2(values) * 2**schema - 1e-12).astype(int), return_counts=True)
    spans = b"".join(
        field(12, field(1, zigzag(int(place if k == 0 else place - places[k - 1] - 1))) + field(2, 1))
        for k, place in enumerate(places)
    )
    deltas = b"".join(varint(zigzag(int(delta))) for delta in np.diff(counts, prepend=0))
    histogram = field(1, int(values.size)) + field(2, float(values.sum())) + field(5, zigzag(schema))
    histogram += field(6, 1e-9) + field(7, 0) + spans + field(13, deltas)
    family = field(1, TTFT.encode()) + field(3, 4) + field(4, field(7, histogram))
    return varint(len(family)) + family


def test_native_histograms_become_buckets(tmp_path: Path):
    kind = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
    random = np.random.default_rng(4)
    values = random.lognormal(-1, 1, 5000)
    shown = [500]
    with (
        Page(lambda: (kind, native_page(values[: shown[0]], 3))) as page,
        RealPrometheus(
            tmp_path, interval="1s", scrape=[page.address], flags=["--enable-feature=native-histograms"]
        ) as server,
    ):
        count = f"histogram_count({TTFT})"
        until(lambda: bool(server.query(count)) and server.value(count) == 500)
        low_s = server.query(count)[0]["value"][0]
        shown[0] = 5000
        until(lambda: server.value(count) == 5000)
        high_s = server.query(count)[0]["value"][0]
        done = pull_series(
            server.url,
            tmp_path / "out",
            TimeRange(round((low_s - 30) * 1e9), round(high_s * 1e9), "t"),
            presets=["vllm"],
            margin_s=0.0,
            wait_for_end=True,
        )
        frame = done.scan().collect()
        window = (round(low_s * 1e9), round(high_s * 1e9))
        [rise] = bucket_rises(frame, [window], name="ttft")
        assert rise.count == 4500
        for bound, n in zip(rise.bounds, rise.counts, strict=True):
            assert n == (values[500:] <= bound).sum()
        for share in (0.5, 0.9, 0.99):
            told = rise.percentile(share)
            assert told is not None
            exact = float(np.quantile(values[500:], share, method="inverted_cdf"))
            assert told.low <= exact <= told.high <= told.low * 2**2**-3.0 * (1 + 1e-9)
        [total] = total_increases(frame, [window], name="ttft_sum").iter_rows(named=True)
        assert total["value"] == pytest.approx(values[500:].sum())


def shown_names(each: Definition) -> list[str]:
    """The names that a scrape may have, the newest first."""
    return list(dict.fromkeys(said.metric for said in each.said() if said.role in ("value", "bucket")))


def exposed(each: Definition, k: int) -> Iterator[tuple[str, str, dict[int, float]]]:
    """Series of one quantity, a sample a minute: one target has every name of it, the other the oldest alone."""
    names = shown_names(each)
    things = dict.fromkeys(each.by, f"x{k}")
    for target, mine in (("new", names), ("old", names[-1:])):
        labels = ",".join(f'{key}="{text}"' for key, text in {"job": "j", "instance": target, **things}.items())
        size = k + 2.0 if target == "new" else k + 5.0
        for name in mine:
            if each.kind == "histogram":
                for bound, share in (("0.5", 0.25), ("1", 0.75), ("+Inf", 1.0)):
                    course = {60 * n: share * 40 * n for n in range(6)}
                    yield name, f'{labels},le="{bound}"', course
            elif each.kind == "counter":
                yield name, labels, {60 * n: 60 * n * size for n in range(6)}
            else:
                yield name, labels, {60 * n: size for n in range(6)}


def expected(each: Definition, k: int) -> float:
    """What the panel must show, each target counted once, by the scale of the name that counts."""
    scales = {said.metric: said.scale for said in each.said()}
    names = shown_names(each)
    new, old = (k + 2.0) * scales[names[0]], (k + 5.0) * scales[names[-1]]
    if each.across == "mean":
        return (new + old) / 2
    return max(new, old) if each.across in ("max", "each") and each.kind == "gauge" else new + old


@pytest.mark.parametrize("preset", PRESETS)
def test_every_query_of_the_dashboard(preset: str, tmp_path: Path):
    definitions = PRESETS[preset]
    lines: dict[str, list[str]] = {}
    for k, each in enumerate(definitions):
        for name, labels, course in exposed(each, k):
            lines.setdefault(name, []).extend(f"{name}{{{labels}}} {v:g} {BEGIN_S + t}" for t, v in course.items())
    fill(tmp_path, [line for name, mine in lines.items() for line in (f"# TYPE {name} unknown", *mine)])
    now = BEGIN_S + 300
    with RealPrometheus(tmp_path) as server:
        for k, each in enumerate(definitions):
            for legend, query in queries_of(each):
                assert FILTER in query
                asked = query.replace("$namespace", ".*").replace("$job", ".*").replace("$__rate_interval", "4m")
                found = server.query(asked, now)
                assert len(found) == 1, (each.name, asked)
                value = float(found[0]["value"][1])
                if each.kind == "histogram":
                    assert value == pytest.approx({"p50": 0.75, "p95": 1.0, "p99": 1.0}[legend]), asked
                else:
                    assert value == pytest.approx(expected(each, k)), asked


def test_a_run_tells_when_and_the_server_saw_what_it_sent(tmp_path: Path):
    with (
        gpusize.SimulatedCluster({"gpus": 2}) as cluster,
        RealPrometheus(tmp_path, interval="1s", scrape=[cluster.url.removeprefix("http://")]) as server,
    ):
        until(lambda: len(server.query("vllm:generation_tokens_total")) > 0)
        load = gpusize.Load(concurrencies=(8,), count=200)
        target = gpusize.Target(cluster.url, api="openai-chat", gpus=2, max_tokens=20)
        result = gpusize.run(target, gpusize.Dataset.from_rows([{"prompt": "hi"}]), load, out=tmp_path / "runs")
        time_range = of_run(Path(result.path))
        done = pull_series(server.url, tmp_path / "out", time_range, presets=["vllm"], margin_s=5.0, wait_for_end=True)
        frame = done.scan().collect()
        clock = done.facts["clock"]
        assert abs(clock["offset_ns"]) <= clock["uncertainty_ns"] + 5_000_000
        window = (time_range.start_ns - 2 * S, time_range.end_ns + 2 * S)
        ok = result.records.filter(pl.col("outcome") == "ok")
        [row] = total_increases(frame, [window], name="tokens_out").iter_rows(named=True)
        # The server saw the request before the sweep too, which is no record.
        assert row["value"] == pytest.approx(float(ok["tokens_out"].sum()) + 20)
        [rise] = bucket_rises(frame, [window], name="ttft")
        assert rise.count == ok.height + 1
        ttft_s = (ok["first_token_ns"] - ok["sent_ns"]).to_numpy() / 1e9
        for share in (0.5, 0.9):
            told = rise.percentile(share)
            assert told is not None
            client = float(np.quantile(ttft_s, share, method="inverted_cdf"))
            # What a busy machine adds on the way, the client alone sees.
            assert told.low <= client
            places = [int(np.searchsorted(rise.bounds, value)) for value in (client, told.high)]
            assert share > 0.5 or abs(places[0] - places[1]) <= 1, (client, told)
