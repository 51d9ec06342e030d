"""What the server counted itself: Triton's statistics, read as counters, and what happened between two readings.

A request that was answered from a batch is charged the whole batch's compute time, so the sums over requests are no
busy time; ``batch_stats`` counts every execution once, and its sum is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpusize.base.text import shown
from gpusize.targets.kserve.client import KserveClient
from gpusize.targets.kserve.responses import StatsUnavailable

__all__ = ["BatchStats", "KserveStats", "ModelStats", "Reading", "between", "counters", "key"]

Reading = dict[str, float]
"""Counters by ``name{model="m",version="1"}``; times in nanoseconds."""

_DURATIONS: Final = (
    "success",
    "fail",
    "queue",
    "compute_input",
    "compute_infer",
    "compute_output",
    "cache_hit",
    "cache_miss",
)
_COMPUTE: Final = ("compute_input", "compute_infer", "compute_output")
_MOST_MODELS: Final = 1000
_MOST_BATCHES: Final = 10_000
_KEY: Final = re.compile(r"(?P<name>\w+)\{(?P<labels>.*)\}")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class BatchStats:
    """Executions of one batch size: S(b), the service time by batch size.

    Args:
        batch_size: inferences in one execution.
        executions: how many there were.
        compute_input_s: mean seconds to bring the inputs in, per execution.
        compute_infer_s: mean seconds to run the model, per execution.
        compute_output_s: mean seconds to bring the outputs out, per execution.
    """

    batch_size: int
    executions: int
    compute_input_s: float
    compute_infer_s: float
    compute_output_s: float

    @property
    def service_s(self) -> float:
        """Mean seconds that an instance was busy with one execution."""
        return self.compute_input_s + self.compute_infer_s + self.compute_output_s


@dataclass(frozen=True, slots=True)
class ModelStats:
    """What happened to one model between two readings; other clients' requests are in it.

    Args:
        model: its name.
        version: its version.
        requests: requests answered well.
        failed: requests answered with an error.
        inferences: inferences, one per element of a batch; those from the cache are not among them.
        executions: how often the model ran.
        request_s: mean seconds of a request in the server; None, as below, without any.
        queue_s: mean seconds of a request in the queue.
        compute_input_s: mean seconds that a request's batch needed to be brought in.
        compute_infer_s: mean seconds that it ran.
        compute_output_s: mean seconds that its results needed to be brought out.
        cache_hits: requests answered from the cache.
        cache_hit_s: mean seconds of such a lookup.
        cache_misses: requests not found there.
        cache_miss_s: mean seconds of such a lookup and of the insertion.
        batches: executions by batch size, ascending.
        restarted: a counter went back: the server was started anew in between, and what it counted before is lost.
    """

    model: str
    version: str
    requests: int
    failed: int
    inferences: int
    executions: int
    request_s: float | None
    queue_s: float | None
    compute_input_s: float | None
    compute_infer_s: float | None
    compute_output_s: float | None
    cache_hits: int
    cache_hit_s: float | None
    cache_misses: int
    cache_miss_s: float | None
    batches: tuple[BatchStats, ...]
    restarted: bool

    @property
    def mean_batch(self) -> float | None:
        """Inferences per execution."""
        return self.inferences / self.executions if self.executions else None

    @property
    def busy_s(self) -> float | None:
        """Seconds that the model's instances were busy together; None where the server gives no ``batch_stats``.

        Divided by the time between the readings and the number of instances it is their utilization.
        """
        return sum(each.executions * each.service_s for each in self.batches) if self.batches else None

    @property
    def execution_s(self) -> float | None:
        """Mean seconds of one execution: an instance's capacity is one execution in this time."""
        executions = sum(each.executions for each in self.batches)
        busy_s = self.busy_s
        return busy_s / executions if busy_s is not None and executions else None

    def facts(self) -> dict[str, Any]:
        """What ``level.json`` says about the model; times in seconds."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "batches"}
        derived = {"mean_batch": self.mean_batch, "busy_s": self.busy_s, "execution_s": self.execution_s}
        batches = [
            {
                "batch_size": each.batch_size,
                "executions": each.executions,
                **{f"{part}_s": getattr(each, f"{part}_s") for part in _COMPUTE},
            }
            for each in self.batches
        ]
        return {**plain, **derived, "batches": batches}


class KserveStats:
    """Reads a server's statistics, again and again.

    Args:
        client: the server.
        models: names of the models to keep; empty: all.

    Attributes:
        notes: at most one note, when the server gives no statistics.
    """

    def __init__(self, client: KserveClient, models: Iterable[str] = ()) -> None:
        self._client = client
        self._models = frozenset(models)
        self.notes: list[str] = []

    def read(self) -> Reading:
        """The counters as they stand; empty, with a note, when the server does not give them.

        Then it is not asked again.

        Raises:
            TargetError: there was no answer this time; the next one may come.
        """
        if self.notes:
            return {}
        try:
            stats = self._client.statistics()
        except StatsUnavailable as problem:
            self.notes.append(
                f"{self._client.where}: no statistics from the server, {problem}. {_advice(str(problem))}"
            )
            return {}
        return counters([one for one in stats if not self._models or one.get("name") in self._models])


def _advice(reason: str) -> str:
    plain = reason.lower()
    if "restrict" in plain or "expecting header" in plain or "403" in plain:
        return "They are restricted there: give the header that it names, or allow the statistics endpoint"
    return "Queue and compute times of the server are missing"


def counters(stats: Sequence[Mapping[str, Any]]) -> Reading:
    """Counters from Triton's ``model_stats``; what is no whole number counts as absent.

    Whole numbers may be texts, as in JSON made from a protobuf message, and zeros may be missing.
    """
    reading: Reading = {}
    for one in stats[:_MOST_MODELS]:
        labels = {"model": shown(str(one.get("name", "")), 200), "version": shown(str(one.get("version", "")), 40)}
        for name in ("inference_count", "execution_count"):
            reading[key(name, labels)] = _number(one.get(name))
        inference = _table(one.get("inference_stats"))
        for name in _DURATIONS:
            _keep(reading, name, inference.get(name), labels)
        batches = one.get("batch_stats")
        for batch in batches[:_MOST_BATCHES] if isinstance(batches, list) else ():
            size = str(int(_number(_table(batch).get("batch_size"))))
            for name in _COMPUTE:
                _keep(reading, f"batch_{name}", _table(batch).get(name), {**labels, "batch_size": size})
    return reading


def _keep(reading: Reading, name: str, duration: Any, labels: Mapping[str, str]) -> None:
    for part in ("count", "ns"):
        reading[key(f"{name}_{part}", labels)] = _number(_table(duration).get(part))


def key(name: str, labels: Mapping[str, str]) -> str:
    """Name and labels of a counter as one text, labels sorted."""
    escaped = {label: value.replace("\\", "\\\\").replace('"', '\\"') for label, value in labels.items()}
    listed = ",".join(f'{label}="{escaped[label]}"' for label in sorted(escaped))
    return f"{name}{{{listed}}}"


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float:
    try:
        return float(int(value))
    except (TypeError, ValueError, OverflowError):
        return 0.0


def between(before: Mapping[str, float], after: Mapping[str, float]) -> list[ModelStats]:
    """What each model did between two readings of `KserveStats.read`, by name and version.

    A model that the first reading lacks began in between. Where a counter went back, all of that model's counters are
    counted from zero.
    """
    models: dict[tuple[str, str], dict[tuple[str, str], tuple[float, float]]] = {}
    for text, value in after.items():
        match = _KEY.fullmatch(text)
        if match is None:
            continue
        labels = {name: re.sub(r"\\(.)", r"\1", quoted) for name, quoted in _LABEL.findall(match["labels"])}
        own = models.setdefault((labels.get("model", ""), labels.get("version", "")), {})
        own[match["name"], labels.get("batch_size", "")] = (before.get(text, 0.0), value)
    return [_model(model, version, own) for (model, version), own in sorted(models.items())]


def _model(model: str, version: str, pairs: Mapping[tuple[str, str], tuple[float, float]]) -> ModelStats:
    restarted = any(after < before for before, after in pairs.values())
    grown = {name: after if restarted else after - before for name, (before, after) in pairs.items()}

    def count(name: str, size: str = "") -> int:
        return round(grown.get((name, size), 0.0))

    def mean_s(name: str, size: str = "") -> float | None:
        many = count(f"{name}_count", size)
        return grown.get((f"{name}_ns", size), 0.0) / many / 1e9 if many else None

    sizes = sorted({int(size) for name, size in grown if size and name == "batch_compute_infer_count"})
    batches = tuple(
        BatchStats(
            size,
            count("batch_compute_infer_count", str(size)),
            *(mean_s(f"batch_{part}", str(size)) or 0.0 for part in _COMPUTE),
        )
        for size in sizes
        if count("batch_compute_infer_count", str(size))
    )
    return ModelStats(
        model=model,
        version=version,
        requests=count("success_count"),
        failed=count("fail_count"),
        inferences=count("inference_count"),
        executions=count("execution_count"),
        request_s=mean_s("success"),
        queue_s=mean_s("queue"),
        compute_input_s=mean_s("compute_input"),
        compute_infer_s=mean_s("compute_infer"),
        compute_output_s=mean_s("compute_output"),
        cache_hits=count("cache_hit_count"),
        cache_hit_s=mean_s("cache_hit"),
        cache_misses=count("cache_miss_count"),
        cache_miss_s=mean_s("cache_miss"),
        batches=batches,
        restarted=restarted,
    )
