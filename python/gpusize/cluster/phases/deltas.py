"""How long each phase of each workload took: an interval, its middle, and by which sources; or how long so far."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from gpusize.cluster.phases.known_phases import PHASES, POD_PHASES
from gpusize.cluster.phases.timelines import POD, UNTOLD
from gpusize.cluster.phases.workloads import CLOCKS, LOST

if TYPE_CHECKING:
    import polars as pl

    from gpusize.cluster.phases.known_phases import Phase

__all__ = ["CENSORED", "DONE", "IMPOSSIBLE", "phases_schema", "pod_deltas", "wide", "workload_deltas"]

DONE: Final = "done"
CENSORED: Final = "censored"
IMPOSSIBLE: Final = "impossible"

_LIFE: Final = (
    "workload_created",
    "job_created",
    "created",
    "admitted",
    "scheduled",
    "bound",
    "initialized",
    "ready_to_start",
    "started",
    "running",
    "containers_ready",
    "ready",
    "completed",
)
_PLACES: Final = {moment: place for place, moment in enumerate(_LIFE)}


def phases_schema() -> dict[str, pl.DataType]:
    """Columns of ``phases.parquet`` and ``pods.parquet`` and their types.

    ``workload``; ``unit``: the pod's name, of phases of workloads the workload's. ``phase``: its name. ``state``:
    ``done``; ``censored``: not by the last look; ``impossible``: it ended before it began, by more than the sources can
    be wrong. ``value_ns``: the best guess; of a censored one how long it had lasted at the last look. ``never``: of a
    censored one, whether it will never end, as what was refused or has failed.
    ``lo_ns``, ``hi_ns``: the truth lies between these. ``clock``: of the timeline. ``method``: the sources of both
    ends. ``submitted_ns``: of the workload, by our clock where it is known.
    """
    import polars as pl

    return {
        "workload": pl.String(),
        "unit": pl.String(),
        "phase": pl.String(),
        "state": pl.String(),
        "never": pl.Boolean(),
        "value_ns": pl.Float64(),
        "lo_ns": pl.Float64(),
        "hi_ns": pl.Float64(),
        "clock": pl.String(),
        "method": pl.String(),
        "submitted_ns": pl.Int64(),
    }


def wide(moments: pl.DataFrame, index: tuple[str, ...]) -> pl.DataFrame:
    """One row for each workload (or pod), with ``CLOCK.MOMENT.lo``, ``.at``, ``.hi``, ``.source`` and ``.moved``."""
    import polars as pl

    key = pl.concat_str("clock", "moment", separator=".")
    fields = ("lo", "at", "hi", "source", "moved")
    if moments.is_empty():
        return moments.select(index)
    made = moments.with_columns(key.alias("key")).pivot("key", index=index, values=fields, aggregate_function="first")
    parts = {f"{field}_": field for field in fields}
    renamed = {}
    for name in made.columns:
        field = next((each for start, each in parts.items() if name.startswith(start)), None)
        if name not in index and field is not None:
            renamed[name] = f"{name.removeprefix(f'{field}_')}.{field}"
    return made.rename(renamed)


def workload_deltas(
    table: pl.DataFrame,
    looks: Mapping[str, int | None],
    without: Mapping[str, Iterable[str]],
    never: Collection[str] = (),
) -> pl.DataFrame:
    """The phases of all workloads, of `phases_schema`.

    A workload that began a phase and had not ended it at the last look has a censored row, whatever became of it: one
    that was refused or failed will never be ready, and must not make the others look fast.

    Args:
        table: of `wide`, with ``workload`` and ``submitted_ns``.
        looks: when the cluster was last looked at, by clock.
        without: by phase, workloads that have none: a job that is submitted is made by nobody, and a single pod has no
            stragglers.
        never: workloads that will come to no end that they have not come to.
    """
    import polars as pl

    made = []
    for phase in PHASES.values():
        rows = table.filter(~pl.col("workload").is_in(list(without.get(phase.name, ()))))
        made.append(_deltas(rows, phase, looks, pl.col("workload"), pl.col("workload").is_in(list(never))))
    return pl.concat(made)


def pod_deltas(objects: pl.DataFrame, looks: Mapping[str, int | None], submitted: pl.DataFrame) -> pl.DataFrame:
    """The phases of single pods, of `phases_schema`; pods that were replaced or deleted before count as well."""
    import polars as pl

    index = ("workload", "object", "name")
    pods = objects.filter(pl.col("kind") == POD)
    table = wide(pods.select(*index, "moment", "clock", "lo", "at", "hi", "source", "moved"), index)
    table = table.join(submitted, on="workload", how="left")
    lost = [name for clock in CLOCKS for each in LOST if (name := f"{clock}.{each}.lo") in table.columns]
    never = pl.any_horizontal(pl.col(name).is_not_null() for name in lost) if lost else pl.lit(value=False)
    made = [_deltas(table, phase, looks, pl.col("name"), never) for phase in POD_PHASES.values()]
    return pl.concat(made)


def _deltas(
    table: pl.DataFrame, phase: Phase, looks: Mapping[str, int | None], unit: pl.Expr, never: pl.Expr
) -> pl.DataFrame:
    import polars as pl

    known = set(table.columns)
    passed = _later_known(phase.end, known)
    begun = [clock for clock in CLOCKS if f"{clock}.{phase.start}.lo" in known]
    both = [clock for clock in begun if f"{clock}.{phase.end}.lo" in known]
    made = [_done(table, phase, both, unit)] if both else []
    ended = [f"{clock}.{phase.end}.lo" for clock in CLOCKS if f"{clock}.{phase.end}.lo" in known]
    # Where a later moment is known this one has been as well, and no source told of it; of nobody, if there is none.
    if phase.certain and begun and (ended or not passed):
        open_rows = table.filter(*(pl.col(name).is_null() for name in [*ended, *passed]))
        made.append(_censored(open_rows, phase, begun, looks, unit, never))
    return pl.concat(made) if made else pl.DataFrame(schema=phases_schema())


def _later_known(moment: str, columns: Collection[str]) -> list[str]:
    """Columns of moments that come after this one in every life; of a gang's last pod those of the last pod."""
    which, _, rest = moment.partition("_")
    gang = which if which in ("first", "quorum", "last") else ""
    place = _PLACES.get(rest if gang else moment)
    if place is None:
        return []
    of = {"first": ("first_", "last_", ""), "quorum": ("last_", ""), "last": ("last_", "")}
    prefixes = of.get(gang, ("first_", "last_", ""))
    later = [f"{prefix}{name}" for name, at in _PLACES.items() if at > place for prefix in prefixes]
    return [name for clock in CLOCKS for each in later if (name := f"{clock}.{each}.lo") in columns]


def _done(table: pl.DataFrame, phase: Phase, clocks: list[str], unit: pl.Expr) -> pl.DataFrame:
    """Ends that are known, on the timeline where the interval is narrowest; of equal ones where less was moved."""
    import polars as pl

    each = []
    for clock in clocks:
        start, end = f"{clock}.{phase.start}", f"{clock}.{phase.end}"
        moved = (pl.col(f"{start}.moved"), pl.col(f"{end}.moved"))
        # Of what was only found later nobody knows when it was.
        told = [pl.col(f"{side}.source") != UNTOLD for side in (start, end)]
        each.append(
            table.with_row_index("row")
            .filter(*told)
            .select(
                "workload",
                unit.alias("unit"),
                (pl.col(f"{end}.at") - pl.col(f"{start}.at")).alias("value_ns"),
                (pl.col(f"{end}.lo") - pl.col(f"{start}.hi")).alias("lo_ns"),
                (pl.col(f"{end}.hi") - pl.col(f"{start}.lo")).alias("hi_ns"),
                pl.lit(clock).alias("clock"),
                pl.concat_str(
                    *(
                        part
                        for side, was in zip((start, end), moved, strict=True)
                        for part in (
                            pl.lit("" if side == start else " to "),
                            pl.col(f"{side}.source"),
                            pl.when(was).then(pl.lit(" (moved)")).otherwise(pl.lit("")),
                        )
                    )
                ).alias("method"),
                (moved[0].cast(pl.Int8) + moved[1].cast(pl.Int8)).alias("moves"),
                "submitted_ns",
                "row",
            )
            .drop_nulls(("lo_ns", "hi_ns"))
        )
    best = (
        pl.concat(each)
        .sort(pl.col("hi_ns") - pl.col("lo_ns"), "moves")
        .group_by("row", maintain_order=True)
        .first()
        .sort("row")
    )
    impossible = (pl.col("hi_ns") < 0) if phase.causal else pl.lit(value=False)
    return best.select(
        "workload",
        "unit",
        pl.lit(phase.name).alias("phase"),
        pl.when(impossible).then(pl.lit(IMPOSSIBLE)).otherwise(pl.lit(DONE)).alias("state"),
        pl.lit(value=False).alias("never"),
        pl.col("value_ns").cast(pl.Float64),
        pl.col("lo_ns").cast(pl.Float64),
        pl.col("hi_ns").cast(pl.Float64),
        "clock",
        "method",
        "submitted_ns",
    )


def _censored(
    table: pl.DataFrame,
    phase: Phase,
    clocks: list[str],
    looks: Mapping[str, int | None],
    unit: pl.Expr,
    never: pl.Expr,
) -> pl.DataFrame:
    import polars as pl

    waited = []
    for clock in clocks:
        look = looks.get(clock)
        begun_at = pl.col(f"{clock}.{phase.start}.at").cast(pl.Float64)
        waited.append((pl.lit(look, pl.Int64) - begun_at).clip(lower_bound=0))
    value = pl.coalesce(waited)
    # On which of the two timelines makes no difference to how long it has lasted.
    by = pl.coalesce(pl.when(each.is_not_null()).then(pl.lit(name)) for name, each in zip(clocks, waited, strict=True))
    return table.select(
        "workload",
        unit.alias("unit"),
        pl.lit(phase.name).alias("phase"),
        pl.lit(CENSORED).alias("state"),
        never.alias("never"),
        value.alias("value_ns"),
        value.alias("lo_ns"),
        value.alias("hi_ns"),
        by.alias("clock"),
        pl.lit("last look").alias("method"),
        "submitted_ns",
    ).drop_nulls("value_ns")
