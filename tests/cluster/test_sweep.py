"""The knee of a sweep, and the start delay out of a test."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize.base.errors import UsageError
from gpusize.cli.plan_over_time import rules_of
from gpusize.cluster.figures.sweep import save_sweep
from gpusize.cluster.folder import append_rows, update_facts
from gpusize.cluster.start_delay import measured_start_delay
from gpusize.cluster.sweep import Knee, Swept, knees

S = 1_000_000_000
BEGIN = 1_795_000_000 * S


def made_tests(kept: dict[float, bool], nodes: int = 10, workers: int | None = None) -> list[dict[str, Any]]:
    return [{"nodes": nodes, "workers": workers, "rate": rate, "kept": held} for rate, held in kept.items()]


@given(st.dictionaries(st.integers(1, 100).map(float), st.booleans(), min_size=1))
def test_a_knee_lies_between_what_is_kept_and_what_is_not(kept: dict[float, bool]) -> None:
    [knee] = knees(made_tests(kept))
    if knee.breaks is not None:
        assert not kept[knee.breaks]
        assert all(held for rate, held in kept.items() if rate < knee.breaks)
    if knee.keeps is None:
        assert not kept[min(kept)]
    else:
        assert kept[knee.keeps]
        assert knee.breaks is None or knee.keeps < knee.breaks
        assert not [rate for rate in kept if knee.keeps < rate < (knee.breaks or math.inf)]


def test_each_number_of_nodes_and_each_gang_has_its_own() -> None:
    rows = [
        *made_tests({1.0: True, 2.0: False}, 10, 1),
        *made_tests({1.0: False}, 10, 8),
        *made_tests({1.0: True, 2.0: True}, 20, 1),
        # A later test that was kept says nothing where an earlier one was not.
        *made_tests({1.0: True, 2.0: False, 4.0: True}, 20, 8),
    ]
    assert knees(rows) == [Knee(10, 1, 1.0, 2.0), Knee(10, 8, None, 1.0), Knee(20, 1, 2.0, None), Knee(20, 8, 1.0, 2.0)]


def test_a_sweep_is_drawn_with_what_was_not_reached(tmp_path: Path) -> None:
    rows = [
        {"nodes": 10, "workers": None, "rate": 1.0, "p99_s": 0.1, "kept": True},
        {"nodes": 10, "workers": None, "rate": 2.0, "p99_s": None, "kept": False},
        {"nodes": 20, "workers": None, "rate": 1.0, "p99_s": None, "kept": False},
    ]
    [file] = save_sweep(Swept(tmp_path, pl.DataFrame(rows)), tmp_path)
    assert file.read_bytes().startswith(b"\x89PNG")


def made_folder(folder: Path, ready_after_s: list[float | None]) -> Path:
    """A folder with pods that became ready after so long, or never; looked at after a thousand seconds."""
    names = [f"j-{number}" for number in range(len(ready_after_s))]
    attempts = [
        {"workload": name, "index": number, "kind": "Pod", "name": name, "namespace": "a", "attempt": 0}
        | {"due_ns": BEGIN, "sent_ns": BEGIN, "acknowledged_ns": BEGIN, "status": 201, "uid": name}
        for number, name in enumerate(names)
    ]
    stamps = [
        {"workload": name, "kind": "Pod", "namespace": "a", "name": name, "uid": name, "moment": moment}
        | {"at_ns": at_ns, "resolution_ns": 1, "source": "watch", "clock": "client", "received_ns": at_ns}
        | {"reported": True}
        for name, after_s in zip(names, ready_after_s, strict=True)
        for moment, at_ns in [("created", BEGIN), *([] if after_s is None else [("ready", BEGIN + round(after_s * S))])]
    ]
    append_rows(folder, "attempts", [{**dict.fromkeys(("reason", "message")), **row} for row in attempts])
    append_rows(folder, "stamps", stamps)
    update_facts(folder, sample={"ended_ns": BEGIN + 1000 * S})
    return folder


@settings(max_examples=20)
@given(st.lists(st.integers(1, 500), min_size=1, max_size=60), st.integers(0, 3))
def test_the_start_delay_is_the_95th_percentile_of_all(
    tmp_path_factory: pytest.TempPathFactory, seconds: list[int], never: int
) -> None:
    folder = made_folder(tmp_path_factory.mktemp("test"), [*map(float, seconds), *[None] * never])
    # Nobody is lost before the last one is ready, so the rank among all says it.
    rank = math.ceil(0.95 * (len(seconds) + never) - 1e-9)
    if rank > len(seconds):
        with pytest.raises(UsageError, match="were not ready at the last look"):
            measured_start_delay(folder)
        return
    found = measured_start_delay(folder)
    assert found.seconds == pytest.approx(sorted(seconds)[rank - 1], abs=1e-6)
    assert (found.workloads, found.unready) == (len(seconds) + never, never)


def test_a_plan_takes_the_folder_for_the_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = dict.fromkeys(("window", "decide_every", "scale_down_after", "min_replicas", "max_replicas"))
    rules = rules_of({**options, "start_delay": str(made_folder(tmp_path, [40.0] * 20))})
    assert rules.start_delay_s == pytest.approx(40, abs=1e-6)
    assert "95 % of 20 workloads were ready by then" in capsys.readouterr().err
    rules_of({**options, "start_delay": str(made_folder(tmp_path / "one", [40.0] * 20 + [None]))})
    assert ": 95 % of 21 workloads, of which 1 never was, were ready by then" in capsys.readouterr().err
    assert rules_of({**options, "start_delay": "90s"}).start_delay_s == 90
