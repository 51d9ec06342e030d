"""Whatever goes wrong, in whatever order, and however often it is cut off: each workload is created once and known."""

from __future__ import annotations

import tempfile
import threading
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpusize.base.interrupt import StopSwitch
from gpusize.cluster.submit import send
from tests.cluster.api_double import DROP, LOST, ApiDouble, Asked, refusal
from tests.cluster.submit.conftest import Folder
from tests.cluster.submit.test_submit import held_against

FAULTS: dict[str, Any] = {
    "put off": refusal(429, "TooManyRequests", "later", {"Retry-After": "0"}),
    "fails": refusal(503, "ServiceUnavailable", "no"),
    "works": None,
    "dropped": DROP,
    "lost": LOST,
}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    number=st.integers(1, 14),
    together=st.integers(1, 5),
    open_loop=st.booleans(),
    pvc=st.booleans(),
    faults=st.dictionaries(
        st.tuples(st.integers(0, 13), st.sampled_from(["Pod", "PersistentVolumeClaim"]), st.integers(0, 3)),
        st.sampled_from(list(FAULTS)),
        max_size=25,
    ),
    stops=st.lists(st.integers(0, 12), max_size=3),
)
def test_each_workload_is_created_once_and_known(
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    together: int,
    open_loop: bool,
    pvc: bool,
    faults: dict[tuple[int, str, int], str],
    stops: list[int],
) -> None:
    monkeypatch.setattr(send, "_BACKOFF_S", 0.001)
    how: dict[str, Any] = {"rate": 2000.0} if open_loop else {"num_processes": together}
    times: Counter[tuple[int, str]] = Counter()
    stop: dict[int, StopSwitch] = {}
    created, lock = 0, threading.Lock()

    def fault(asked: Asked) -> Any:
        nonlocal created
        if not asked.creates:
            return None
        with lock:
            index, kind = int(asked.name.rpartition("-")[2]), str(asked.body["kind"])
            attempt = times[index, kind]
            times[index, kind] += 1
            created += 1
            asked_to_stop = stop.pop(created, None)
        if asked_to_stop is not None:
            asked_to_stop.ask()
            # Until it has been heard: what is not sent by then stays.
            threading.Event().wait(0.1)
        return FAULTS[faults.get((index, kind, attempt), "works")]

    with tempfile.TemporaryDirectory() as place, ApiDouble(fault) as double:
        folder = Folder(Path(place) / "out")
        # Each command is cut off after so many requests, the last one is not.
        done = None
        for after in [*stops, None]:
            switch = StopSwitch()
            stop = {} if after is None else {created + 1 + after: switch}
            done = folder.submit(double, number, switch=switch, pvc=pvc, retries=6, **how)
            per_workload: defaultdict[int, int] = defaultdict(int)
            for _, _, name in double.objects:
                per_workload[int(name.rpartition("-")[2])] += 1
            whole = sum(count == 1 + pvc for count in per_workload.values())
            # What is known may lag behind what is there only where an answer was lost.
            counts = done.facts["counts"]
            assert counts["created"] <= whole
            kinds = ("created", "unanswered", "partly", "not_sent")
            assert sum(counts[each] for each in kinds) + sum(counts["failed"].values()) == number
        assert done is not None
        assert done.complete
        assert len(double.objects) == number * (1 + pvc)
        assert set(Counter(name for _, _, name in double.objects).values()) == {1 + pvc}
        if not pvc:
            held_against(folder, double)
        seen = Counter((asked.name, asked.body["kind"]) for asked in double.asked if asked.creates)
        assert Counter(folder.attempts.select("name", "kind").iter_rows()) == seen
        assert [entry["jobName"].rpartition("-")[2] for entry in folder.submitted] == [str(k) for k in range(number)]
        rows = folder.attempts
        # What is known to be there is not sent again.
        assert rows.filter(pl.col("uid").is_not_null()).select("name", "kind").is_unique().all()
        assert rows.group_by("name", "kind").agg(pl.col("uid").last().is_not_null())["uid"].all()
        numbered = rows.group_by("name", "kind").agg("attempt")
        assert all(sorted(each) == list(range(len(each))) for each in numbered["attempt"].to_list())
