"""A cluster test in sentences: what became of the workloads, how fast, by which clocks, and what is in doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusize.cluster.phases.outcomes import OUTCOMES
from gpusize.cluster.phases.rates import Occupancy, Throughput
from gpusize.cluster.phases.rules import RULES, SKIPPED_BY
from gpusize.report.text import DASH, clean, count, duration, number, plain_number, ratio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpusize.cluster.phases.thresholds import Judged
    from gpusize.cluster.phases.timed import Timed

__all__ = ["clock_text", "finding", "notes", "occupancy_text", "outcome_rows", "rate_text", "seconds", "threshold_text"]

_MOST_REASONS: Final = 3
_NS: Final = 1e9


def seconds(value: object, longest: object = None) -> str:
    """A figure in seconds without its unit; one that was not reached as beyond the longest time that was seen."""
    if value is None:
        return DASH if longest is None else f">{seconds(longest)}"
    rounded = round(float(value), 4)  # type: ignore[arg-type]
    return f"{rounded:.4f}" if 0 < abs(rounded) < 0.01 else number(rounded)


def finding(timed: Timed, figures: Mapping[str, Any] | None) -> str:
    """The test in one sentence: what became of the workloads, and how long scheduling took.

    Args:
        timed: the test.
        figures: of the phase ``scheduled``; None where nothing is known of it.
    """
    counts = dict(timed.workloads.group_by("outcome").len().iter_rows())
    told = ", ".join(f"{count(counts[name])} {name}" for name in OUTCOMES if name in counts)
    n = timed.workloads.height
    text = f"{count(n)} {'workload' if n == 1 else 'workloads'}: {told}"
    if not figures:
        return text
    if figures["p50_s"] is None:
        return f"{text}. Fewer than half of them were scheduled"
    tail = figures["p99_s"]
    end = f"p99 {duration(tail)}" if tail is not None else f"p99 not reached in {duration(figures['longest_s'])}"
    return f"{text}. Scheduled after {duration(figures['p50_s'])} (p50), {end}"


def outcome_rows(timed: Timed) -> list[tuple[str, int, str]]:
    """Each outcome that there is: its name, how many workloads, what it means and the commonest reasons."""
    import polars as pl

    made = []
    for name, what in OUTCOMES.items():
        rows = timed.workloads.filter(pl.col("outcome") == name)
        if rows.height:
            reasons = rows["reason"].drop_nulls().value_counts(sort=True).head(_MOST_REASONS)
            told = ", ".join(f"{clean(why, 60)} {count(n)}" for why, n in reasons.iter_rows())
            made.append((name, rows.height, f"{what}; {told}" if told else what))
    return made


def rate_text(rate: Throughput | None, what: str, paused_s: float = 0.0) -> str | None:
    """A throughput in words.

    Args:
        rate: the throughput.
        what: came to their end.
        paused_s: between an interrupted submission and the one that resumed it.
    """
    if rate is None:
        return None
    if rate.elapsed_s < 1:
        return f"{count(rate.n)} {what} within {duration(rate.elapsed_s)} of the first submission"
    most = number(rate.most)
    idle = f"; the {duration(rate.idle_s)} after the last one left out" if rate.idle_s >= 1 else ""
    pause = f", {duration(paused_s)} until it was resumed included" if paused_s >= 1 else ""
    return (
        f"{number(rate.rate)} {what}/s over {duration(rate.elapsed_s)} from the first submission to the last one "
        f"scheduled{pause}, at most {most} in a second{idle}"
    )


def occupancy_text(found: Occupancy | None) -> str | None:
    """How many GPUs were taken, in words."""
    if found is None:
        return None
    most, mean = float(found.gpus.max()), found.mean
    if found.total:
        return (
            f"at most {plain_number(most)} of {plain_number(found.total)} GPUs taken "
            f"({ratio(most / found.total)}), {plain_number(mean)} on average until the last look"
        )
    return (
        f"at most {plain_number(most)} GPUs taken, {plain_number(mean)} on average until the last look; "
        "of how many is not known"
    )


def clock_text(timed: Timed) -> str:
    """What is known of the clocks."""
    offset = timed.offset
    if offset is None:
        return "how far the server's clock is from ours is not known; deltas stay within one clock"
    if offset.assumed:
        return "the submitter's clock and the server's are taken for one: nobody compared them"
    lag = timed.lag
    late = (
        f"; watches tell {duration(lag.typical_ns / _NS)} late, p99 {duration(lag.most_ns / _NS)}"
        if lag.most_ns
        else ""
    )
    half = (offset.hi_ns - offset.lo_ns) / 2 / _NS
    way = "ahead of" if offset.middle_ns >= 0 else "behind"
    apart = f"{duration(abs(offset.middle_ns) / _NS)} {way} ours, ± {duration(half)}"
    return f"the server's is {apart} (by {offset.source}){late}"


def notes(timed: Timed) -> list[str]:
    """What is to be known beside the figures."""
    made = []
    for rule, names in timed.broken.items():
        if names:
            many = f"{count(len(names))} {'workload' if len(names) == 1 else 'workloads'}"
            gone = " and left out" if rule in SKIPPED_BY and timed.left_out else ""
            first = ", ".join(clean(name, 40) for name in names[:3])
            made.append(f"{rule}: {RULES[rule]}; {many}{gone} ({first}{', ...' if len(names) > 3 else ''})")
    if timed.unmeasured:
        told = ", ".join(f"{name} {count(n)}" for name, n in sorted(timed.unmeasured.items(), key=lambda x: -x[1])[:6])
        made.append(f"no source told of the end of a phase, or only by a clock that nobody compared: {told}")
    seed = timed.facts.get("seed_files")
    if seed:
        made.append("times are of sampled.json, in whole seconds: a delta may be wrong by up to 1 s")
        made.append(
            "sampled.json does not say what was refused, failed or is unschedulable, nor how many pods a gang has: its "
            "first and last pod stand for it, one where both were created in the same second"
        )
        if seed.get("twice"):
            made.append(f"{count(seed['twice'])} submissions had a name that was taken: they changed what was there")
        if seed.get("unsubmitted"):
            made.append(f"{count(seed['unsubmitted'])} sampled jobs are not in submitted.json and left out")
    made += (timed.facts.get("imported") or {}).get("notes") or []
    taken = timed.occupancy()
    if taken is not None and taken.total and (most := float(taken.gpus.max())) > taken.total:
        made.append(
            f"{plain_number(most)} GPUs were taken at once, and the nodes have {plain_number(taken.total)}: nodes came "
            "or left, ends of pods were seen late, or a GPU was given to more than one pod"
        )
    gaps = (timed.facts.get("sample") or {}).get("gaps") or []
    if gaps:
        made.append(f"the watch broke off {count(len(gaps))} times and had to list anew; what is late for it says so")
    return made


def threshold_text(judged: Judged) -> str:
    """What a threshold found, in one line."""
    of = f" ({judged.threshold.preset})" if judged.threshold.preset else ""
    return f"{'met' if judged.met else 'NOT MET'}: {judged.threshold.text}{of}: {judged.why}"
