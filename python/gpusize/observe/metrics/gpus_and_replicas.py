"""Who tells of a quantity: the GPUs and replicas behind the series, each once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpusize.observe.metrics.known_series import GPU_LABELS, MEANINGS, Meaning, Rule
from gpusize.observe.metrics.prometheus_text import canonical_labels, parse_labels

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["PROMETHEUS", "STATISTICS", "Entity", "Series", "entities_of", "known_series"]

STATISTICS: Final = "kserve "
"""Beginning of the names of sources that are a server's statistics calls."""

PROMETHEUS: Final = "prometheus "
"""Beginning of the names of sources that are Prometheus servers."""

_OTHERS: Final = (STATISTICS, PROMETHEUS)
"""Asked second and last: a server's own page, or the driver, goes before them."""

_HOW_IT_ENDED: Final = frozenset({"finished_reason", "reason", "status"})
_MISSING: Final = 9e18
"""Some exporters show the largest integers for what a GPU does not have."""


@dataclass(frozen=True, slots=True)
class Series:
    """One stored series: labels, times in ns (ascending) and values, both of shape (n,)."""

    source: str
    labels: Mapping[str, str]
    t: NDArray[np.int64]
    v: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Entity:
    """A GPU or a replica, as one source tells of it.

    Attributes:
        source: who tells.
        labels: what tells it from others, in canonical form.
        rule: how that source says it.
        above: its series; of a ratio, those above.
        below: of a ratio, those below.
    """

    source: str
    labels: str
    rule: Rule
    above: Sequence[Series]
    below: Sequence[Series] = ()


def known_series(samples: pl.LazyFrame) -> dict[str, list[Series]]:
    """The series that have a meaning, by name; values that are no numbers are left out."""
    import numpy as np
    import polars as pl

    rules = [rule for meaning in MEANINGS for rule in meaning.rules]
    written = [series for rule in rules for series in (rule.series, rule.below) if series is not None]
    wanted = sorted({name for series in written for name in _names(series)})
    value = pl.col("value")
    kept = (
        samples.filter(pl.col("metric").is_in(wanted) & value.is_finite() & (value.abs() < _MISSING))
        .sort("t_ns", maintain_order=True)
        .collect()
        .partition_by("metric", "source", "labels", maintain_order=True, as_dict=True)
    )
    found: dict[str, list[Series]] = {}
    for (metric, source, labels), part in kept.items():
        t, v = part["t_ns"].to_numpy().astype(np.int64), part["value"].to_numpy().astype(np.float64)
        found.setdefault(str(metric), []).append(Series(str(source), parse_labels(str(labels)) or {}, t, v))
    return found


def entities_of(meaning: Meaning, found: Mapping[str, Sequence[Series]]) -> list[Entity]:
    """The GPUs or replicas that are told of, by the sources nearest to them.

    Each source speaks by the first of the meaning's rules whose series move, or else by the first for which it has
    data; a GPU that several sources tell of counts once.
    """
    told = [entity for rule in meaning.rules for entity in _by_rule(meaning, rule, found)]
    rules: dict[str, Rule] = {}
    # A page may have the series of two servers, as Triton's with vLLM inside. Both count a request that went through
    # both, so that they are never added; the one that was not in its way stands still.
    for entity in sorted(told, key=lambda each: not _moves(meaning, each)):
        rules.setdefault(entity.source, entity.rule)
    told = [entity for entity in told if rules[entity.source] is entity.rule]
    nearest = min((_distance(entity.source) for entity in told), default=0)
    chosen: dict[object, Entity] = {}
    for entity in told:
        if _distance(entity.source) == nearest:
            alone = meaning.gpu and _is_uuid(entity.labels)
            chosen.setdefault(entity.labels if alone else (entity.source, entity.labels), entity)
    return list(chosen.values())


def _moves(meaning: Meaning, entity: Entity) -> bool:
    """Whether there is more to it than a counter that stands still, or a gauge at zero."""
    series = entity.below or entity.above
    return any(bool((each.v != (0.0 if meaning.how == "gauge" else each.v[0])).any()) for each in series)


def _distance(source: str) -> int:
    return next((place for place, start in enumerate(_OTHERS, start=1) if source.startswith(start)), 0)


def _is_uuid(labels: str) -> bool:
    return 'gpu="GPU-' in labels or 'gpu="MIG-' in labels


def _by_rule(meaning: Meaning, rule: Rule, found: Mapping[str, Sequence[Series]]) -> list[Entity]:
    above = _grouped(meaning, _look_up(rule.series, found))
    if rule.below is None:
        return [Entity(source, labels, rule, series) for (source, labels), series in above.items()]
    below = _grouped(meaning, _look_up(rule.below, found))
    return [
        Entity(source, labels, rule, series, below[source, labels])
        for (source, labels), series in above.items()
        if (source, labels) in below
    ]


def _names(series: str) -> tuple[str, str]:
    return series, series.removesuffix("_total") if series.endswith("_total") else f"{series}_total"


def _look_up(series: str, found: Mapping[str, Sequence[Series]]) -> list[Series]:
    """The series of that name, and of its variant only from sources that do not have the name itself."""
    name, variant = _names(series)
    direct = list(found.get(name, ()))
    sources = {each.source for each in direct}
    return direct + [each for each in found.get(variant, ()) if each.source not in sources]


def _grouped(meaning: Meaning, series: Sequence[Series]) -> dict[tuple[str, str], list[Series]]:
    groups: dict[tuple[str, str], list[Series]] = {}
    for each in series:
        labels = _gpu_labels(each.labels) if meaning.gpu else _replica_labels(meaning, each.labels)
        groups.setdefault((each.source, labels), []).append(each)
    # A GPU's series that differ in other labels (the pod that used it) tell of one thing at different times.
    return {key: [_joined(group)] if meaning.gpu else group for key, group in groups.items()}


def _gpu_labels(labels: Mapping[str, str]) -> str:
    name = next((labels[label] for label in GPU_LABELS if label in labels), None)
    if name is None:
        return canonical_labels(labels)
    parts = {"gpu": name, **{label: labels[label] for label in ("GPU_I_ID",) if label in labels}}
    return canonical_labels(parts)


def _replica_labels(meaning: Meaning, labels: Mapping[str, str]) -> str:
    if meaning.how == "gauge":
        return canonical_labels(labels)
    return canonical_labels({name: text for name, text in labels.items() if name not in _HOW_IT_ENDED})


def _joined(group: Sequence[Series]) -> Series:
    import numpy as np

    if len(group) == 1:
        return group[0]
    t = np.concatenate([each.t for each in group])
    v: NDArray[Any] = np.concatenate([each.v for each in group])
    order = np.argsort(t, kind="stable")
    return Series(group[0].source, group[0].labels, t[order], v[order])
