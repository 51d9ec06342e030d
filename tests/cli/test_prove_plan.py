"""What ``gpusize prove`` is going to send, known before anything is: conversations, and GPUs behind addresses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpusize.analysis.proof.judge import Terms
from gpusize.api.planned_proof import Sought, Ways, planned
from gpusize.base.errors import UsageError
from gpusize.estimate.certificate import Certificate, read_certificate, write_certificate
from tests.cli.conftest import Gpusize
from tests.cli.test_duet import Server, servers

__all__ = ["servers"]

SLO = "p95 runtime <= 130ms"


@pytest.fixture
def by_session(gpusize: Gpusize, servers: Callable[[float], Server]) -> str:
    """A run of conversations that begin at rates: two of 4 turns, two of 2."""
    rows = [{"session": f"s{k}", "prompt": "x"} for k, turns in enumerate((4, 2, 4, 2)) for _ in range(turns)]
    Path("talks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    done = gpusize("run", "--url", servers(0.001).url, "--model", "simulated", "--no-stream",
                   "--dataset", "talks.jsonl", "--sessions", "--rates", "20,40", "--duration", "500ms",
                   "--gpus", "1", "--slo", SLO, "--quiet", "--no-plots")  # fmt: skip
    assert Path("runs").is_dir(), done.err
    return "runs"


def plan(runs: str, sought: Sought, ways: Ways) -> tuple[dict[str, Any], Certificate]:
    return planned(runs, sought, ways, Terms(), budget="1m", duration="5s", options={})


def test_a_rate_of_requests_is_sent_in_conversations(by_session: str) -> None:
    _, certificate = plan(by_session, Sought(1, None, 30.0, None, 1), Ways())
    assert (certificate.rate, certificate.asked.rate, certificate.asked.turns) == (30.0, 30.0, 3.0)
    assert certificate.asked.arrivals == 10.0


A, B = "http://a:8000/v1", "http://b:8000/v1"


@pytest.fixture
def run(gpusize: Gpusize, servers: Callable[[float], Server]) -> str:
    load = ("--prompt", "x", "--model", "simulated", "--concurrencies", "2", "--count", "4", "--no-stream")
    done = gpusize("run", "--url", servers(0.001).url, *load, "--gpus", "1", "--slo", SLO, "--users", "4",
                   "--quiet", "--no-plots")  # fmt: skip
    assert Path("runs").is_dir(), done.err
    return "runs"


@pytest.mark.parametrize(
    "gpus, per, ways",
    [
        (4, 1, Ways([A, B])),
        (8, 2, Ways([A, B])),
        (1, 1, Ways([A, B])),
        (4, 1, Ways(A, fewer_url=[A, B])),
    ],
)
def test_addresses_are_not_taken_for_other_gpus(run: str, gpus: int, per: int, ways: Ways) -> None:
    """Two replicas that are loaded for four would prove a lie of the four."""
    with pytest.raises(UsageError, match=f"2 addresses would be taken for {gpus if ways.url != A else 3} GPU"):
        plan(run, Sought(gpus, 4.0, None, None, per), ways)


def test_what_is_behind_addresses_is_said(run: str, tmp_path: Path) -> None:
    def behind(gpus: int, ways: Ways, per: int = 1) -> tuple[int, tuple[str, ...]]:
        _, found = plan(run, Sought(gpus, 40.0, None, None, per), ways)
        write_certificate(tmp_path, found)
        again = read_certificate(tmp_path)
        assert again is not None
        assert again.behind == found.behind
        assert set(found.behind) <= set(found.assumptions)
        return found.asked.at_gpus, found.behind

    assert behind(2, Ways([A, B])) == (2, ())
    assert behind(4, Ways([A, B]), per=2) == (4, ())
    assert behind(4, Ways([A, B], target_gpus=2)) == (2, ())
    at, [text] = behind(4, Ways([A, B], target_gpus=4))
    assert (at, text.startswith("4 GPUs stand behind the 2 addresses that are loaded")) == (4, True)
    at, [text] = behind(8, Ways(A))
    assert (at, text.startswith("8 GPUs stand behind the address that is loaded")) == (8, True)
    at, [text] = behind(4, Ways())
    assert (at, text.startswith("1 GPU is behind the target, as its run says")) == (1, True)
    assert behind(4, Ways(A, scale_command="sh scale.sh {replicas}")) == (4, ())
