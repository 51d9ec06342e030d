"""Estimates from telemetry alone: counts of clusters whose answer is known, and every refusal with its reason."""

from __future__ import annotations

import polars as pl
import pytest

from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import Question
from gpusize.estimate.telemetry.method import estimate_telemetry
from gpusize.estimate.truth import true_gpus
from tests.estimate.production_day import PROMPTS, day
from tests.estimate.virtual import CLUSTER

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
