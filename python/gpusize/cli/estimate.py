"""``gpusize estimate``: answers from what was measured; sends nothing."""

from __future__ import annotations

from typing import Annotated

from gpusize.cli import from_metrics as metrics
from gpusize.cli import question_options as question
from gpusize.cli.command import Debug, Json, listed, option

EPILOG = """Examples:

  gpusize estimate runs/20261120T210312Z-7f3a9c --users 250 --slo 'p95 runtime <= 6s'

  gpusize estimate runs/ --label gpu=H200 --users 250 --slo 'p99 ttft <= 500ms' --json

  gpusize estimate runs/ --users 250 --slo 'p95 runtime <= 6s' --method all     # every method, side by side

  gpusize estimate runs/1gpu runs/2gpu runs/4gpu --rate 40/s     # with the loss between GPUs

  gpusize estimate --from-metrics series --rate 40/s --slo 'p95 ttft <= 500ms'     # from production, without a run

  gpusize estimate --from-metrics http://prometheus:9090 --from 2026-11-20T08:00:00Z --to 2026-11-20T20:00:00Z
    --prometheus-match 'namespace="llm"' --rate 40/s --slo 'p95 ttft <= 500ms'"""


def command(
    runs: question.RunsIfAny = None,
    users: question.Users = None,
    rate: Annotated[
        str | None, option("Size for this many requests per second, as 40/s.", "RATE", question.QUESTION)
    ] = None,
    token_rate: Annotated[
        str | None, option("Size for this many output tokens per second, as 2000/s.", "RATE", question.QUESTION)
    ] = None,
    slo: question.Slos = None,
    method: Annotated[
        str,
        option(
            "Estimate by this method: auto, twin, scaling, slope, crossing, or all side by side.",
            "NAME",
            question.QUESTION,
        ),
    ] = "auto",
    gpus: question.Gpus = None,
    gpus_per_replica: question.GpusPerReplica = 1,
    host_gpus: Annotated[
        int | None,
        option(
            "GPUs in a host. Hosts share nothing, and are added whole.",
            panel=question.QUESTION,
            min=1,
            max=question.MOST,
        ),
    ] = None,
    think: question.Think = None,
    router: question.Router = "least_loaded",
    process: question.Process = "poisson",
    together: question.Together = False,
    headroom: question.Headroom = "0%",
    spare: question.Spare = 0,
    risk: question.Risk = question.RISK,
    label: question.Labels = None,
    allow: question.Allow = None,
    skip_damaged: question.SkipDamaged = False,
    from_metrics: metrics.FromMetrics = None,
    from_: metrics.From = None,
    to: metrics.To = None,
    access_log: metrics.AccessLog = None,
    batch_limit: metrics.BatchLimit = None,
    out: metrics.Out = None,
    prometheus_match: metrics.Match = None,
    prometheus_header: metrics.Header = None,
    prometheus_token_env: metrics.TokenEnv = None,
    prometheus_cacert: metrics.Cacert = None,
    prometheus_insecure: metrics.Insecure = False,
    strict: Annotated[bool, listed("strict")] = False,
    json: Json = False,
    _debug: Debug = False,
) -> int:
    """Estimate the GPU count from earlier runs, or from series of production. No load is sent."""
    from gpusize.base.units import parse_rate
    from gpusize.cli.exit_code import judge
    from gpusize.cli.shared import conclude, print_json, print_result, tell_damaged, tell_read
    from gpusize.options.labels import labels_of
    from gpusize.result import open_run

    given = dict(locals())
    metrics.check(given)
    asked = question.fields(given)
    if from_metrics is not None:
        return metrics.answer(given, asked)
    per_s = None if rate is None else parse_rate(rate, "rate")
    result = open_run(runs or [], labels=labels_of(label), skip_damaged=skip_damaged).asking(users, slo or None, per_s)
    tell_read(slo)
    tell_damaged(result)
    estimates = result.estimates(
        method=method,
        host_gpus=host_gpus,
        token_rate=None if token_rate is None else parse_rate(token_rate, "token_rate"),
        **asked,
    )
    # The truth of a simulated cluster is about so many users who do not pause, behind its own router.
    simulated = (result.meta.get("targets") or [{}])[0].get("simulated") or {}
    users_meant = token_rate is None and think is None and not together
    plain = users_meant and router == (simulated.get("router") or "least_loaded")
    if json:
        print_json(result, estimates, truth=plain)
    else:
        print_result(result, estimates, truth=plain)
    return conclude(judge(result, estimates, strict=strict))
