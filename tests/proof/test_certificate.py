"""Certificates: what they conclude, that a file gives them back, and loads that are rounded against the proof."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.analysis.proof.judge import Judged, SloJudged, Terms, Verdict
from gpusize.base.errors import StoreError, UsageError
from gpusize.estimate.certificate import Certificate, Side, digest_of, read_certificate, write_certificate
from gpusize.options.proof import Budget, load_options, planned_levels, side_of
from gpusize.report.proof import certificate_rows
from tests.analysis.synthetic import percentile_level


def side(gpus: int, verdict: Verdict) -> Side:
    slo = SloJudged("p95 runtime <= 1s", 0.95, verdict, 0.97, 0.955, 0.98, 5000, 150, 0, 10, 500)
    judged = Judged(verdict, f"it is {verdict}", (slo,), 5000, 80, 10.0)
    return Side(gpus, gpus, "as asked", users=10, run=f"run-{gpus}", judged=judged, levels=5, length_s=100.0,
                requests=5080, digest="ab")  # fmt: skip


def certificate(asked: Verdict, fewer: Verdict | None = None) -> Certificate:
    less = None if fewer is None else side(7, fewer)
    return Certificate(8, 1, 10.0, None, ("p95 runtime <= 1s",), Terms(), "30m", 20.0, side(8, asked), less, "done",
                       "0.1.0", {"options": {"fewer_url": None}})  # fmt: skip


@pytest.mark.parametrize("asked, fewer, proved, text", [
    ("kept", "not kept", True, "8 GPUs keep p95 runtime <= 1s, and 7 GPUs do not"),
    ("kept", "kept", False, "8 GPUs keep p95 runtime <= 1s, and so do 7 GPUs: fewer are enough"),
    ("kept", "undecided", False, "whether 7 GPUs do is undecided: it is undecided"),
    ("kept", None, True, "whether fewer do was not tried"),
    ("not kept", None, False, "8 GPUs do not keep p95 runtime <= 1s: it is not kept"),
    ("undecided", None, False, "whether 8 GPUs keep p95 runtime <= 1s is undecided"),
])  # fmt: skip
def test_conclusions(asked: Verdict, fewer: Verdict | None, proved: bool, text: str) -> None:
    found = certificate(asked, fewer)
    assert text in found.conclusion
    assert found.proved is proved
    shown = certificate_rows(found)
    assert shown[0] == ("conclusion", found.conclusion)
    assert "97 % of 5,000 requests" in " ".join(text for _, text in shown)


def test_too_few_requests_bound_nothing() -> None:
    """Before the least rounds the interval could lie below what is asked for while all is undecided."""
    known = certificate("undecided")
    early = replace(known.asked, judged=replace(known.asked.judged or pytest.fail("judged"), enough=False))
    texts = " ".join(text for _, text in certificate_rows(replace(known, asked=early)))
    assert "too few to say of all such requests" in texts
    assert "between" not in texts
    assert "between 95.5 % and 98 % of all such requests" in " ".join(text for _, text in certificate_rows(known))


@pytest.mark.parametrize(
    "levels, left_out, why",
    [
        (5, 4, "the load generator was the limit in 4 of 5 levels, and all the others were warm-up"),
        (3, 3, "the load generator was the limit whenever it was measured"),
        (2, 0, "all were warm-up"),
    ],
)
def test_where_no_request_counts_none_is_said_to_be_beyond_the_bound(levels: int, left_out: int, why: str) -> None:
    known = certificate("kept", "undecided")
    fewer = known.fewer or pytest.fail("there is one")
    judged = fewer.judged or pytest.fail("judged")
    none = replace(judged.slos[0], requests=0, missed=0, attainment=math.nan, blocks=0)
    empty = replace(judged, slos=(none,), requests=0, enough=False)
    side_ = replace(fewer, judged=empty, levels=levels, left_out=left_out)
    texts = [text for _, text in certificate_rows(replace(known, fewer=side_))]
    assert f"p95 runtime <= 1s: no request counts: {why}" in texts
    assert not any("no request within" in text or "which do not count" in text for text in texts)


def test_the_headline_leaves_the_reasons_to_what_follows() -> None:
    known = certificate("kept", "undecided")
    assert known.headline == "8 GPUs keep p95 runtime <= 1s; whether 7 GPUs do is undecided"
    assert known.because == "it is undecided"
    assert known.conclusion == f"{known.headline}: {known.because}"
    assert certificate("kept", "not kept").because == ""


def test_one_gpu_carries() -> None:
    known = certificate("kept")
    one = replace(known.asked, at_gpus=1, how="scaled down", users=2)
    told = replace(known, asked=one).assumptions
    assert any(text.startswith("1 GPU carries 2 users, as 8 GPUs carry 10 users: ") for text in told)


def test_a_file_gives_it_back(tmp_path: Path) -> None:
    known = certificate("kept", "not kept")
    file = write_certificate(tmp_path, known)
    assert read_certificate(tmp_path) == known
    bare = replace(known, fewer=None, asked=Side(8, 2, "scaled down", users=3))
    write_certificate(tmp_path, bare)
    assert read_certificate(tmp_path) == bare
    told = json.loads(file.read_text())["assumptions"]
    assert any("2 GPUs carry 3 users, as 8 GPUs carry 10 users" in text for text in told)
    assert read_certificate(tmp_path / "none") is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"question": 1}', '{"schema": 1, "question": {}}'])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "certificate.json").write_text(text, encoding="utf-8")
    with pytest.raises(StoreError, match=r"certificate\.json"):
        read_certificate(tmp_path)


@given(st.integers(2, 500), st.integers(1, 500), st.integers(1, 100_000))
def test_users_are_rounded_against_the_proof(gpus: int, at: int, users: int) -> None:
    """Per GPU the number that is to keep the SLOs gets no less than asked, the one that is not to no more."""
    try:
        asked = side_of(gpus, at, asked_gpus=gpus, users=users, rate=None)
        fewer = side_of(gpus - 1, at, asked_gpus=gpus, users=users, rate=None)
    except UsageError:
        # Rounding by one user is more than a tenth of so few.
        assert users * at < 10 * gpus
        return
    assert asked.users is not None
    assert fewer.users is not None
    assert asked.users * gpus >= users * at > (asked.users - 1) * gpus
    assert fewer.users * (gpus - 1) <= users * at < (fewer.users + 1) * (gpus - 1)


@given(st.integers(1, 500), st.integers(1, 500), st.floats(0.1, 1e5))
def test_rates_keep_their_share(gpus: int, at: int, rate: float) -> None:
    found = side_of(gpus, at, asked_gpus=gpus, users=None, rate=rate)
    assert found.rate == pytest.approx(rate * at / gpus, rel=1e-8)
    assert found.how == ("as asked" if at == gpus else "scaled down" if at < gpus else "by load")


def test_budgets() -> None:
    users, rate = Side(1, 1, "as asked", users=5), Side(1, 1, "as asked", rate=10.0)
    assert planned_levels(users, Budget.parse("30m"), 20.0) == 90
    assert planned_levels(rate, Budget.parse(4000), 20.0) == 21
    assert planned_levels(users, Budget.parse("4_000"), 20.0) == 2000
    assert math.isclose(Budget.parse("1h").time_s or 0, 3600)
    for wrong in ("5", "soon", "-1m", "1.5"):
        with pytest.raises(UsageError, match="budget"):
            Budget.parse(wrong)
    with pytest.raises(UsageError, match="no room"):
        planned_levels(users, Budget.parse("10s"), 20.0)
    with pytest.raises(UsageError, match="too short"):
        planned_levels(users, Budget.parse("10m"), 0.5)


def test_the_digest_is_that_of_all_files() -> None:
    level = percentile_level(4, 1.0)
    sums = {"records/part-0001.parquet": "bb", "records/part-0000.parquet": "aa"}
    level = replace(level, meta={**level.meta, "checksums": sums})
    text = f"{level.visit} records/part-0000.parquet aa\n{level.visit} records/part-0001.parquet bb\n"
    assert digest_of([level]) == hashlib.sha256(text.encode()).hexdigest()


def test_a_rate_of_requests_begins_as_many_conversations_as_bring_them() -> None:
    asked = side_of(8, 2, asked_gpus=8, users=None, rate=80.0, turns=4.0)
    assert (asked.rate, asked.arrivals) == (20.0, 5.0)
    assert asked.load_text == "20 requests/s, in 5 conversations/s of 4 requests on the mean"
    known = replace(certificate("kept"), users=None, rate=80.0, asked=asked)
    assert set(load_options(known, asked, Budget.parse("2m"))["rates"]) == {5.0}
    whole = replace(known, asked=side_of(8, 8, asked_gpus=8, users=None, rate=80.0, turns=4.0))
    assert dict(certificate_rows(whole))["load"] == "80 requests/s, in 20 conversations/s of 4 requests on the mean"
    plain = side_of(8, 8, asked_gpus=8, users=None, rate=80.0)
    assert (plain.arrivals, plain.load_text) == (80.0, "80 requests/s")


@pytest.mark.parametrize(
    "verdict, requests, said",
    [("kept", 2300, "kept"), ("kept", 1800, "undecided"), ("not kept", 1800, "not kept")],
)
def test_conversations_that_are_cut_off_prove_nothing_of_the_whole_load(
    verdict: Verdict, requests: int, said: Verdict
) -> None:
    """20 requests/s for 120 s are 2,400; of 600 conversations three standard errors are 12 %."""
    asked = side_of(8, 8, asked_gpus=8, users=None, rate=20.0, turns=4.0)
    judged = side(8, verdict).judged or pytest.fail("judged")
    found = asked.as_brought(judged, requests, 120.0)
    assert found.verdict == said
    assert ("only 15 requests/s came of the 20" in found.why) is (said == "undecided")
    alone = side_of(8, 8, asked_gpus=8, users=None, rate=20.0)
    assert alone.as_brought(judged, requests, 120.0) is judged
