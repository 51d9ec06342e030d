"""What lies beside the records in a run folder, as levels need it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusize.errors import StoreError
from gpusize.row_facts import read_rows

if TYPE_CHECKING:
    import polars as pl

__all__ = ["kept_rows", "read_json", "source_of"]


def kept_rows(run_dir: Path) -> pl.DataFrame | None:
    """What a run kept of its dataset's rows, as ``gpusize.row_facts.read_rows``.

    Raises:
        StoreError: the file is damaged.
    """
    import polars as pl

    try:
        return read_rows(run_dir)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise StoreError(
            f"unreadable rows of the dataset ({reason})", str(run_dir), "leave the run out or restore it"
        ) from None


def source_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies the system and the work: addresses and APIs, models, digest of the dataset."""
    targets = [
        {"url": t.get("url"), "api": t.get("api"), "simulated": t.get("simulated")} for t in run.get("targets") or []
    ]
    # The simulated cluster listens on another port each time; its configuration is what it is.
    for target in targets:
        if target["simulated"] is not None:
            target["url"] = None
    dataset = run.get("dataset") or {}
    return {
        "targets": targets,
        "models": run.get("models") or [],
        "dataset": dataset.get("sha256") or dataset.get("source"),
    }


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a run folder.

    Raises:
        StoreError: it is missing, unreadable or damaged.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise StoreError("not found", str(path), "give the folder of a run, the one that holds run.json") from None
    except OSError as error:
        raise StoreError(f"unreadable ({error.strerror})", str(path), "check its permissions") from None
    except ValueError as error:
        raise StoreError(f"broken JSON ({error})", str(path), "the file is damaged; leave this run out") from None
    if not isinstance(found, dict):
        raise StoreError("not a JSON object", str(path), "the file is damaged; leave this run out")
    return found
