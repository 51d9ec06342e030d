"""What to request for a container, from what it used: policies as named presets behind one function."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from typing import Final

from gpusize.base.errors import UsageError
from gpusize.base.old_names import renamed
from gpusize.containers.recommend.cpost_rule import Cpost, stored_rows
from gpusize.containers.recommend.cpu_curve import CpuCurve, CurvePoint
from gpusize.containers.recommend.gpusize_rule import Default, memory_base, peak_limit
from gpusize.containers.recommend.krr_rule import Krr
from gpusize.containers.recommend.types import MIB, Execution, Interval, Policy, Recommendation, round_up
from gpusize.containers.recommend.verify import RecommendationCheck, check_recommendation
from gpusize.containers.recommend.vpa_rule import Vpa

__all__ = [
    "POLICIES",
    "CpuCurve",
    "CurvePoint",
    "Execution",
    "Interval",
    "Policy",
    "Recommendation",
    "RecommendationCheck",
    "check_policy",
    "check_recommendation",
    "recommend",
]

__getattr__ = renamed(__name__, {"Verdict": "RecommendationCheck", "verdict_of": "check_recommendation"})

POLICIES: Final[dict[str, Callable[[bool], Policy]]] = {
    "default": lambda whole_cores: Default(whole_cores=whole_cores),
    "cpost": lambda _: Cpost(),
    "krr": lambda _: Krr(),
    "vpa": lambda _: Vpa(),
}
"""Named presets; each is made from whether CPU is to be in whole cores, which ``cpost`` always and others never do."""

ENOUGH_READINGS: Final = 10
SOME_RUNS: Final = 3
MANY_RUNS: Final = 10
SEVERAL: Final = 1.5
LARGE: Final = 128 * MIB
"""A tree of processes that holds more than this, and so many times its largest one, may share much of it."""
CALM: Final = 0.2
"""Spread over executions up to which ten of them make a recommendation one of high confidence."""

_SIZE: Final = re.compile(r"\d+(?:\.\d+)?(?=%| periods| times)")
"""What differs between executions of which the same is said."""


def check_policy(name: str) -> str:
    """The name, if there is such a policy.

    Raises:
        UsageError: there is none.
    """
    if name not in POLICIES:
        raise UsageError(f'there is no policy "{name}"', "policy", f"use one of {', '.join(POLICIES)}")
    return name


def recommend(
    executions: Sequence[Execution],
    policy: str = "default",
    *,
    whole_cores: bool = False,
    cpu_limit: bool = False,
    curve: CpuCurve | None = None,
) -> Recommendation:
    """What to request.

    Args:
        executions: one or several of the same thing. If one of them failed, nothing is recommended.
        policy: one of `POLICIES`.
        whole_cores: round CPU up to whole cores.
        cpu_limit: recommend a CPU limit too: the highest 100 ms, rounded up.
        curve: executions at lower CPU limits; of two or more, the CPU request of the policy ``default`` is then the
            lowest that costs little, and no estimate.

    Raises:
        UsageError: no execution, or no such policy.
    """
    rule = POLICIES[check_policy(policy)](whole_cores)
    if not executions:
        raise UsageError("there is no execution to recommend from", "executions", "run it once")
    refused = _refused(executions)
    if refused is not None:
        return Recommendation(policy=policy, refused=refused)
    (cores, cpu_why), (size, mem_why) = rule.cpu(executions), rule.memory(executions)
    more = rule.more(executions)
    by_curve = policy == "default" and curve is not None and curve.tells and cores is not None
    if by_curve and curve is not None:
        cores, cpu_why = _by_curve(curve, cores or 0.0, executions, whole_cores=whole_cores)
    cpu_interval = _interval([rule.cpu([each])[0] for each in executions])
    mem_interval = _interval([rule.memory([each])[0] for each in executions])
    doubts = (*more.pop("doubts", ()), *_doubts(executions, cores, size))
    if cores is not None and not by_curve:
        tried = "was tried at one limit only" if curve is not None and not curve.tells else "was not measured"
        cpu_why = (*cpu_why, f"CPU is an estimate: what less would cost {tried}")
    made = Recommendation(
        policy=policy,
        cpu_cores=cores,
        cpu_limit_cores=_limit(executions, cores, whole_cores=whole_cores) if cpu_limit else None,
        mem_bytes=size,
        reasons=(*cpu_why, *mem_why, *_spread(cpu_interval, mem_interval)),
        doubts=doubts,
        confidence=_confidence(executions, [cpu_interval, mem_interval]),
        cut_short=any(each.cut_short for each in executions),
        cpu_measured=by_curve,
        cpu_interval=cpu_interval,
        mem_interval=mem_interval,
        **more,
    )
    return gpu_request(made, executions)


def _limit(executions: Sequence[Execution], cores: float | None, *, whole_cores: bool) -> float | None:
    """The highest 100 ms; no less than the request, or no scheduler would take the two."""
    most = peak_limit(executions, whole_cores=whole_cores)
    return most if most is None or cores is None else max(most, cores)


def _refused(executions: Sequence[Execution]) -> str | None:
    failed = [each.failed for each in executions if each.failed is not None]
    if not failed:
        return None
    if len(executions) == 1:
        return f"it failed: {failed[0]}"
    return f"{len(failed)} of {len(executions)} executions failed, the last with: {failed[-1]}"


def _by_curve(
    curve: CpuCurve, estimate: float, executions: Sequence[Execution], *, whole_cores: bool
) -> tuple[float, tuple[str, ...]]:
    least = curve.least()
    if least is not None and least.cores is not None:
        cost = f"{curve.slower(least):+.0%} time"
        cores = float(ceil(least.cores)) if whole_cores else least.cores
        return cores, (f"CPU: the lowest limit tried that costs little, {cost}", *curve.costs())
    # All limits tried cost more: what lies above them is not measured, but what was never exceeded costs nothing.
    most = peak_limit(executions, whole_cores=whole_cores) or estimate
    return max(estimate, most), ("CPU: the highest 100 ms, as every limit tried costs more than 5 %", *curve.costs())


def _interval(values: Sequence[float | None]) -> Interval | None:
    known = [value for value in values if value is not None]
    return Interval(min(known), max(known), len(known)) if len(known) > 1 else None


def _spread(cpu: Interval | None, memory: Interval | None) -> list[str]:
    """What each of several executions alone would have given, in words."""
    told = [] if cpu is None else [f"{cpu.low:g} to {cpu.high:g} cores"]
    told += [] if memory is None else [f"{memory.low / MIB:.0f} to {memory.high / MIB:.0f} MiB"]
    known = cpu or memory
    if known is None:
        return []
    sure = f"the next one needs no more than the largest of them with a probability of {known.above:.0%}"
    return [f"each of {known.runs} executions alone: {', '.join(told)}; {sure}"]


def _doubts(executions: Sequence[Execution], cores: float | None, size: int | None) -> list[str]:
    doubts = []
    bases = [base.size_bytes for each in executions if (base := memory_base(each.usage.memory)) is not None]
    if size is not None and bases and size < max(bases):
        held = f"{max(bases) / MIB:.0f} MiB"
        doubts.append(
            f"{size / MIB:.0f} MiB are less than the {held} that it held: it may be killed for lack of memory"
        )
    if any(each.cut_short for each in executions):
        doubts.append("it was stopped before it ended by itself: its later use is unknown")
    grew = [each.usage.memory.growing_bytes_per_s or 0.0 for each in executions]
    if size is not None and max(grew) > 0:
        doubts.append(f"memory still grew by {max(grew) / MIB:.3g} MiB/s when sampling ended: it will need more later")
    if size is not None and any(map(_counts_shared_pages, executions)):
        doubts.append("pages that its processes share count in each of them: --pss divides them")
    if len(executions) == 1:
        doubts.append("one execution does not show how executions differ")
    fewest, what = min(map(_told, executions))
    if fewest < ENOUGH_READINGS:
        doubts.append(f"only {fewest} {what}{'' if fewest == 1 else 's'} of it: a finer interval tells more")
    bounds: list[str | None] = []
    if size is not None:
        bounds += [each.usage.memory.lower_bound for each in executions]
    if cores is not None:
        bounds += [each.usage.cpu.lower_bound for each in executions if each.usage.cpu is not None]
    doubts += [f"it may need more: {bound}" for bound in _once([bound for bound in bounds if bound is not None])]
    if cores is None:
        doubts.append("CPU time was not reported")
    if size is None:
        doubts.append("memory was not reported")
    return doubts


def _counts_shared_pages(execution: Execution) -> bool:
    """Whether memory is the sum of several processes of which the largest held far less, so that sharing may matter."""
    memory = execution.usage.memory
    # Of a tree the kernel's mark is that of its largest process.
    one = memory.kernel_peak_bytes
    if execution.readings.facts.kind != "process" or memory.proportional_peak_bytes is not None or one is None:
        return False
    together = memory.sampled_max_bytes or 0
    return together > max(SEVERAL * one, LARGE)


def _told(execution: Execution) -> tuple[int, str]:
    """How many readings there are of it; of a file of CPOST's its rows, each of which is made of more than one."""
    rows = stored_rows(execution.readings)
    return (execution.usage.readings, "reading") if rows is None else (len(rows), "row")


def _once(texts: Sequence[str]) -> list[str]:
    """Each reason once, the one with the most of several that differ in a share or a count."""
    alike: dict[str, list[str]] = {}
    for text in dict.fromkeys(texts):
        alike.setdefault(_SIZE.sub("#", text), []).append(text)
    worst = [max(found, key=lambda text: [float(size) for size in _SIZE.findall(text)]) for found in alike.values()]
    several = [len(found) > 1 for found in alike.values()]
    return [
        f"{text} (the most of several executions)" if more else text for text, more in zip(worst, several, strict=True)
    ]


def _confidence(executions: Sequence[Execution], intervals: Sequence[Interval | None]) -> str:
    thin = min(map(_told, executions))[0] < ENOUGH_READINGS
    held = any(
        each.cut_short
        or each.usage.memory.lower_bound
        or each.usage.memory.growing_bytes_per_s
        or (each.usage.cpu is not None and each.usage.cpu.lower_bound)
        for each in executions
    )
    if len(executions) < SOME_RUNS or thin or held:
        return "low"
    calm = all(interval is None or interval.spread <= CALM for interval in intervals)
    return "high" if len(executions) >= MANY_RUNS and calm else "medium"


MARGIN_PERCENT: Final = 15
STEP: Final = 64 * MIB
FULL: Final = 0.85
"""Share of a GPU's memory from which on a framework may have taken it in advance."""


def gpu_request(made: Recommendation, executions: Sequence[Execution]) -> Recommendation:
    """The recommendation with its GPUs: as many as an execution held memory of, with 15 % more memory than the most.

    A GPU that nothing was held of is not needed. Memory that a framework takes in advance looks like need: it is named.
    """
    used = [[gpu for gpu in each.gpus if gpu.mem_peak_bytes] for each in executions]
    count = max((len(gpus) for gpus in used), default=0)
    if count == 0:
        return made
    every = [gpu for gpus in used for gpu in gpus]
    most = max(gpu.mem_peak_bytes or 0 for gpu in every)
    doubts = list(made.doubts)
    if any(gpu.mem_total_bytes and (gpu.mem_peak_bytes or 0) >= FULL * gpu.mem_total_bytes for gpu in every):
        doubts.append("GPU memory was nearly full: frameworks take it in advance, so that less may do")
    if any(gpu.mem_from == "whole GPU" for gpu in every):
        doubts.append("the driver reports GPU memory only for the whole GPU, all of its processes together")
    why = f"GPU: memory was held of {count}, at most {most / MIB:.0f} MiB of one; plus 15 %"
    wanted = int(round_up(-(-most * (100 + MARGIN_PERCENT) // 100), STEP))
    held = max((gpu.mem_total_bytes or 0 for gpu in every), default=0)
    return replace(
        made,
        gpu_count=count,
        # It ran on what is there: more than that cannot be needed of one GPU.
        gpu_mem_bytes=min(wanted, held) if held else wanted,
        reasons=(*made.reasons, why),
        doubts=tuple(doubts),
    )
