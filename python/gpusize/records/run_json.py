"""The contents of ``run.json``: what was run, on what, from where."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.host import host_facts
from gpusize.records.store import new_run_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["identity", "nature_of", "run_facts", "what_differs"]

_BEFORE: Final = {"openai": "language_model", "kserve": "inference"}
"""How names of APIs began that were of a nature, before runs said it."""


def nature_of(target: Mapping[str, Any]) -> str | None:
    """What a request to a target is, `gpusize.targets.apis.base.Nature`; None where that is nothing in particular.

    Args:
        target: one of ``targets`` of ``run.json``. Where it does not say, as in runs of earlier versions, the name of
            its API tells.
    """
    if "nature" in target:
        return None if target["nature"] is None else str(target["nature"])
    api = str(target.get("api") or "")
    return next((nature for name, nature in _BEFORE.items() if api.startswith(name)), None)


def run_facts(
    *,
    command: Sequence[str],
    options: Mapping[str, Any],
    targets: Sequence[Mapping[str, Any]],
    models: Sequence[str],
    dataset: Mapping[str, Any],
    labels: Mapping[str, str],
    seed: int,
    levels: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """What ``run.json`` holds, in its order, but for ``schema``; see docs/reference/run-folder.md.

    Nothing secret may be among the arguments: they are written as they come.
    """
    from gpusize import __version__

    now = dt.datetime.now(dt.UTC)
    return {
        "gpusize": __version__,
        "run": new_run_id(int(now.timestamp()) * 1_000_000_000),
        "created": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "command": list(command),
        "options": dict(options),
        "targets": [dict(target) for target in targets],
        "models": list(models),
        "hosts": [host_facts()],
        "dataset": dict(dataset),
        "seed": seed,
        "labels": dict(labels),
        "levels": [dict(level) for level in levels],
    }


def identity(run: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies the system and the work: addresses and APIs, models, digest of the dataset.

    Args:
        run: the contents of ``run.json``.
    """
    # The simulated cluster listens on another port each time; its configuration is what it is.
    targets = [
        {
            "url": None if target.get("simulated") is not None else target.get("url"),
            "api": target.get("api"),
            "nature": nature_of(target),
            "simulated": target.get("simulated"),
        }
        for target in run.get("targets") or []
    ]
    dataset = run.get("dataset") or {}
    return {
        "targets": targets,
        "models": run.get("models") or [],
        "dataset": dataset.get("sha256") or dataset.get("source"),
    }


def what_differs(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """In a word what two runs did not have in common, so that they measured different things; None where nothing.

    Args:
        one: the contents of ``run.json``.
        other: those of the other run.
    """
    mine, theirs = _parts(one), _parts(other)
    return next((word for word in mine if mine[word] != theirs[word]), None)


def _parts(run: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies a run, by the words that errors have for it."""
    known = identity(run)
    return {
        "target": [(target["url"], target["api"]) for target in known["targets"]],
        "simulated cluster": [target["simulated"] for target in known["targets"]],
        "model": known["models"],
        "dataset": known["dataset"],
    }
