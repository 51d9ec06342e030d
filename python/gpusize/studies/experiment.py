"""What an experiment on an autoscaler is: a load, the series to keep, and what the result is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpusize.base.documents import Document, read_document
from gpusize.base.errors import ConfigError, UsageError
from gpusize.base.text import did_you_mean, shown
from gpusize.base.units import as_duration_s
from gpusize.observe.series.presets import definitions
from gpusize.studies.run_options import check_run, checked_options

__all__ = ["Experiment", "read_experiment"]

_KEYS: Final = ("run", "presets", "series", "needed", "gpus_per_replica", "gpu_hour_price", "window", "margin", "step")
_OURS: Final = ("append", "strict", "json", "quiet")


@dataclass(frozen=True)
class Experiment:
    """An experiment's file.

    Attributes:
        source: its path.
        run: options of ``gpusize run``: target, load, SLOs and the Prometheus server.
        presets: series to keep, by `gpusize.observe.series.presets.PRESETS`.
        series: the user's own, ``NAME=PROMQL`` each.
        needed: runs that say how many replicas are needed at which load; empty: the run itself.
        gpus_per_replica: GPUs of one replica.
        gpu_hour_price: as ``2.5 EUR``; None for no cost.
        window_s: length of the windows by which it is judged.
        margin_s: series are kept from so long before the load until so long after it.
        step_s: between the times at which PromQL expressions are evaluated.
    """

    source: str
    run: Mapping[str, Any]
    presets: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    needed: tuple[Path, ...] = ()
    gpus_per_replica: int = 1
    gpu_hour_price: str | None = None
    window_s: float = 60.0
    margin_s: float = 60.0
    step_s: float = 15.0
    document: Document = field(default_factory=lambda: Document("experiment", {}), compare=False, repr=False)


def read_experiment(path: str | Path) -> Experiment:
    """Read an experiment: YAML, TOML or JSON.

    Raises:
        ConfigError: unreadable, broken or invalid, with line and column.
    """
    document = read_document(str(path))
    values = {str(key).replace("-", "_"): value for key, value in document.values.items() if value is not None}
    places = {str(key).replace("-", "_"): document.where(str(key)) for key in document.values}
    for name in values:
        if name not in _KEYS:
            todo = did_you_mean(name, _KEYS, f"known are {', '.join(_KEYS)}")
            raise ConfigError(f'an experiment has no "{shown(name)}"', places[name], todo)
    run = values.get("run")
    if not isinstance(run, Mapping) or not run:
        raise ConfigError(
            "there is nothing to run", places.get("run", str(path)), "give options of gpusize run in run:"
        )
    options = checked_options(run, document, "run", refused=_OURS, whose="an experiment")
    if not options.get("prometheus"):
        todo = "give prometheus: URL in run, and prometheus-match or a token where they are needed"
        raise ConfigError("no Prometheus server is named", document.where("run"), todo)
    if not options.get("slo"):
        raise ConfigError("there is no SLO to judge by", document.where("run"), "give slo in run")
    check_run(options, document, "run")
    experiment = Experiment(
        source=str(path),
        run=options,
        presets=_texts(values, "presets", places),
        series=_series(values, places),
        needed=tuple(Path(str(path)).parent / each for each in _texts(values, "needed", places)),
        gpus_per_replica=_whole(values, "gpus_per_replica", places),
        gpu_hour_price=None if "gpu_hour_price" not in values else str(values["gpu_hour_price"]),
        **{
            f"{name}_s": _seconds(values[name], places[name]) for name in ("window", "margin", "step") if name in values
        },
        document=document,
    )
    _check(experiment, places)
    return experiment


def _check(experiment: Experiment, places: Mapping[str, str]) -> None:
    """What only those who use it can refuse, before any load is sent."""
    from gpusize.estimate.plan.price import parse_price

    for name, check in (
        ("presets", lambda: definitions(experiment.presets, experiment.series)),
        ("gpu_hour_price", lambda: experiment.gpu_hour_price and parse_price(experiment.gpu_hour_price)),
    ):
        try:
            check()
        except UsageError as problem:
            place = places.get("series" if (problem.where or "").startswith("series") else name, experiment.source)
            raise ConfigError(problem.what, place, problem.todo) from None
    for each in experiment.needed:
        if not each.exists():
            raise ConfigError(f"there is no {each}", places["needed"], "name run folders, relative to this file")


def _texts(values: Mapping[str, Any], name: str, places: Mapping[str, str]) -> tuple[str, ...]:
    value = values.get(name, [])
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not all(isinstance(each, str) and each.strip() for each in texts):
        raise ConfigError(f'"{name}" is {shown(value)}', places[name], "write a text, or a list of texts")
    return tuple(texts)


def _series(values: Mapping[str, Any], places: Mapping[str, str]) -> tuple[str, ...]:
    value = values.get("series", {})
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
        raise ConfigError(f'"series" is {shown(value)}', places["series"], "write NAME: PromQL, one on each line")
    return tuple(f"{name}={query}" for name, query in value.items())


def _whole(values: Mapping[str, Any], name: str, places: Mapping[str, str]) -> int:
    value = values.get(name, 1)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f'"{name}" is {shown(value)}', places[name], "give a whole number from 1")
    return value


def _seconds(value: Any, place: str) -> float:
    try:
        return as_duration_s(value)
    except UsageError as problem:
        raise ConfigError(problem.what, place, problem.todo) from None
