"""llama.cpp's own server, one to three of them on equal shares of CPU behind nginx."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benches.lib.context import Context, say
from benches.lib.host import CpuTimes
from benches.lib.peers import peer_program
from benches.lib.procs import BenchFailed, pinned
from benches.real.judge import Judged, judged, tell
from benches.real.levels import Workload, measured
from benches.real.question import Asked
from tests.resources.live_groups import Group, made
from tests.servers.llama import MODEL, make_model
from tests.servers.llama_cpp import LlamaCpp
from tests.servers.nginx import Nginx

__all__ = ["llama"]

REPLICAS = 3
CORES = 0.45
"""Of each: three of them leave a third of two cores to the load."""
PERIOD_US = 10_000
"""Of the quota. A server has its share within each, so the shorter, the more it is like a slower machine."""
SIZE = {"embedding": 128, "blocks": 4, "feed_forward": 384}
"""Some 4 MB: a token takes a fraction of a millisecond of a core."""
SLOTS, CONTEXT = 4, 1_024
"""Requests that a replica works on at once, and tokens of each."""
IN_FLIGHT = (1, 2, 4, 6, 8, 12, 16, 24, 32)
LEVEL_S, ROUNDS = 5, 2
QUESTIONS = 5
"""Of each workload."""

COMMON = ("--api", "openai-completions", "--model", MODEL, "--output-length", "exact", "--temperature", "0")
FIXED = "input=12 output=16 rows=400"
VARIED = "input=uniform(4,60) output=lognormal(12,0.7) rows=400"
PROMPTS = "input=uniform(30,120) output=4 rows=400"
USERS = (6, 10, 16, 24)
PAUSING = (10, 20, 30, 40)


def _workload(name: str, rows: str, metric: str, loads: Sequence[Asked]) -> Workload:
    return Workload(name, (*COMMON, "--synthetic", rows), metric, tuple(loads))


WORKLOADS = (
    _workload("equal lengths", FIXED, "runtime", [Asked(n) for n in USERS]),
    _workload("varied lengths", VARIED, "runtime", [Asked(n) for n in USERS]),
    _workload("varied lengths and pauses", VARIED, "runtime", [Asked(n, think_s=1.0) for n in PAUSING]),
    _workload("long prompts", PROMPTS, "ttft", [Asked(n) for n in USERS]),
)


def llama(ctx: Context) -> None:
    """Five questions on each workload, told from one replica and held against one to three."""
    before, folder = CpuTimes.now(), ctx.fresh_dir("llama")
    model = make_model(Path(peer_program("llama")), folder / "model.gguf", **SIZE)
    answered: list[Judged] = []
    with _replicas(ctx, model, folder) as urls:
        for number, workload in enumerate(WORKLOADS[: ctx.size(len(WORKLOADS), 1)]):
            of = {count: replace(workload, words=("--url", url, *workload.words)) for count, url in urls.items()}
            out, core = folder / f"runs{number}", ctx.client_core
            found = measured(of, IN_FLIGHT, ctx.size(LEVEL_S, 2), ctx.size(ROUNDS, 1), out, core)
            answered += judged(workload, found, QUESTIONS, seed=number)
            say(f"llama: {workload.name}: {len(answered)} questions so far")
    note = (
        f"{ROUNDS} rounds. Shares are of the raw records, without the first quarter of a level of {LEVEL_S} s. Each is "
        f"a llama-server with {SLOTS} slots and {CORES:g} of a core, by a quota of {PERIOD_US / 1e3:g} ms; nginx sends "
        f"a request to the one with the fewest (least_conn). Asked of the runs on one replica, {LEVEL_S} s each at "
        f"{', '.join(map(str, IN_FLIGHT))} in flight."
    )
    tell(ctx, "llama", answered, note, before)


@contextlib.contextmanager
def _replicas(ctx: Context, model: Path, folder: Path) -> Iterator[dict[int, str]]:
    """Addresses of the first one, two and three replicas; those that are not asked cost nothing."""
    program = Path(peer_program("llama-server", "llama-server", "program"))
    with contextlib.ExitStack() as open_:
        servers = []
        for number in range(REPLICAS):
            place = folder / f"replica{number}"
            place.mkdir()
            # A quota is of whole slices of each core, so it is kept best by a server that stays on one.
            core = pinned([], (ctx.server_core, ctx.client_core)[number % 2])
            server = open_.enter_context(LlamaCpp(program, model, place, slots=SLOTS, context=CONTEXT, prefix=core))
            open_.enter_context(_quota()).take(server.pid)
            servers.append(server)
        urls = {}
        for count in range(1, REPLICAS + 1):
            place = folder / f"nginx{count}"
            place.mkdir()
            nginx = open_.enter_context(_balanced([server.port for server in servers[:count]], place))
            urls[count] = f"http://127.0.0.1:{nginx.port}/v1"
        yield urls


@contextlib.contextmanager
def _quota() -> Iterator[Group]:
    group = made()
    if group is None:
        raise BenchFailed("no cgroup can be made here: run it as root")
    try:
        group.limit_cpu(CORES, PERIOD_US)
        yield group
    finally:
        group.remove()


def _balanced(ports: Sequence[int], folder: Path) -> Nginx:
    # A connection for each request: the server closes kept ones as it likes, and nginx would answer 502 then.
    servers = " ".join(f"server 127.0.0.1:{port} max_fails=0;" for port in ports)
    location = (
        "location / { proxy_pass http://replicas; proxy_http_version 1.1; proxy_set_header Connection close; "
        "proxy_buffering off; proxy_read_timeout 600s; }"
    )
    return Nginx(folder, location, http=f"upstream replicas {{ least_conn; {servers} }}")
