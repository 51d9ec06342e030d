"""Simulated clusters as the suite knows them, with everything that estimators must not see."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benches.estimates.foreign import run_foreign
from gpusize.engine.session import core

__all__ = ["ForeignWorld", "OwnWorld", "Process", "Router", "Rows", "Think", "World", "WorldLoad"]

Router = Literal["least_loaded", "round_robin", "random"]
Think = Literal["none", "fixed", "exponential"]
Process = Literal["poisson", "constant"]


@dataclass(frozen=True)
class WorldLoad:
    """What is asked of a cluster.

    Attributes:
        users: users of a closed loop; None for an open one.
        rate: requests per second of an open loop; None for a closed one.
        process: gaps of an open loop.
        think_s: mean time from an answer to the next question.
        think: its spread.
        requests: requests that are counted.
        warmup_requests: requests before them.
        router: which GPU a request goes to.
        burst: whether all users of a closed loop begin at once, and not spread over about one residence time.
    """

    users: int | None = None
    rate: float | None = None
    process: Process = "poisson"
    think_s: float = 0.0
    think: Think = "none"
    requests: int = 4000
    warmup_requests: int = 0
    router: Router = "least_loaded"
    burst: bool = False


@dataclass(frozen=True)
class Rows:
    """One entry per request, in order of due times; times in ns from the start, -1 for never. Arrays of shape (n,)."""

    due_ns: NDArray[np.int64]
    sent_ns: NDArray[np.int64]
    first_token_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    prompt_tokens: NDArray[np.uint32]
    tokens_out: NDArray[np.uint32]
    gpu: NDArray[np.int32]
    ok: NDArray[np.bool_]
    warmup: NDArray[np.bool_]
    user: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.due_ns)


class World(Protocol):
    """A kind of GPU, of which a cluster may have any number."""

    def run(self, load: WorldLoad, *, gpus: int, seed: int) -> Rows:
        """What such a load would see on so many GPUs (or replicas); the same arguments give the same rows."""
        ...

    def to_json(self) -> dict[str, Any]:
        """All that it is made of."""
        ...


@dataclass(frozen=True)
class OwnWorld:
    """The project's own model of a GPU, in virtual time.

    Attributes:
        config: its configuration (docs/reference/simulate.md), without ``gpus``, ``router`` and ``seed``.
        prompt_tokens: length of prompts, as the load of the simulation has it.
        contention: ``sigma`` and ``kappa`` of Gunther's law: what GPUs in one host cost each other.
        mix: pairs of prompt and answer, drawn with replacement; replaces both lengths.
    """

    config: Mapping[str, Any]
    prompt_tokens: Mapping[str, Any] = field(default_factory=lambda: {"fixed": {"tokens": 100}})
    contention: Mapping[str, float] | None = None
    mix: tuple[tuple[int, int], ...] | None = None

    def run(self, load: WorldLoad, *, gpus: int, seed: int) -> Rows:
        """See ``World``."""
        slowness = 1.0
        if self.contention:
            slowness += (gpus - 1) * (self.contention["sigma"] + self.contention["kappa"] * gpus)
        costs = ("iteration_base_s", "iteration_per_sequence_s", "prefill_per_token_s")
        slowed = {name: slowness * self.config[name] for name in costs}
        config = {**self.config, **slowed, "gpus": gpus, "router": load.router, "seed": seed}
        asked: dict[str, Any] = {
            "arrivals": _arrivals(load),
            "requests": load.requests,
            "warmup_requests": load.warmup_requests,
        }
        table: dict[str, bytes] = {}
        if self.mix is None:
            asked["prompt_tokens"] = self.prompt_tokens
        else:
            pairs = np.array(self.mix, dtype="<u4")
            table = {"prompt_tokens": pairs[:, 0].tobytes(), "output_tokens": pairs[:, 1].tobytes()}
        stream, _summary = core().simulate(json.dumps(config), json.dumps(asked), **table)
        return _own_rows(pl.DataFrame(stream))

    def to_json(self) -> dict[str, Any]:
        """See ``World``."""
        return {"own": dict(self.config), "prompt": self.prompt_tokens, "contention": self.contention, "mix": self.mix}


@dataclass(frozen=True)
class ForeignWorld:
    """A GPU whose mechanics the project's model does not have: ``rust/bench-worlds`` runs it.

    Attributes:
        spec: its world: ``mechanics``, ``lengths``, ``noise_sigma``, ``pauses``, ``contention``.
    """

    spec: Mapping[str, Any]

    def run(self, load: WorldLoad, *, gpus: int, seed: int) -> Rows:
        """See ``World``."""
        asked: dict[str, Any] = {
            "requests": load.requests,
            "warmup_requests": load.warmup_requests,
            "router": load.router,
            "think_s": load.think_s,
            "think": load.think,
            "burst": load.burst,
        }
        asked |= {"rate": load.rate, "process": load.process} if load.users is None else {"users": load.users}
        found = run_foreign({"world": self.spec, "load": asked, "gpus": gpus, "seed": seed})
        return Rows(
            due_ns=found["due_ns"],
            sent_ns=found["due_ns"],
            first_token_ns=found["first_token_ns"],
            end_ns=found["end_ns"],
            prompt_tokens=found["prompt_tokens"],
            tokens_out=found["tokens_out"],
            gpu=found["gpu"].view(np.int32),
            ok=found["end_ns"] >= 0,
            warmup=np.arange(len(found["due_ns"])) < load.warmup_requests,
            user=found["user"],
        )

    def to_json(self) -> dict[str, Any]:
        """See ``World``."""
        return {"foreign": dict(self.spec)}


def _arrivals(load: WorldLoad) -> dict[str, Any]:
    if load.users is None:
        return {"open": {"rate_per_s": load.rate, "process": load.process}}
    closed: dict[str, Any] = {"users": load.users, "start": "burst" if load.burst else "staggered"}
    if load.think != "none":
        think = "constant" if load.think == "fixed" else "exponential"
        closed |= {"think_s": load.think_s, "think": think}
    return {"closed": closed}


def _own_rows(frame: pl.DataFrame) -> Rows:
    times = {name: frame[name].fill_null(-1).to_numpy() for name in ("due_ns", "sent_ns", "first_token_ns", "end_ns")}
    return Rows(
        **times,
        prompt_tokens=frame["prompt_tokens"].to_numpy(),
        tokens_out=frame["tokens_out"].to_numpy(),
        gpu=frame["gpu"].fill_null(2**32 - 1).to_numpy().view(np.int32),
        ok=frame["outcome"].to_numpy() == 0,
        warmup=frame["warmup"].to_numpy(),
        user=frame["user"].to_numpy(),
    )
