"""llama.cpp with a model of some milliseconds per token: TTFT and ITL as we and a straightforward client see them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl

from benches.client import level_plan, target_spec
from benches.lib.context import Context
from benches.lib.peers import peer_program
from benches.lib.procs import BenchFailed, LineClient, on_core, pinned
from benches.lib.stats import bootstrap_median
from benches.lib.turns import alternate, two_sided
from benches.sections.cpu import closed
from benches.sections.sse import OPENAI_RESPONSE
from tests.servers.llama import MODEL, LlamaServer, make_model

__all__ = ["llama"]

BOUND = 0.05
MIN_TOKEN_S = 0.005
SIZE = {"embedding": 768, "blocks": 10, "feed_forward": 2048}
"""Some 280 MB."""
TOKENS = 24
# Random weights would end answers early and make half characters, which are no text yet: only letters may come.
ONLY_LETTERS = {str(token): 100 for token in range(260, 286)}
# The server keeps what it knows of the last prompt: the two begin with different letters, so that each is read anew.
BODIES: list[dict[str, Any]] = [
    {
        "model": MODEL,
        "prompt": letter * 48,
        "max_tokens": TOKENS,
        "temperature": 0.0,
        "seed": 7,
        "logit_bias": ONLY_LETTERS,
        "stream": True,
    }
    for letter in "ab"
]


@dataclass(frozen=True)
class Seen:
    """Means over the answers of a turn, in seconds; an answer's ITL is its mean. Both must see as many events."""

    ttft_s: float
    itl_s: float
    events: int

    @classmethod
    def of(cls, answers: Sequence[Sequence[float]]) -> Seen:
        """From the seconds since its request of each event with text, answer by answer."""
        itls = [(times[-1] - times[0]) / (len(times) - 1) for times in answers]
        ttft_s = sum(times[0] for times in answers) / len(answers)
        return cls(ttft_s, sum(itls) / len(itls), sum(map(len, answers)))


def llama(ctx: Context) -> None:
    """The same prompts on both sides at concurrency 1, turn about after each two; a bar on each of TTFT and ITL.

    A server that computes is slowed by the machine's neighbours far more than 5 %, for seconds at a time: turns are
    short, and both clients stay up between them.
    """
    interpreter = Path(peer_program("llama"))
    folder = ctx.fresh_dir("llama")
    model = make_model(interpreter, folder / "model.gguf", **SIZE)
    bodies = folder / "bodies.json"
    bodies.write_text(json.dumps(BODIES), encoding="utf-8")
    with LlamaServer(interpreter, model, folder, prefix=pinned([], ctx.server_core)) as server:
        command = [peer_program("clients"), "-m", "benches.programs.httpx_stream", f"{server.url}/completions"]
        with LineClient([*command, str(bodies)], ctx.client_core) as httpx, _session(ctx, server) as ours:
            # The first turns connect, and load what is loaded late; they do not count.
            httpx.ask()
            ours.turn()
            found = alternate(ctx.size(40, 3), lambda: Seen.of(httpx.ask()), ours.turn, _tell)
    if len({seen.events for side in found for seen in side}) != 1:
        raise BenchFailed(f"not the same events: httpx and gpusize saw {found}")
    if median(seen.itl_s for side in found for seen in side) < MIN_TOKEN_S:
        raise BenchFailed(f"a token takes less than {MIN_TOKEN_S * 1e3:.0f} ms here: a larger model is needed")
    _report(ctx, *found)


class _Ours:
    """gpusize with a session that stays up, as between the levels of a run."""

    def __init__(self, ctx: Context, session: Any) -> None:
        self._ctx = ctx
        self._session = session

    def turn(self) -> Seen:
        """A level of all prompts, one after the other; raises BenchFailed when a request fails."""
        folder = self._ctx.fresh_dir("records")
        plan = level_plan(closed(1), {"count": len(BODIES)}, str(folder))
        level = self._session.level(json.dumps(plan))
        while not level.wait(0.1):
            level.poll()
        outcome = json.loads(level.outcome())
        if outcome["outcomes"] != {"ok": len(BODIES)}:
            raise BenchFailed(f"not all ok: {outcome['outcomes']} {outcome['errors']}")
        rows = pl.read_parquet(folder / "*.parquet").sort("seq").select("sent_ns", "events_ns").iter_rows()
        return Seen.of([[(at - sent) / 1e9 for at in stamps] for sent, stamps in rows])


@contextmanager
def _session(ctx: Context, server: LlamaServer) -> Iterator[_Ours]:
    from gpusize import _core

    spec = target_spec(
        server.port,
        method="POST",
        path="/v1/completions",
        headers=[["Content-Type", "application/json"]],
        response={**OPENAI_RESPONSE, "content": ["/choices/0/text"], "reasoning": []},
        record_events=True,
    )
    rows = [[json.dumps(body).encode()] for body in BODIES]
    with on_core(ctx.client_core):
        session = _core.Session(json.dumps(spec), json.dumps([{"field": 0}]), rows, workers=1)
    try:
        yield _Ours(ctx, session)
    finally:
        session.close()


def _tell(a: Seen, b: Seen) -> str:
    ttft = f"TTFT httpx {a.ttft_s * 1e3:.2f} ms, gpusize {b.ttft_s * 1e3:.2f} ms"
    return f"{ttft}; ITL {a.itl_s * 1e3:.3f} ms, {b.itl_s * 1e3:.3f} ms"


def _report(ctx: Context, theirs: list[Seen], ours: list[Seen]) -> None:
    pairs = list(zip(theirs, ours, strict=True))
    ratios = {"ttft": [b.ttft_s / a.ttft_s for a, b in pairs], "itl": [b.itl_s / a.itl_s for a, b in pairs]}
    rows = [
        [
            name.upper() + ", ms",
            *(bootstrap_median([getattr(seen, f"{name}_s") * 1e3 for seen in side]) for side in (theirs, ours)),
            bootstrap_median(found),
        ]
        for name, found in ratios.items()
    ]
    note = (
        f"llama.cpp on one core, a random model, {len(BODIES)} prompts of 48 letters and {TOKENS} tokens each in a "
        f"turn, one at a time; {len(pairs)} alternating turns."
    )
    ctx.report.table("llama.cpp, streamed", ["", "httpx", "gpusize", "gpusize / httpx, paired"], rows, note)
    for name, found in ratios.items():
        two_sided(ctx, f"llama_{name}_error", found, BOUND)
