"""Limits that held a source back: figures below them are what was allowed, and not what was needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpusize.base.units import with_cores
from gpusize.observe.usage.source_facts import Limit

if TYPE_CHECKING:
    from gpusize.observe.usage.counter_curve import Span
    from gpusize.observe.usage.source_facts import Facts, Held

__all__ = ["MEMORY_KINDS", "THROTTLED", "held_reasons", "mebibytes", "named", "own_limit"]

THROTTLED: Final = 0.01
"""Share of the periods from which on throttling is told of a level, and of a shared limit: below, it changes little."""
PERIOD_NS: Final = 100_000_000
"""The kernel's default, which Docker and Kubernetes leave as it is."""
MEMORY_KINDS: Final = ("memory", "memory_high")


def named(limit: Limit | None) -> str:
    """A limit's size and group in brackets, after a blank; empty for none."""
    if limit is None:
        return ""
    sizes = [with_cores(f"{limit.cpu_cores:g}")] if limit.cpu_cores is not None else []
    sizes += [mebibytes(limit.mem_bytes)] if limit.mem_bytes is not None else []
    return f" ({', '.join(sizes)}, the limit of {limit.path or '/'})"


def own_limit(facts: Facts, name: str) -> Limit | None:
    """The source's own limit of memory (``mem_bytes``) or CPU (``cpu_cores``), and nothing else of it; None without."""
    for limit in facts.limits:
        value = getattr(limit, name)
        if value is not None and not limit.above:
            return Limit(limit.path, **{name: value})
    return None


def held_reasons(facts: Facts, span: Span, *kinds: str) -> list[str]:
    """What limits of groups above, and ``memory.high``, did to a source within ``span``, a sentence each.

    Args:
        facts: of the source.
        span: the stretch of time.
        kinds: ``memory``, ``memory_high``, ``cpu``.
    """
    found: dict[tuple[str, str], list[Held]] = {}
    for held in facts.held:
        if held.kind in kinds and held.from_ns < span.end_ns and held.until_ns > span.start_ns:
            found.setdefault((held.path, held.kind), []).append(held)
    few = THROTTLED * (span.end_ns - span.start_ns) / PERIOD_NS
    sums = [(parts[-1], sum(part.times for part in parts)) for parts in found.values()]
    return [_sentence(held, times) for held, times in sums if held.kind != "cpu" or times >= few]


def _sentence(held: Held, times: int) -> str:
    group = held.path or "/"
    if held.kind == "cpu":
        size = with_cores(f"{held.limit:g}")
        return f"the CPU limit of {group} ({size}), which it shares, throttled it in {times} periods"
    whose = f"memory of {group}, of which it is a part," if held.above else "memory in use, page cache included,"
    of = "" if held.above else f" of {group}"
    often = f" {times} times" if times else ""
    if held.kind == "memory":
        return f"{whose} reached its limit of {mebibytes(held.limit)}{often}"
    return f"{whose} was above memory.high{of} ({mebibytes(held.limit)}){often}, from where on it is slowed down"


def mebibytes(size: float) -> str:
    """A size in bytes as a text in MiB."""
    return f"{size / (1 << 20):.6g} MiB"
