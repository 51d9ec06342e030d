"""How long a pod on a fake node takes for each step: drawn by its name, so that a repeat has the same delays."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

from gpusize.base.errors import UsageError
from gpusize.base.text import shown
from gpusize.workload.load.grammar import parse_think

if TYPE_CHECKING:
    from gpusize.workload.load.think import Think

__all__ = ["Delays", "share_of"]

_WRITE: Final = "write 2s, exp(2s), uniform(50ms,500ms) or lognormal(2s,0.5)"
_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True)
class Delays:
    """Delays of a pod's steps, and how many pods go wrong.

    Attributes:
        start: from the binding until its containers run.
        ready: from then until it is ready.
        run: from then until its containers end with 0; None where they go on. Pods that are always restarted go on.
        never: share of pods that never start.
        fail: share of pods whose containers end with 1 as they start.
        seed: another seed gives every pod other delays.
    """

    start: Think
    ready: Think
    run: Think | None = None
    never: float = 0.0
    fail: float = 0.0
    seed: int = 0

    @classmethod
    def parse(
        cls,
        start: str = "0s",
        ready: str = "0s",
        run: str | None = None,
        *,
        never: float = 0.0,
        fail: float = 0.0,
        seed: int = 0,
    ) -> Delays:
        """Read delays as a user writes them: ``2s``, ``exp(2s)``, ``uniform(50ms,500ms)``, ``lognormal(2s,0.5)``.

        Raises:
            UsageError: one is not such a text, or the shares leave no room.
        """
        read = {"--start-after": start, "--ready-after": ready} | ({"--run-for": run} if run is not None else {})
        found = {}
        for option, text in read.items():
            try:
                found[option] = parse_think(text)
            except UsageError as problem:
                raise UsageError(f'"{shown(text)}" is not a delay', option, _WRITE) from problem
            if found[option].kind == "recorded":
                raise UsageError("nothing was recorded", option, _WRITE)
        for name, share in (("never", never), ("fail", fail)):
            if not 0 <= share <= 1:
                raise UsageError(f"{share:g} is no share", f"--{name}", "write it as 0.05")
        if never + fail > 1:
            raise UsageError("more pods than there are never start or fail", "--never", "lower --never or --fail")
        return cls(found["--start-after"], found["--ready-after"], found.get("--run-for"), never, fail, seed)

    def fate(self, pod: str) -> str:
        """``starts``, ``never`` or ``fails``."""
        drawn = share_of(self.seed, pod, "fate")
        if drawn < self.never:
            return "never"
        return "fails" if drawn < self.never + self.fail else "starts"

    def start_ns(self, pod: str) -> int:
        """From the binding until its containers run, in ns."""
        return _quantile_ns(self.start, share_of(self.seed, pod, "start"))

    def ready_ns(self, pod: str) -> int:
        """From then until it is ready, in ns."""
        return _quantile_ns(self.ready, share_of(self.seed, pod, "ready"))

    def run_ns(self, pod: str) -> int | None:
        """From then until its containers end, in ns; None where they go on."""
        return None if self.run is None else _quantile_ns(self.run, share_of(self.seed, pod, "run"))


def share_of(seed: int, pod: str, step: str) -> float:
    """A number in [0, 1), the same for the same seed, pod and step.

    Args:
        seed: of all draws.
        pod: its namespace and name.
        step: what it is drawn for.
    """
    digest = hashlib.blake2b(f"{seed} {pod} {step}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest) >> 11) / (1 << 53)


def _quantile_ns(delay: Think, share: float) -> int:
    second = delay.second or 0.0
    if delay.kind == "exponential":
        seconds = -delay.first * math.log1p(-share)
    elif delay.kind == "uniform":
        seconds = delay.first + (second - delay.first) * share
    elif delay.kind == "lognormal":
        seconds = delay.first * math.exp(second * _NORMAL.inv_cdf(min(max(share, 1e-12), 1 - 1e-12)))
    else:
        seconds = delay.first
    return round(seconds * 1e9)
