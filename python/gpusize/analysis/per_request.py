"""What a request takes of the machines behind it: energy, time of GPUs, time of CPU cores.

Each is what was drawn or held per second over the requests (or output tokens) answered per second, of one level:

    J / request = W / (requests/s)        GPU-s / request = GPUs / (requests/s)

Power and CPU time are those of the whole visit, as ``level.json`` has them, rates those of its steady window. A figure
that not everything told of is none: the energy of two GPUs of four is not the energy of a request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpusize.analysis.throughput import Throughput, rates_of, responses

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData

__all__ = [
    "cores_used",
    "cpu_time_per_request",
    "energy_per_output_token",
    "energy_per_request",
    "gpu_time_per_output_token",
    "gpu_time_per_request",
    "gpus_that_told",
    "power_w",
]

Rows = Sequence[Mapping[str, Any]]


def energy_per_request(level: LevelData) -> float | None:
    """Joules of all GPUs per request that was answered; None where not every GPU told, or nothing was answered."""
    return _over(level, power_w, _requests)


def energy_per_output_token(level: LevelData) -> float | None:
    """Joules of all GPUs per output token, by the tokens of the records; likewise None."""
    return _over(level, power_w, _tokens)


def gpu_time_per_request(level: LevelData) -> float | None:
    """GPU-seconds held per request that was answered, busy or not; None where nobody said how many GPUs there were."""
    return _over(level, lambda visit: float(visit.gpus) or None, _requests)


def gpu_time_per_output_token(level: LevelData) -> float | None:
    """GPU-seconds held per output token, by the tokens of the records; likewise None."""
    return _over(level, lambda visit: float(visit.gpus) or None, _tokens)


def cpu_time_per_request(level: LevelData) -> float | None:
    """CPU-seconds that the sampled containers, processes and cgroups used per request; None where none was sampled."""
    return _over(level, cores_used, _requests)


def power_w(visit: LevelData) -> float | None:
    """What all GPUs behind the target drew together over a visit, W, by their energy counters where they have some.

    None where their number is known and more or fewer GPUs told of themselves: of fewer it would be a part of the
    energy, of more some would be other people's.
    """
    told = _by_gpu(visit)
    if not told or (visit.gpus and len(told) != visit.gpus):
        return None
    return sum(told.values())


def gpus_that_told(visit: LevelData) -> int:
    """How many GPUs told of their energy or power in a visit."""
    return len(_by_gpu(visit))


def _by_gpu(visit: LevelData) -> dict[str, float]:
    """Watts by GPU: from its counter, else from its power. A report that has one figure alone tells of one GPU."""
    rows: Rows = visit.meta.get("server") or ()
    found: dict[str, float] = {}
    together: dict[str, float] = {}
    for metric, field in (("gpu_energy", "rate"), ("gpu_power", "mean")):
        for row in rows:
            if row["metric"] == metric and row.get(field) is not None:
                by = together if row["labels"] is None else found
                by.setdefault(str(row["labels"]), float(row[field]))
    return found or together


def cores_used(visit: LevelData) -> float | None:
    """CPU cores that all sampled sources used together, mean over a visit; None where none was, or one does not say."""
    rows: Rows = visit.meta.get("resources") or ()
    cores = [float(told) for row in rows if (told := row.get("cpu_mean_cores")) is not None]
    return sum(cores) if cores and len(cores) == len(rows) else None


def _requests(rates: Throughput) -> float | None:
    return rates.achieved


def _tokens(rates: Throughput) -> float | None:
    return rates.tokens_out


def _over(
    level: LevelData, drawn: Callable[[LevelData], float | None], done: Callable[[Throughput], float | None]
) -> float | None:
    """What was drawn per second over what was done per second; of pooled visits the sums of both, by their time."""
    visits = level.visits()
    above = below = 0.0
    for visit in visits:
        much, rate = drawn(visit), done(rates_of(visit))
        if much is None or not rate:
            return None
        length_s = responses(visit).length_s if len(visits) > 1 else 1.0
        above += much * length_s
        below += rate * length_s
    return above / below if below > 0 and above > 0 else None
