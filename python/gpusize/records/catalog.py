"""Folders of runs: what is in them, and tidying up."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpusize.base.errors import StoreError, UsageError
from gpusize.base.files import storing
from gpusize.records.store import RunStore, find_runs, level_dirs, open_level_dirs, read_level, read_run

__all__ = ["RunFacts", "catalog", "facts_of", "relabel", "remove_run", "to_remove"]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a run folder is, without its measurements.

    Attributes:
        path: the folder.
        size_bytes: of all files in it.
        problem: why it cannot be read, and all that follows is empty then; or what of its levels cannot.
        created: ISO 8601, in UTC.
        targets: what the load was sent to.
        models: names.
        gpus: behind the targets; 0 when unknown.
        loads: ``16 users``, ``20 requests/s`` or a kind, in the order in which they were measured.
        states: how many levels ended in each state; ``open`` are those that did not end,
            ``damaged`` those that cannot be read.
        labels: the run's.
        about: the contents of ``run.json``.
    """

    path: Path
    size_bytes: int
    problem: str = ""
    created: str = ""
    targets: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    gpus: int = 0
    loads: tuple[str, ...] = ()
    states: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def created_at(self) -> datetime | None:
        """When the run began; None where nobody says."""
        try:
            at = datetime.fromisoformat(self.created)
        except ValueError:
            return None
        return at if at.tzinfo is not None else at.replace(tzinfo=UTC)

    def carries(self, labels: Mapping[str, str]) -> bool:
        """Whether it has all of these labels."""
        return all(self.labels.get(name) == value for name, value in labels.items())


def catalog(folders: Sequence[Path], labels: Mapping[str, str] | None = None) -> list[RunFacts]:
    """The runs in folders, oldest first; with ``labels`` those that carry all of them.

    Raises:
        StoreError: a folder is not there, or holds no run.
    """
    runs = {run.resolve(): run for folder in folders for run in find_runs(folder)}
    found = [facts_of(run) for run in runs.values()]
    wanted = [each for each in found if each.carries(labels or {})]
    return sorted(wanted, key=lambda each: (each.created_at or datetime.min.replace(tzinfo=UTC), str(each.path)))


def facts_of(run: Path) -> RunFacts:
    """The facts of one run folder; a damaged one says why it cannot be read, and those of its levels that can."""
    size = _size(run)
    try:
        about = read_run(run)
        folders = level_dirs(run)
        unfinished = len(open_level_dirs(run))
    except StoreError as error:
        return RunFacts(run, size, problem=str(error))
    levels, problems = [], []
    for each in folders:
        try:
            levels.append(read_level(each))
        except StoreError as error:
            problems.append(str(error))
    targets = [each for each in about.get("targets") or () if isinstance(each, Mapping)]
    states = Counter(str(level.get("state")) for level in levels)
    return RunFacts(
        run,
        size,
        problem=problems[0] if problems else "",
        created=str(about.get("created") or ""),
        targets=tuple(_target(each) for each in targets),
        models=tuple(str(each) for each in about.get("models") or ()),
        gpus=sum(int(each.get("gpus") or 0) for each in targets),
        loads=tuple(_load(level.get("setting") or {}) for level in levels),
        states={
            **states,
            **({"damaged": len(problems)} if problems else {}),
            **({"open": unfinished} if unfinished else {}),
        },
        labels={str(name): str(value) for name, value in (about.get("labels") or {}).items()},
        about=about,
    )


def _target(target: Mapping[str, Any]) -> str:
    if target.get("simulated") is not None:
        return "simulated cluster"
    return str(target.get("url") or target.get("name") or target.get("api") or "")


def _load(setting: Mapping[str, Any]) -> str:
    for name, unit in (("concurrency", "users"), ("rate", "requests/s")):
        if setting.get(name) is not None:
            return f"{setting[name]:g} {unit}"
    return str(setting.get("kind") or "")


def _size(folder: Path) -> int:
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(Path(place, name)).st_size
            except OSError:
                # Gone since it was listed: a run that is being written.
                continue
    return total


def relabel(run: Path, labels: Mapping[str, str], without: Sequence[str] = ()) -> dict[str, str]:
    """Add labels to a run, and take labels away; returns those that it has then.

    Raises:
        StoreError: the run cannot be read or written, or is being written.
        UsageError: it does not have a label that is to be taken away.
    """
    with RunStore.reopen(run) as store:
        known = {str(name): str(value) for name, value in (store.run.get("labels") or {}).items()}
        missing = [name for name in without if name not in known]
        if missing:
            has = ", ".join(known) or "none"
            raise UsageError(f"{run} has no label {missing[0]}", "remove", f"it has {has}")
        kept = {name: value for name, value in known.items() if name not in without} | dict(labels)
        store.add({"labels": kept})
    return kept


def to_remove(
    runs: Sequence[RunFacts], *, older_than_s: float | None = None, keep: int | None = None, now: datetime | None = None
) -> list[RunFacts]:
    """Those of the runs (oldest first) that are older, and not among the newest ``keep``.

    A run that cannot be read, or does not say when it began, is never among them.
    """
    known = [each for each in runs if not each.problem and each.created_at is not None]
    candidates = known if keep is None else known[: max(0, len(known) - keep)]
    if older_than_s is None:
        return candidates
    at = now or datetime.now(UTC)
    return [each for each in candidates if (at - (each.created_at or at)).total_seconds() > older_than_s]


def remove_run(run: Path) -> None:
    """Remove a run folder and all in it. Symbolic links are removed, never followed.

    Raises:
        StoreError: it is no run folder, another process is writing to it, or it cannot be removed.
    """
    read_run(run)
    if run.is_symlink():
        raise StoreError("this is a symbolic link", str(run), "name the folder that it points to")
    with RunStore.reopen(run), storing(run):
        # Out of sight in one step: what is interrupted half-way is no run with parts missing.
        gone = run.rename(run.with_name(f".{run.name}.removed"))
        shutil.rmtree(gone)
