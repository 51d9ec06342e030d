"""Files of other tools, recognised by what they hold, into a folder of a cluster test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpusize.base.errors import PathMissing, StoreError, UsageError
from gpusize.base.files import write_frame
from gpusize.base.regular_files import read_regular
from gpusize.cluster.folder import FACTS, append_rows, make_folder, update_facts
from gpusize.cluster.imports.figures import FIGURES, figures_frame
from gpusize.cluster.imports.kai import looks_like_kai, test_rows
from gpusize.cluster.imports.kube_burner import PODS, QUANTILES, pod_stamps, quantile_rows
from gpusize.cluster.imports.perf_data import item_rows, looks_like_perf_data
from gpusize.cluster.tables import STAMPS

__all__ = ["Imported", "import_files"]

_KNOWN: Final = "there are kube-burner's podLatency documents, KAI's scale test JSON and ClusterLoader2's PerfData"
_NOTES: Final = {
    PODS: "of kube-burner: pods that never became ready are in no document, and negative latencies are 0",
    "figures": "figures alone: the tool keeps no rows, so there are no intervals, no phases and no thresholds",
}


@dataclass(frozen=True, slots=True)
class Imported:
    """What was taken over.

    Attributes:
        folder: where it lies.
        stamps: stamps of pods.
        pods: pods.
        figures: figures that have no rows behind them.
        notes: what is to be known of them.
    """

    folder: Path
    stamps: int
    pods: int
    figures: int
    notes: tuple[str, ...]


def import_files(files: Sequence[Path], folder: Path) -> Imported:
    """Make a folder of a cluster test of other tools' files.

    Args:
        files: each of a format that is recognised.
        folder: which is made; it holds no test yet.

    Raises:
        UsageError: a file of no known format, or a folder that holds a test.
        PathMissing, StoreError: a file cannot be read, or the folder not be written.
    """
    if (folder / FACTS).exists():
        raise UsageError("there is a test in this folder", str(folder), "name a new one with -o DIR")
    stamps: list[dict[str, Any]] = []
    figures: list[dict[str, Any]] = []
    notes: list[str] = []
    for file in files:
        more, rows = _read(file)
        stamps += more
        figures += rows
        notes += [_NOTES[PODS]] if more else []
        notes += [_NOTES["figures"]] if rows else []
    told = tuple(dict.fromkeys(notes))
    make_folder(folder)
    append_rows(folder, STAMPS, stamps)
    if figures:
        write_frame(folder / FIGURES, figures_frame(figures))
    update_facts(folder, imported={"files": [str(each) for each in files], "notes": list(told)})
    return Imported(folder, len(stamps), len({row["uid"] for row in stamps}), len(figures), told)


def _read(file: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Stamps and figures of a file."""
    if not file.exists():
        raise PathMissing("there is no such file", str(file))
    document = _parsed(file)
    if looks_like_kai(document):
        return [], test_rows(document)
    if looks_like_perf_data(document):
        return [], item_rows(document, file.stem)
    documents = document if isinstance(document, list) else [document]
    kinds = {each.get("metricName") if isinstance(each, dict) else None for each in documents}
    if documents and kinds <= {PODS, QUANTILES}:
        pods = [each for each in documents if each["metricName"] == PODS]
        return pod_stamps(pods, str(file)), quantile_rows([each for each in documents if each not in pods])
    raise UsageError("no known format", str(file), _KNOWN)


def _parsed(file: Path) -> Any:
    """A JSON document, or several, one a line."""
    data = read_regular(file)
    try:
        return json.loads(data)
    except ValueError as problem:
        try:
            lines = [json.loads(line) for line in data.splitlines() if line.strip()]
        except ValueError:
            raise StoreError(f"broken JSON: {problem}", str(file), "export it again") from None
        return lines
