"""An estimate from telemetry alone: refusals first, then the count in the house's form."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from gpusize.estimate.question import Estimate, Question, as_bought, whole_gpus
from gpusize.estimate.twin.load import ClusterLoad

if TYPE_CHECKING:
    import polars as pl

    from gpusize.estimate.telemetry.access_log import AccessLog
    from gpusize.estimate.telemetry.alike import Unlike
    from gpusize.estimate.telemetry.costs import Costs
    from gpusize.estimate.telemetry.limits import Limit
    from gpusize.estimate.telemetry.production import Production
    from gpusize.estimate.telemetry.sizing import Counted

__all__ = ["NAME", "estimate_telemetry"]

NAME: Final = "telemetry"
ALIKE: Final = "pull replicas of one kind by themselves, with --prometheus-match"
ALONE: Final = "measure one replica by itself: gpusize run"
FEWEST_STEPS: Final = 20
FEWEST_REQUESTS: Final = 300
UNFIT: Final = 0.5
"""No replica may answer whose replay has means that are further off."""
NARROW: Final = 2
"""Replicas between the ends of an interval that is narrow, however little was seen."""
WIDEST: Final = 1.2
"""An interval whose ends are further apart, as a logarithm, tells nothing, whatever was seen."""
WIDE: Final = 1.5
"""Upper over lower edge of a bucket that is too wide."""
OPEN: Final = 0.12
"""What was never seen may move the count by so much, as a logarithm, or by one replica."""
LOAD_S: Final = 300
SHARED: Final = 0.2
"""Where counters fell in a larger share of the steps, several pods pass for one replica."""


def estimate_telemetry(
    frame: pl.DataFrame | pl.LazyFrame,
    question: Question,
    *,
    log: AccessLog | None = None,
    batch_limit: int | None = None,
) -> Estimate:
    """Answer a question from scraped series alone.

    Args:
        frame: samples of vLLM's or SGLang's presets, with the columns of ``gpusize.records.series.series_schema``.
        question: users or a rate, and SLOs on shares of requests: of runtime, service, ttft or itl_mean.
        log: the access log of the same time, for lengths and their pairs.
        batch_limit: the most requests that a replica works on at once, as its server was started with; None where it is
            not known.

    Returns:
        The estimate; where the series do not tell, its ``reason`` says why and ``details["load"]`` which load would.
    """
    from gpusize.estimate.telemetry.alike import unlike
    from gpusize.estimate.telemetry.costs import fit_costs, replica_of
    from gpusize.estimate.telemetry.lengths import known_lengths
    from gpusize.estimate.telemetry.limits import limit_of
    from gpusize.estimate.telemetry.production import read_production
    from gpusize.estimate.telemetry.replay import Day
    from gpusize.estimate.telemetry.sizing import REPLAYS, Sizing
    from gpusize.estimate.telemetry.tails import sharper
    from gpusize.estimate.twin.visit_data import Objective

    production = read_production(frame, log)
    base = Estimate(
        NAME,
        max(1, production.replicas) * question.gpus_per_replica,
        question.users or None,
        " and ".join(str(slo) for slo in question.slos) or None,
        rate=question.rate,
        think=question.think,
        think_s=question.think_s,
        details=_seen(production),
        warnings=(*production.log_said, *_sharing(production)),
    )
    cannot = _cannot(production, question)
    if cannot is not None:
        return _refused(base, *cannot)
    lengths = known_lengths(production)
    if lengths is None:
        return _refused(
            base,
            "lengths",
            "; ".join(
                ["nothing tells how long answers are: the series have no histogram of lengths", *production.log_said]
            ),
            "give an access log with output_tokens",
        )
    limit = limit_of(production, lengths, batch_limit)
    costs, limit = fit_costs(production, lengths, question.router, limit)
    base = replace(base, details={**base.details, **_fitted(costs, limit, lengths.told_by)})
    differing = unlike(production)
    if costs.off > UNFIT:
        may = "replicas may differ, share a host with others, or serve in another way than by continuous batching"
        return _refused(
            base,
            "misfit",
            f"no replica repeats what was scraped: its times are off by {costs.off:.0%}, the worst group of load by "
            f"{costs.worst:.0%}; {differing or may}",
            ALIKE if differing else ALONE,
        )
    objectives = Objective.asked_by(question)
    days = [Day(production, question.router, seed=seed) for seed in range(1, REPLAYS + 1)]
    lengths = sharper(lengths, production, [day.run(replica_of(costs.service, lengths)) for day in days])
    found = Sizing(
        production, lengths, costs, limit, objectives, ClusterLoad.asked_by(question), question.risk
    ).counted()
    if found is None:
        why = "no number of replicas keeps the SLOs: one request alone misses them, by the costs"
        return _refused(base, "never", f"{why}; {differing}" if differing else why, ALIKE if differing else "")
    base = replace(base, details={**base.details, **_counted_details(found)})
    return _answered(base, production, found, limit, question, differing)


def _seen(production: Production) -> dict[str, Any]:
    """What there was to look at."""
    import numpy as np

    steps, running = production.steps, production.running
    known = np.isfinite(running)
    return {
        "steps": len(steps),
        "steps_left_out": dict(steps.left_out),
        "scrape_interval_s": steps.interval_s,
        "replicas": None if _shared(production) else production.replicas,
        "requests": round(production.requests),
        "most_at_work": float(running[known].max()) if known.any() else None,
        "most_per_s": float(production.per_s.max()) if production.per_s.size else None,
    }


def _fitted(costs: Costs, limit: Limit, told_by: str) -> dict[str, Any]:
    return {
        "model": "batching",
        "mechanics": replace(costs.service, max_batch=limit.batch, kv_tokens=limit.cache_tokens).to_json(),
        "limit_reached": limit.reached,
        "queues_seen": limit.queues,
        "cache_holds": limit.cache,
        "lengths": told_by,
        "means_off": costs.off,
    }


def _counted_details(found: Counted) -> dict[str, Any]:
    return {
        "raw": {"best": found.raw, "free": found.free, "seen": found.seen, "low": found.low, "high": found.high},
        "binding": found.binding,
        "at_work_at_edge": found.at_work,
        "busiest_in_flight": found.busiest,
        "edge_shown": found.shown,
        "per_s_at_edge": found.per_s,
        "error": found.error,
        "checks": [
            {
                "by": each.by,
                "correction": each.correction,
                "error": each.error,
                "misfit": each.misfit,
                "between": None if each.between is None else list(each.between),
                "held": [[h.group, h.edge_s, h.share, h.n, h.off, h.error] for h in each.held],
            }
            for each in found.checks
        ],
    }


def _refused(base: Estimate, refusal: str, reason: str, load: str, *, at_once: float | None = None) -> Estimate:
    """No number: why, and which load would tell."""
    levels = () if at_once is None else (math.ceil(at_once),)
    told = f"{reason}; {load}" if load else reason
    details = {**base.details, "refusal": refusal, "load": load or None}
    return replace(base, reason=told, next_levels=levels, details=details)


def _cannot(production: Production, question: Question) -> tuple[str, str, str] | None:
    """What must be there, and is not: a word for it, why, and what to do."""
    import numpy as np

    from gpusize.estimate.telemetry.checks import HISTOGRAM

    if not question.slos:
        return "slo", "it sizes for SLOs", "give one, as --slo 'p95 ttft <= 500ms'"
    for slo in question.slos:
        if slo.kind != "percentile" or slo.metric not in HISTOGRAM or slo.op not in ("<=", "<"):
            return (
                "slo",
                f"it judges shares of requests whose {', '.join(HISTOGRAM)} are at most a bound, not {slo}",
                "",
            )
    steps = production.steps
    if not len(steps):
        return "series", "there are no two scrapes of a model server in it", "pull the preset vllm or sglang"
    if len(steps) < FEWEST_STEPS or production.requests < FEWEST_REQUESTS:
        what = f"{len(steps)} steps between scrapes with {production.requests:.0f} requests"
        return "data", f"{what} are too few to fit a replica to", "pull a longer time"
    need = {"running": steps.gauge("running")[:, 1], "itl": steps.rise("itl_sum"), "ttft": steps.rise("ttft_sum")}
    missing = [name for name, values in need.items() if not np.isfinite(values).any()]
    if missing:
        return "series", f"there is no {' and no '.join(missing)}", "pull the preset vllm or sglang"
    models = {text for text in map(_model_of, steps.replicas) if text is not None}
    if len(models) > 1:
        what = f"replicas serve {len(models)} models: {', '.join(sorted(models)[:3])}"
        return "models", what, f"pull again with --prometheus-match 'model_name=\"{min(models)}\"'"
    return None


def _model_of(labels: str) -> str | None:
    import json

    found = json.loads(labels).get("model_name")
    return None if found is None else str(found)


def _answered(
    base: Estimate,
    production: Production,
    found: Counted,
    limit: Limit,
    question: Question,
    differing: Unlike | None,
) -> Estimate:
    refusal = _unknown(base, found, limit, question, differing)
    if refusal is not None:
        return refusal
    per = question.gpus_per_replica
    count = whole_gpus(found.leaning * per, per)
    high = None if found.high is None else whole_gpus(found.high * per, per)
    beyond = found.at_work > production.most_in_flight
    slos = question.slos
    deciding = str(slos[found.binding]) if not question.together and found.binding < len(slos) else base.slo
    answer = replace(
        base,
        slo=deciding,
        gpus=count,
        gpus_raw=found.raw * per,
        gpus_low=min(count, whole_gpus(found.low * per, per)),
        gpus_high=None if high is None else max(high, count),
        capacity_concurrency=found.at_work,
        outside_tested_range=beyond,
        assumptions=_assumptions(base, limit, question),
        warnings=(*base.warnings, *_warnings(base, found, production, differing, beyond=beyond)),
        tested_gpus=per,
        details=base.details
        | ({"slos": [str(slo) for slo in slos]} if len(slos) > 1 and not question.together else {}),
    )
    return as_bought(answer, question)


def _unknown(
    base: Estimate, found: Counted, limit: Limit, question: Question, differing: Unlike | None
) -> Estimate | None:
    """A refusal where what the series leave open decides the count."""
    per_replica = max(1, math.ceil(1.2 * found.at_work))
    load = (
        f"load one replica with about {per_replica:,} requests at once for {LOAD_S // 60} minutes, or pull a time in "
        "which one was that busy"
    )
    seen = (
        f"the busiest replica had {found.busiest:.3g} in flight over {LOAD_S // 60} minutes, and the SLOs break at "
        f"about {found.at_work:.3g}"
    )
    ends = sorted((found.free, found.seen))
    if not found.shown and (
        not math.isfinite(found.seen) or (math.log(ends[1] / ends[0]) > OPEN and _whole(ends[1]) - _whole(ends[0]) > 1)
    ):
        most = "without end" if not math.isfinite(found.seen) else f"{_whole(found.seen):,}"
        why = (
            f"{seen}: whether a replica works on that many at once, and how slowly, nothing here tells "
            f"({_whole(found.free):,} replicas if it does, {most} if it never works on more than the "
            f"{limit.most_seen:.0f} that a scrape saw)"
        )
        return _refused(base, "knee", why, load, at_once=per_replica)
    if found.high is not None:
        spread = _whole(found.high) - _whole(found.low)
        narrow = spread <= NARROW or (found.shown and math.log(found.high / found.low) <= WIDEST)
        if narrow:
            return None
    check = found.checks[min(found.binding, len(found.checks) - 1)]
    if found.shown and check.by != "buckets" and check.between is not None and _coarse(check.between):
        low, high = check.between
        upper = "no end" if math.isinf(high) else f"{high:g} s"
        slo = question.slos[min(found.binding, len(question.slos) - 1)]
        why = (
            f"the bound of {slo} lies in the bucket from {low:g} s to {upper}, and nearly all or nearly none of the "
            "requests are in it: the share that keeps it is not known"
        )
        return _refused(base, "buckets", why, "ask for a bound at a bucket's edge, or give the server finer buckets")
    span = f"{_whole(found.low):,} to {'no end' if found.high is None else f'{_whole(found.high):,}'}"
    if found.busiest > found.at_work:
        # More load would tell no more: there was more than the fit says that a replica carries.
        why = (
            f"the interval is from {span} replicas: by the fit the SLOs break at about {found.at_work:.3g} in flight, "
            f"and the busiest replica had {found.busiest:.3g} over {LOAD_S // 60} minutes, so its times contradict the "
            "fit"
        )
        if differing is not None:
            return _refused(base, "unlike", f"{why}; {differing}", ALIKE)
        return _refused(base, "knee", why, ALONE)
    return _refused(base, "knee", f"the interval is from {span} replicas; {seen}", load, at_once=per_replica)


def _coarse(between: tuple[float, float]) -> bool:
    """Whether a bucket is too wide for what lies inside it to be told."""
    return between[1] > WIDE * between[0]


def _whole(replicas: float) -> int:
    return whole_gpus(replicas)


def _assumptions(base: Estimate, limit: Limit, question: Question) -> tuple[str, ...]:
    from gpusize.estimate.twin.words import loop

    d = base.details
    n = d["replicas"]
    of = "replicas, of which several pass for one" if n is None else f"{n} replica{'' if n == 1 else 's'}"
    rests = (
        f"rests on {d['steps']:,} steps between scrapes of {of}, {d['scrape_interval_s']:.3g} s each, with "
        f"{d['requests']:,} requests; the busiest had {limit.most_seen:.0f} at work"
    )
    texts = [
        rests,
        "all replicas are alike, and requests will be like those that were seen",
        "each replica serves with continuous batching at the costs that were fitted",
        "replicas do not slow each other down",
        loop(question),
    ]
    if limit.told:
        texts.append(f"at most {limit.batch} requests are worked on at once, as you say")
    elif limit.batch is not None:
        texts.append(f"at most {limit.batch} requests are worked on at once, as scrapes show while others waited")
    elif limit.cache is not None:
        texts.append(f"a replica's cache holds about {limit.cache:.0f} requests, by what share of it was held")
    return tuple(texts)


def _shared(production: Production) -> bool:
    """Whether counters fell so often that several pods must share one set of labels."""
    fell = production.steps.left_out.get("reset", 0)
    return fell > SHARED * (len(production.steps) + sum(production.steps.left_out.values()))


def _sharing(production: Production) -> tuple[str, ...]:
    """That several pods pass for one replica, where they seem to."""
    if not _shared(production):
        return ()
    every = len(production.steps) + sum(production.steps.left_out.values())
    text = (
        f"in {production.steps.left_out['reset']:,} of {every:,} steps a counter fell, and they were left out: several "
        "pods seem to share one set of labels, as where scrapes go to the address of a Service, so how many replicas "
        "there are is not known; scrape each pod by its own address"
    )
    return (text,)


def _warnings(
    base: Estimate, found: Counted, production: Production, differing: Unlike | None, *, beyond: bool
) -> tuple[str, ...]:
    texts = []
    if differing is not None:
        texts.append(f"{differing}; the answer is for replicas like the mean of them")
    if beyond:
        texts.append(
            f"extrapolated: the SLOs break with about {found.at_work:.0f} requests in flight on a replica, and no "
            f"scrape saw more than {production.most_in_flight:.0f}"
        )
    off = float(base.details["means_off"])
    if off > 0.05:
        texts.append(f"the replayed day's times differ from the scraped ones by {off:.0%}, beyond chance")
    if any(each.by == "means" for each in found.checks):
        texts.append("no bucket near the bound tells shares of requests: only means were held against the replay")
    preempted = float(_total(production, "preemptions"))
    if preempted >= 1:
        texts.append(f"servers preempted {preempted:,.0f} requests for lack of cache, which no model here covers")
    left = sum(production.steps.left_out.values())
    if not _shared(production) and left > 0.1 * (left + len(production.steps)):
        texts.append(f"{left} steps were left out, as servers began again or scrapes were missed")
    return tuple(texts)


def _total(production: Production, name: str) -> float:
    import numpy as np

    return float(np.nansum(production.steps.rise(name)))
