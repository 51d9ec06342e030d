"""Estimates from telemetry alone: counts of clusters whose answer is known, and every refusal with its reason."""

from __future__ import annotations

import polars as pl
import pytest

from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import Question
from gpusize.estimate.telemetry.alike import Unlike, unlike
from gpusize.estimate.telemetry.checks import Check
from gpusize.estimate.telemetry.limits import Limit
from gpusize.estimate.telemetry.method import _unknown, estimate_telemetry
from gpusize.estimate.telemetry.production import read_production
from gpusize.estimate.telemetry.sizing import Counted
from gpusize.estimate.truth import true_gpus
from gpusize.report.summary.words import answer, decides_text
from tests.estimate.production_day import PROMPTS, day
from tests.estimate.virtual import CLUSTER, COSTS

SLO = Slo.parse("p95 runtime <= 8s")


def ask(frame: pl.DataFrame, *slos: Slo, users: float = 0.0, rate: float | None = None, **more):
    batch_limit = more.pop("batch_limit", None)
    question = Question(users, slos or (SLO,), rate=rate if users == 0 else None, **more)
    return estimate_telemetry(frame, question, batch_limit=batch_limit)


@pytest.fixture(scope="module")
def busy() -> pl.DataFrame:
    """Its peak is about what a replica carries."""
    return day(4.4)


@pytest.fixture(scope="module")
def quiet() -> pl.DataFrame:
    """Its peak is far below."""
    return day(1.2)


def test_the_count_is_the_true_one(busy: pl.DataFrame):
    truth = true_gpus(CLUSTER, 160, [SLO], load={"prompt_tokens": PROMPTS})
    found = ask(busy, users=160)
    assert found.gpus is not None
    assert abs(found.gpus - truth) <= 1
    assert found.gpus_low <= truth <= found.gpus_high
    assert found.gpus - 2 < found.gpus_raw <= found.gpus
    said = " ".join(found.assumptions)
    assert f"rests on {found.details['steps']} steps between scrapes of 2 replicas, 15 s each" in said
    assert f"the busiest had {found.details['most_at_work']:.0f} at work" in said
    twice = ask(busy, users=160, gpus_per_replica=2, spare=1)
    assert twice.gpus == 2 * found.gpus + 2


def test_more_risk_never_asks_for_fewer(busy: pl.DataFrame):
    found = [ask(busy, users=160, risk=risk) for risk in (0.1, 200.0)]
    counts = [each.gpus for each in found]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]
    assert len({each.gpus_raw for each in found}) == 1


def test_what_was_not_seen_is_refused_with_the_load_that_tells(quiet: pl.DataFrame):
    found = ask(quiet, users=160)
    assert found.gpus is None
    assert found.details["refusal"] == "knee"
    most = found.details["most_at_work"]
    assert f"never works on more than the {most:.0f} that a scrape saw" in found.reason
    [at_once] = found.next_levels
    assert at_once > most
    assert found.details["load"].startswith(f"load one replica with about {at_once} requests at once for 5 minutes")


def refusal(frame: pl.DataFrame, *slos: Slo, **more) -> tuple[str, str]:
    found = ask(frame, *slos, **({"rate": 10.0} | more))
    assert found.gpus is None
    return found.details["refusal"], found.reason


def test_nothing_to_look_at_is_refused(busy: pl.DataFrame):
    assert refusal(busy.clear()) == (
        "series",
        "there are no two scrapes of a model server in it; pull the preset vllm or sglang",
    )
    assert refusal(busy.filter(pl.col("name") != "itl_sum"))[1].startswith("there is no itl")
    early = busy.filter(pl.col("t_ns") < busy["t_ns"].min() + 100 * 10**9)
    assert refusal(early)[0] == "data"


def test_unknown_lengths_are_refused(busy: pl.DataFrame):
    without = busy.filter(~pl.col("name").str.contains("_length"))
    word, why = refusal(without)
    assert word == "lengths"
    assert why.endswith("the series have no histogram of lengths; give an access log with output_tokens")


@pytest.mark.parametrize("text", ["mean runtime <= 8s", "p95 llm_latency <= 1s"])
def test_slos_that_no_series_tells_are_refused(busy: pl.DataFrame, text: str):
    word, why = refusal(busy, Slo.parse(text))
    assert word == "slo"
    assert str(Slo.parse(text)) in why


def test_a_rate_without_an_slo_is_refused(busy: pl.DataFrame):
    found = estimate_telemetry(busy, Question(0, (), rate=4.0))
    assert (found.gpus, found.details["refusal"]) == (None, "slo")


def test_several_models_are_refused(busy: pl.DataFrame):
    other = pl.col("labels").str.contains("vllm-1")
    mixed = busy.with_columns(
        pl.when(other).then(pl.col("labels").str.replace('"model_name":"m"', '"model_name":"n"')).otherwise("labels")
    )
    word, why = refusal(mixed)
    assert (word, "replicas serve 2 models: m, n" in why) == ("models", True)
    # Beside a folder the option is of the pull, which is there already.
    assert why.endswith("""; pull again with --prometheus-match 'model_name="m"'""")


def test_a_bound_that_one_request_alone_misses_has_no_count(busy: pl.DataFrame):
    assert refusal(busy, Slo.parse("p95 itl_mean <= 5ms"))[0] == "never"


def test_a_bound_inside_a_bucket_that_holds_all_is_refused():
    flat = day(
        6.0,
        iteration_base_s=0.03,
        iteration_per_sequence_s=0.00005,
        prefill_per_token_s=0.0,
        output_tokens={"fixed": {"tokens": 100}},
    )
    word, why = refusal(flat, Slo.parse("p95 runtime <= 3.12s"), rate=200.0, batch_limit=64)
    assert word == "buckets"
    assert "lies in the bucket from 2.5 s to 5 s" in why
    assert "ask for a bound at a bucket's edge" in why


def test_all_slos_are_named_and_the_one_that_decides(busy: pl.DataFrame):
    both = (Slo.parse("p95 ttft <= 30s"), SLO)
    found = ask(busy, *both, rate=20.0)
    assert found.slo == str(SLO)
    assert found.details["slos"] == [str(each) for each in both]
    assert answer(found).endswith(f" at {both[0]} and {SLO}")
    assert decides_text(found) == str(SLO)
    assert decides_text(ask(busy, rate=20.0)) == ""


def halves(slowness: float) -> pl.DataFrame:
    """Two replicas that get the same load, of which the second is slower."""
    slowed = {name: slowness * CLUSTER[name] for name in COSTS}
    second = day(4.0, replicas=1, seed=2, **slowed)
    labels = pl.col("labels").str.replace("vllm-0", "vllm-1").str.replace("10.0.0.0", "10.0.0.1", literal=True)
    return pl.concat([day(4.0, replicas=1), second.with_columns(labels)])


def test_replicas_that_are_not_alike_are_told_apart_at_like_load():
    found = unlike(read_production(halves(2.0)))
    assert found is not None
    assert (found.slow, found.fast) == ("vllm-1", "vllm-0")
    assert found.times == pytest.approx(2.0, rel=0.1)
    assert found.slow_s / found.fast_s == pytest.approx(2.0, rel=0.15)
    assert unlike(read_production(halves(1.0))) is None
    assert unlike(read_production(halves(1.15))) is None


def test_an_answer_by_replicas_that_are_not_alike_says_so():
    found = ask(halves(1.6), rate=20.0)
    said = found.reason or " ".join(found.warnings)
    assert "replicas are not alike: at about " in said
    assert "vllm-1 takes " in said


def counted(**more: object) -> Counted:
    least = Check(by="buckets", correction=0.0, error=1.0, misfit=0.0, between=None, held=())
    known: dict[str, object] = {
        "raw": 40.0,
        "leaning": 40.0,
        "free": 40.0,
        "seen": 40.0,
        "low": 32.0,
        "high": None,
        "binding": 0,
    }
    known |= {"at_work": 1.8, "per_s": 0.5, "busiest": 21.6, "shown": True, "checks": (least,), "error": 1.0}
    return Counted(**(known | more))  # type: ignore[arg-type]


@pytest.mark.parametrize("differing", [None, Unlike("pod-3", "pod-0", 0.044, 0.022, 18.0, 2.0)])
def test_no_more_load_is_asked_for_where_there_was_more(busy: pl.DataFrame, differing: Unlike | None):
    base = ask(busy, rate=20.0)
    limit = Limit(30.0, None, None, None, reached=False, queues=0)
    found = _unknown(base, counted(), limit, Question(0, (SLO,), rate=40.0), differing)
    assert found is not None
    assert "the SLOs break at about 1.8 in flight, and the busiest replica had 21.6" in found.reason
    assert "contradict the fit" in found.reason
    assert "load one replica" not in found.reason
    assert found.next_levels == ()
    assert found.details["refusal"] == ("knee" if differing is None else "unlike")
    assert ("pod-3 takes 44 ms a token and pod-0 22 ms (2 times" in found.reason) is (differing is not None)
    # Where less was seen than breaks them, more load does tell.
    less = _unknown(base, counted(busiest=1.5), limit, Question(0, (SLO,), rate=40.0), differing)
    assert less is not None
    assert less.details["load"].startswith("load one replica with about 3 requests")


def test_pods_behind_one_address_are_warned_of(busy: pl.DataFrame):
    """Each scrape is of one of two pods, and all have one set of labels."""
    every = 15 * 10**9
    slot = (pl.col("t_ns") // every).alias("slot")
    second = pl.col("labels").str.contains("vllm-1")
    # Two scrapes of a pod, then two of the other.
    picked = busy.with_columns(slot).filter(second == (pl.col("slot") // 2 % 2 == 1))
    labels = pl.col("labels").str.replace("vllm-1", "vllm-0").str.replace("10.0.0.1", "10.0.0.0", literal=True)
    found = ask(picked.with_columns(labels, t_ns=pl.col("slot") * every).drop("slot"), rate=20.0)
    assert found.details["replicas"] is None
    told = " ".join(found.warnings)
    assert "several pods seem to share one set of labels" in told
    assert "of 1 replica" not in " ".join(found.assumptions)
    refused = ask(
        picked.with_columns(labels, t_ns=pl.col("slot") * every).drop("slot"), Slo.parse("p95 ttft <= 1ms"), rate=20.0
    )
    assert refused.gpus is None
    assert "several pods seem to share one set of labels" in " ".join(refused.warnings)
    assert ask(busy, rate=20.0).details["replicas"] == 2
