"""From options, wherever they were written, to a run; with a simulated cluster behind it when no target is named."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize import demo
from gpusize.config import (
    INPUT_OPTIONS,
    Kind,
    dataset_from_options,
    load_config,
    load_from_options,
    target_from_options,
)
from gpusize.dataset import Dataset
from gpusize.errors import UsageError
from gpusize.result import as_slos
from gpusize.runner import RunRequest
from gpusize.simulate import SimulatedCluster
from gpusize.textio import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpusize.target import Target

__all__ = ["RUN_OPTIONS", "Assembled", "assembled", "labels_of", "read_options"]

RUN_OPTIONS: Final[dict[str, Kind]] = {
    **INPUT_OPTIONS,
    "users": "number",
    "slo": "texts",
    "out": "text",
    "label": "pairs",
    "append": "flag",
    "strict": "flag",
    "plots": "flag",
    "quiet": "flag",
    "json": "flag",
}
"""Every option of ``gpusize run`` that a file may hold, with the kind of its value."""

_LOAD_STOPS: Final = ("passes", "count", "duration")


class Assembled:
    """A run ready to go: the request, the address and what the user should know before it."""

    def __init__(self, request: RunRequest, notes: Sequence[str]) -> None:
        self.request = request
        self.notes = list(notes)


def read_options(
    file: Path | None, given: Mapping[str, Any], resume: Path | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Options of a file, with those given on the command line over them.

    Args:
        file: TOML, YAML or JSON, or None.
        given: options of the command line; None stands for not given.
        resume: a run folder, whose options are those of the run to go on with.

    Returns:
        The options, and what the user should know about the file.

    Raises:
        ConfigError: the file is broken, or holds what the command does not know.
    """
    options: dict[str, Any] = {}
    notes: list[str] = []
    if resume is not None:
        if not (resume / "run.json").is_file():
            raise UsageError("there is no run to be resumed", str(resume), "name the folder that holds its run.json")
        # The note that a run is repeated would mislead here: it is gone on with.
        options |= load_config(resume, RUN_OPTIONS).options
    if file is not None:
        config = load_config(file, RUN_OPTIONS)
        options |= config.options
        notes += config.notes
    mine = {name: value for name, value in given.items() if value is not None}
    if "concurrencies" in mine or "rates" in mine:
        for name in ("concurrencies", "rates"):
            options.pop(name, None)
    if any(name in mine for name in _LOAD_STOPS):
        for name in _LOAD_STOPS:
            options.pop(name, None)
    if "prompt" in mine or "dataset" in mine:
        for name in ("prompt", "dataset", "dataset_key", "dataset_format"):
            options.pop(name, None)
    return {**options, **mine}, notes


@contextlib.contextmanager
def assembled(
    options: Mapping[str, Any], *, command: Sequence[str] = (), resume: Path | None = None
) -> Iterator[Assembled]:
    """A run from options; without an address a simulated cluster is up while the block runs.

    Raises:
        UsageError: options that cannot be meant, or nothing to send.
        DatasetError: the dataset cannot be read.
        EnvironmentLacks: the simulated cluster cannot be started.
    """
    if options.get("url") is not None:
        target = _target(options)
        yield _assemble(target, _dataset(options, target), options, command, resume, None)
        return
    chosen = _demo_options(options)
    # What cannot be meant is refused before the cluster is started.
    load_from_options(chosen)
    dataset = dataset_from_options(chosen) or demo.prompts()
    with SimulatedCluster({**demo.CLUSTER, **_cluster_options(options)}) as cluster:
        served = {"url": cluster.url, "model": cluster.config["model"], "gpus": cluster.config["gpus"]}
        target = _target({**chosen, **served})
        yield _assemble(target, dataset, chosen, command, resume, cluster)


def _target(options: Mapping[str, Any]) -> Target:
    target = target_from_options(options)
    if target is None:
        raise UsageError("there is no address", "url", "give --url")
    return target


def _cluster_options(options: Mapping[str, Any]) -> dict[str, Any]:
    wanted = {"gpus": options.get("gpus"), "model": options.get("model")}
    return {name: value for name, value in wanted.items() if value is not None}


def _demo_options(options: Mapping[str, Any]) -> dict[str, Any]:
    chosen = dict(demo.OPTIONS)
    if options.get("rates") is not None or options.get("concurrencies") is not None:
        chosen.pop("concurrencies")
    if any(options.get(name) is not None for name in _LOAD_STOPS):
        chosen.pop("duration")
    if options.get("rates") is not None:
        # Users are requests in flight: a load by rates cannot be asked for them, unless the user insists.
        chosen.pop("users")
    return {**chosen, **options}


def _dataset(options: Mapping[str, Any], target: Target) -> Dataset:
    found = dataset_from_options(options)
    if found is not None:
        return found
    if target.method in ("GET", "HEAD", "OPTIONS", "DELETE"):
        return Dataset.from_rows([{}], key=".", source="no body")
    raise UsageError("there is nothing to send", "dataset", "give --dataset FILE or --prompt TEXT")


def _assemble(
    target: Target,
    dataset: Dataset,
    options: Mapping[str, Any],
    command: Sequence[str],
    resume: Path | None,
    cluster: SimulatedCluster | None,
) -> Assembled:
    request = RunRequest(
        target=target,
        dataset=dataset,
        load=load_from_options(options),
        slos=as_slos(_texts(options.get("slo"))),
        users=options.get("users"),
        out=Path(options.get("out") or "runs"),
        labels=labels_of(options.get("label")),
        append=bool(options.get("append")),
        resume=resume,
        cluster=cluster,
        command=command,
    )
    return Assembled(request, [*target.notes(), *dataset.notes])


def _texts(value: str | Sequence[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def labels_of(value: Mapping[str, Any] | str | Sequence[str] | None) -> dict[str, str]:
    """Labels from a table or from texts such as ``gpu=H200``.

    Raises:
        UsageError: a text without a key or without ``=``.
    """
    if value is None:
        return {}
    if not isinstance(value, str) and hasattr(value, "items"):
        return {str(key): str(text) for key, text in value.items()}
    labels = {}
    for each in _texts(value):
        key, equals, text = each.partition("=")
        if not equals or not key.strip():
            raise UsageError(f'"{shown(each)}" is not a label', "label", "write it as key=value")
        labels[key.strip()] = text.strip()
    return labels
