"""The observers of this package: server metrics beside the load, and the ways into a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import EnvironmentLacks, TargetError
from gpusize.base.files import storing, write_frame
from gpusize.engine.session import core, monotonic_ns
from gpusize.observe.kubernetes.port_forward import KubeForward
from gpusize.observe.metrics.buffer import empty_samples
from gpusize.observe.metrics.kserve_statistics import StatisticsSource, model_stats
from gpusize.observe.metrics.prometheus_pull import ClockPair, PrometheusServer, wall_from_mono
from gpusize.observe.metrics.reading import SampleSource, SourceFailed
from gpusize.observe.metrics.sampler import Sampler
from gpusize.observe.metrics.summarise import summarise
from gpusize.records.samples import value_of
from gpusize.records.schema import scan_stored

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Forwards", "Planned", "ServerMetrics"]

PART_ROWS: Final = 1 << 20
BOUNDARY_WAIT_S: Final = 0.5
LEVEL_WAIT_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Planned:
    """A source that is to be sampled.

    Attributes:
        source: the source.
        asked: what the user named it by, such as ``--metrics-url``; None when it was guessed, and is dropped with a
            note where it cannot be had.
        lacks: the error to raise when it was asked for and cannot be had.
    """

    source: SampleSource
    asked: str | None = None
    lacks: type[TargetError | EnvironmentLacks] = TargetError


class ServerMetrics:
    """Samples servers and GPUs while a run goes on, stores the samples with each level and sums them up.

    Args:
        planned: what to sample.
        prometheus: a Prometheus server to pull from at the end of each level.
        interval_s: time between two readings.
        clock: the engine's clock.

    Attributes:
        notes: what the user should know.
    """

    def __init__(
        self,
        planned: Sequence[Planned] = (),
        *,
        prometheus: PrometheusServer | None = None,
        interval_s: float = 1.0,
        clock: Callable[[], int] = monotonic_ns,
    ) -> None:
        self.notes: list[str] = []
        self._planned = list(planned)
        self._prometheus = prometheus
        self._interval_s = interval_s
        self._pairs: list[ClockPair] = []
        self._clock = clock
        self._samplers: list[Sampler] = []
        self._failures: dict[str, int] = {}
        self._missed: dict[str, int] = {}
        self._unread: list[str] = []

    def start(self) -> None:
        """Open every source and begin to read.

        Raises:
            TargetError: an address that the user named cannot be read.
            EnvironmentLacks: local GPUs were asked for, and there are none.
        """
        self._check_prometheus()
        for planned in self._planned:
            try:
                planned.source.open()
            except SourceFailed as problem:
                planned.source.close()
                self._refused(planned, str(problem))
                continue
            sampler = Sampler(planned.source, self._interval_s, self._clock)
            self._samplers.append(sampler)
            sampler.start()
        for sampler in self._samplers:
            self._note(*sampler.source.notes())

    def _check_prometheus(self) -> None:
        if self._prometheus is None:
            return
        self._pairs.append(core().clock_pair())
        self._note(*self._prometheus.notes())
        try:
            self._prometheus.check()
        except SourceFailed as problem:
            # It was named, and a run without it would not be the one that was asked for.
            todo = "correct --prometheus, its authority (--prometheus-cacert) or token (--prometheus-token-env)"
            raise TargetError(f"it does not answer: {problem}", self._prometheus.name, todo) from None

    def _refused(self, planned: Planned, reason: str) -> None:
        if planned.asked is not None:
            todo = f"correct {planned.asked}, or leave it out"
            raise planned.lacks(f"cannot be sampled: {reason}", planned.source.name, todo)
        said = planned.source.notes()
        self._note(*(said or [f"not sampled: {planned.source.name} ({reason})"]))

    def boundary(self) -> None:
        """Have every source read now, and wait for it for a moment."""
        self._read_now(BOUNDARY_WAIT_S)

    def _read_now(self, timeout_s: float) -> None:
        until_ns = self._clock() + round(timeout_s * 1e9)
        asked = [(sampler, sampler.ask()) for sampler in self._samplers]
        for sampler, number in asked:
            sampler.wait(number, max(0.0, (until_ns - self._clock()) / 1e9))

    def level(self, folder: Path, start_ns: int, end_ns: int) -> dict[str, Any]:
        """Write ``samples/`` and sum the level up.

        Returns:
            ``server``: rows as `summarise` makes them; ``sampling``: how the sampling of each source went, counted from
            the start of the run; ``models``: what each model did by the server's statistics, where they are read;
            ``alerts``. Empty when nothing is sampled.

        Raises:
            StoreError: the samples cannot be written.
        """
        if not self._samplers and self._prometheus is None:
            return {}
        if any((sampler.buffer.last_ns() or 0) < end_ns for sampler in self._samplers):
            # Counters need a value after the end of the level.
            self._read_now(LEVEL_WAIT_S)
        samples = self._samples(start_ns, end_ns)
        _write_samples(folder / "samples", samples)
        rows = summarise(samples.lazy(), start_ns, end_ns)
        if value_of(rows, "gpu_energy", "rate") is not None and value_of(rows, "tokens_out", "rate") is None:
            rows = summarise(samples.lazy(), start_ns, end_ns, tokens_out=_tokens_out(folder))
        if value_of(rows, "gpu_utilization") is None:
            self._note(*_without_gpus(samples))
        sampling = [sampler.facts() for sampler in self._samplers]
        if self._prometheus is not None:
            sampling.append(self._prometheus.facts())
        facts: dict[str, Any] = {"server": rows, "sampling": sampling}
        statistics = [each.source.name for each in self._samplers if isinstance(each.source, StatisticsSource)]
        if statistics:
            facts["models"] = model_stats(samples, statistics, start_ns, end_ns)
        return {**facts, "alerts": self._alerts()}

    def _samples(self, start_ns: int, end_ns: int) -> pl.DataFrame:
        import polars as pl

        frames = [sampler.buffer.take(start_ns) for sampler in self._samplers]
        if self._prometheus is not None:
            self._pairs.append(core().clock_pair())
            try:
                frames.append(self._prometheus.pull(start_ns, end_ns, self._wall_ns))
            except SourceFailed as problem:
                self._note(f"{self._prometheus.name}: {problem}")
                self._unread.append(f"{self._prometheus.name}: no data for this level: {problem}")
        return pl.concat(frames or [empty_samples()]).sort("t_ns", maintain_order=True)

    def _wall_ns(self, mono_ns: int) -> int:
        return wall_from_mono(self._pairs, mono_ns)

    def _alerts(self) -> list[str]:
        alerts, self._unread = self._unread, []
        for sampler in self._samplers:
            name = sampler.source.name
            failed = sampler.failures - self._failures.get(name, 0)
            missed = sampler.missed - self._missed.get(name, 0)
            self._failures[name], self._missed[name] = sampler.failures, sampler.missed
            if failed:
                alerts.append(f"{name}: {failed} readings failed, the last with: {sampler.last_failure}")
            if missed:
                alerts.append(f"{name}: {missed} readings were left out, as earlier ones took too long")
        return alerts

    def stop(self) -> None:
        """End all reading; safe to call twice."""
        for sampler in self._samplers:
            sampler.ask_to_stop()
        for sampler in self._samplers:
            sampler.stop()
            self._note(*sampler.source.notes())
        for planned in self._planned:
            planned.source.close()

    def _note(self, *texts: str) -> None:
        self.notes += [text for text in dict.fromkeys(texts) if text not in self.notes]


def _without_gpus(samples: pl.DataFrame) -> list[str]:
    """A note for each Triton whose page has no GPUs on it."""
    import polars as pl

    tritons = samples.filter(pl.col("metric") == "nv_inference_count")["source"].unique().sort()
    why = "it has none, they are split (MIG), or another DCGM agent runs on that host"
    return [f"{source}: Triton shows no GPU there: {why}" for source in tritons]


def _write_samples(folder: Path, samples: pl.DataFrame) -> None:
    """Write ``part-*.parquet``, each of at most `PART_ROWS` rows."""
    with storing(folder):
        folder.mkdir(exist_ok=True)
    for number, part in enumerate(samples.iter_slices(PART_ROWS)):
        write_frame(folder / f"part-{number:05}.parquet", part)


def _tokens_out(folder: Path) -> float | None:
    """Tokens generated in a level, by its records; None when they do not say."""
    import polars as pl

    parts = sorted((folder / "records").glob("part-*.parquet"))
    if not parts:
        return None
    with storing(folder):
        total = scan_stored(parts, ["tokens_out"]).select(pl.col("tokens_out").cast(pl.Int64).sum()).collect().item()
    return float(total) or None


class Forwards:
    """Watches the ways into a cluster: starts those that do not run yet, and marks the levels in which one was down.

    Args:
        forwards: they are stopped with the run.
    """

    def __init__(self, forwards: Sequence[KubeForward]) -> None:
        self.notes: list[str] = []
        self._forwards = list(forwards)

    def start(self) -> None:
        """Start those that do not run.

        Raises:
            TargetError: one does not come up.
        """
        for forward in self._forwards:
            forward.start()
            if forward.address.kind == "service":
                self.notes.append(
                    f"{forward.address}: kubectl forwards to one pod of the service, through the cluster's API server"
                )

    def boundary(self) -> None:
        """Nothing is to be read."""

    def level(self, folder: Path, start_ns: int, end_ns: int) -> dict[str, Any]:  # noqa: ARG002 -- it writes no file
        """When a forward was down in this level.

        Returns:
            ``forward_down``: intervals in ns on the engine's clock, and ``alerts``; empty when none was down.
        """
        down: list[list[int]] = []
        alerts = []
        for forward in self._forwards:
            hit = [(max(a, start_ns), min(b, end_ns)) for a, b in forward.down() if a <= end_ns and b >= start_ns]
            if hit:
                down += [[a, b] for a, b in hit]
                lost_s = sum(b - a for a, b in hit) / 1e9
                what = f"the connection was down {len(hit)} times, {lost_s:.1f} s in all"
                alerts.append(f"{forward.address}: {what}; requests then failed for that reason")
        return {"forward_down": sorted(down), "alerts": alerts} if down else {}

    def stop(self) -> None:
        """Stop all of them."""
        for forward in self._forwards:
            forward.stop()
