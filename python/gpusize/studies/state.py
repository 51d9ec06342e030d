"""How far a study has come: ``study.json``, written anew after every step."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

from gpusize.base.errors import StoreError, UsageError
from gpusize.base.files import storing, write_json
from gpusize.studies.spec import Combination, Study

__all__ = ["StudyState", "read_state", "state_file"]

_FILE: Final = "study.json"
_SCHEMA: Final = 1


class StudyState:
    """One entry per combination: ``pending``, ``running``, ``done``, ``failed`` or ``interrupted``.

    Attributes:
        path: the study's folder.
        entries: by the combination's name: ``settings``, ``state``, ``run`` (its folder's name), ``error``,
            ``teardown_error``, ``started_s`` and ``ended_s`` (seconds since 1970).
    """

    def __init__(self, path: Path, facts: dict[str, Any], entries: dict[str, dict[str, Any]]) -> None:
        self.path = path
        self._facts = facts
        self.entries = entries

    @classmethod
    def open(cls, study: Study, *, resume: bool) -> StudyState:
        """Begin a study, or go on with one.

        Raises:
            UsageError: the folder holds a study already and nobody said to resume it, or another study.
            StoreError: the folder cannot be written, or its ``study.json`` cannot be read.
        """
        file = study.out / _FILE
        known: dict[str, dict[str, Any]] = {}
        if file.exists():
            if not resume:
                raise UsageError(
                    "this folder already holds a study", str(study.out), "continue it with --resume, or choose another"
                )
            stored = read_state(file)
            if stored.get("fingerprint") != study.fingerprint:
                raise UsageError(
                    "the study was begun with other steps or other options",
                    str(study.out),
                    "settings may be added to a study, nothing else: choose another folder",
                )
            known = stored["combinations"]
        with storing(study.out):
            study.out.mkdir(parents=True, exist_ok=True)
        facts = {"schema": _SCHEMA, "name": study.name, "source": study.source, "fingerprint": study.fingerprint}
        entries = {
            each.name: known.get(each.name, {"settings": dict(each.settings), "state": "pending"})
            for each in study.combinations
        }
        state = cls(study.out, facts, {**known, **entries})
        state.write()
        return state

    def is_done(self, combination: Combination) -> bool:
        """Whether the combination has been measured to its end."""
        return self.entries[combination.name].get("state") == "done"

    def begin(self, combination: Combination) -> None:
        """The combination is being worked on."""
        settings = dict(combination.settings)
        self.entries[combination.name] = {"settings": settings, "state": "running", "started_s": time.time()}
        self.write()

    def change(self, combination: Combination, **facts: Any) -> None:
        """Keep facts about a combination."""
        self.entries[combination.name] |= facts
        self.write()

    def write(self) -> None:
        """Put everything on disk.

        Raises:
            StoreError: it cannot be written.
        """
        write_json(self.path / _FILE, {**self._facts, "combinations": self.entries})


def state_file(folder: Path) -> Path:
    """Where a study keeps its state."""
    return folder / _FILE


def read_state(file: Path) -> dict[str, Any]:
    """The contents of a ``study.json``: ``name``, ``combinations`` and others.

    Raises:
        StoreError: it cannot be read, or is none.
    """
    with storing(file):
        text = file.read_text("utf-8")
    try:
        stored = json.loads(text)
    except ValueError as problem:
        raise StoreError(f"not valid JSON: {problem}", str(file)) from None
    if not isinstance(stored, dict) or not isinstance(stored.get("combinations"), dict):
        raise StoreError("not the state of a study", str(file), "choose another folder")
    if stored.get("schema") != _SCHEMA:
        raise StoreError(f"written with schema {stored.get('schema')}", str(file), "update gpusize")
    return stored
