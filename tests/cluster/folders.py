"""Folders of cluster tests on disk: ours from made worlds, and those of the Run:ai scale test tool."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from gpusize.base.files import write_frame
from gpusize.cluster.folder import update_facts
from tests.cluster.synthetic import Made, World, make

EVENTS = (
    "workloadCreatedTimestamp",
    "jobCreatedTimestamp",
    "firstPodCreatedTimestamp",
    "lastPodCreatedTimestamp",
    "podGroupCreatedTimestamp",
    "podSchedulingDecisionTimestamp",
)


def save(world: World, folder: Path) -> Made:
    made = make(world)
    for table, frame in (("stamps", made.stamps), ("attempts", made.attempts)):
        (folder / table).mkdir(parents=True, exist_ok=True)
        write_frame(folder / table / "part-000001.parquet", frame)
    update_facts(folder, **{key: value for key, value in made.facts.items() if key != "version"})
    return made


def seed_rows(n: int, seed: int, *, events: bool = False, backend: bool = False) -> tuple[list[Any], list[Any]]:
    """What the Run:ai tool would have written of ``n`` jobs, two of them submitted in each second."""
    draw = np.random.default_rng(seed)
    begin = datetime(2024, 9, 9, 10, 0, 0, tzinfo=UTC)
    submitted, sampled = [], []
    for k in range(n):
        at = begin + timedelta(seconds=k // 2, microseconds=int(draw.integers(0, 1_000_000)))
        name = f"j-{k:06x}"
        about = {"jobName": name, "projectName": "project-0", "jobNamespace": "runai-project-0"}
        submitted.append({**about, "submitTimestamp": at.isoformat(timespec="microseconds")})
        row = {"jobName": name, "jobNamespace": "runai-project-0", "projectName": "project-0"}
        for key in EVENTS:
            at += timedelta(seconds=float(draw.exponential(1.5)))
            row[key] = at.strftime("%Y-%m-%dT%H:%M:%SZ") if k % 3 else at.strftime("%Y-%m-%d %H:%M:%S+00:00")
        decision = row["podSchedulingDecisionTimestamp"]
        later = [at + timedelta(seconds=wait) for wait in (3, 5, 11, 7)]
        texts = [each.strftime("%Y-%m-%dT%H:%M:%SZ") for each in later]
        row["firstEvictionTimestamp"] = texts[0] if events and k % 4 == 0 else decision
        row["firstPVCBindRequestTimestamp"] = texts[1] if events else decision
        row["firstPVCBindTimestamp"] = texts[2] if events else decision
        row["backendJobCreatedTimestamp"] = texts[3] if backend else row["workloadCreatedTimestamp"]
        sampled.append(row)
    # Eight processes at once: the tool's files are in no order.
    return [submitted[k] for k in draw.permutation(n)], [sampled[k] for k in draw.permutation(n)]


def seed_folder(folder: Path, submitted: list[Any], sampled: list[Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "submitted.json").write_text(json.dumps(submitted))
    (folder / "sampled.json").write_text(json.dumps(sampled))
    return folder


def second(text: str) -> datetime:
    """As the tool reads times: whole seconds, and no offset."""
    text = text.replace("T", " ")
    for mark in (".", "Z", "+"):
        text = text.partition(mark)[0]
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
