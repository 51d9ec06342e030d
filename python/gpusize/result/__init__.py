"""What a run measured, as one object: just ended, or opened years later."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusize.analysis.read_levels import read_levels
from gpusize.analysis.slo import Slo, as_slos
from gpusize.analysis.sources import sources_of
from gpusize.analysis.unlike_replicas import unlike_replicas
from gpusize.base.errors import SloError, StoreError, UsageError
from gpusize.base.given_numbers import as_number, as_rate
from gpusize.base.numeric import within
from gpusize.base.typed import PATH, check_kinds
from gpusize.records.run_json import nature_of
from gpusize.records.store import find_runs, read_run
from gpusize.result.tables import LevelTables

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import polars as pl
    from matplotlib.figure import Figure

    from gpusize.analysis.level import LevelData
    from gpusize.estimate.certificate import Certificate
    from gpusize.estimate.methods import Estimate, Question
    from gpusize.estimate.search.result import Found
    from gpusize.estimate.truth import Truth

__all__ = ["Result", "open_run"]


def open_run(
    path: str | Path | Sequence[str | Path],
    *,
    labels: Mapping[str, str] | None = None,
    skip_damaged: bool = False,
) -> Result:
    """Open what was measured earlier.

    Args:
        path: a run folder, a folder of runs, or several of them; a run that is named twice counts once.
        labels: keep only the runs that carry all of these.
        skip_damaged: leave out levels, and of several runs those, whose files are damaged; ``damaged`` of the result
            says which. By default a damaged file is an error.

    Raises:
        StoreError: there is no run at a path, or it cannot be read.
        UsageError: no run carries the labels.
    """
    check_kinds({"path": path}, {"path": ((*PATH[0], Sequence), "a folder, or a list of them")})
    given = [path] if isinstance(path, str | Path) else list(path)
    for each in given:
        check_kinds({"path": each}, {"path": PATH})
    if not given:
        raise UsageError("no run is named", None, "give a run folder, or a folder of runs")
    # Named as the user names them, and told apart by where they really are.
    found = list({run.resolve(): run for each in given for run in find_runs(Path(each))}.values())
    damaged: list[StoreError] = []
    if skip_damaged and len(found) > 1:
        found = [run for run in found if _readable(run, damaged)]
    wanted = dict(labels or {})
    kept = [run for run in found if not wanted or _carries(run, wanted)]
    if not kept and damaged:
        raise damaged[0]
    if not kept:
        shown = ", ".join(f"{key}={value}" for key, value in wanted.items())
        raise UsageError(f"no run is labelled {shown}", ", ".join(map(str, given)), "see the labels in run.json")
    return Result(kept, skip_damaged=skip_damaged, damaged=damaged)


def _readable(run: Path, damaged: list[StoreError]) -> bool:
    try:
        read_run(run)
    except StoreError as error:
        damaged.append(error)
        return False
    return True


def _carries(run: Path, wanted: Mapping[str, str]) -> bool:
    labels = read_run(run).get("labels") or {}
    return all(labels.get(key) == value for key, value in wanted.items())


class Result(LevelTables):
    """The measurements of one run, or of several that are looked at together. Nothing here sends any load.

    Records and samples stay on disk until they are asked for.

    Args:
        paths: run folders; the first gives ``path`` and ``meta``.
        slos: SLOs that the summary judges and ``estimate`` answers for; by default those of the first run.
        users: users that ``estimate`` answers for; by default those of the first run.
        rate: requests per second that it answers for instead.
        skip_damaged: leave out levels whose files are damaged; by default they are errors.
        damaged: what was left out before.

    Attributes:
        paths: the run folders.
        cancelled: whether the user ended the run that this is the result of.
        notes: what the run had to say beside its figures, such as statistics that the server does not give.

    Raises:
        UsageError: no path is given, or a number of users or a rate is not one.
        SloError: an SLO does not follow the grammar.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        slos: Sequence[Slo | str] | Slo | str | None = None,
        users: float | None = None,
        rate: float | None = None,
        skip_damaged: bool = False,
        damaged: Sequence[StoreError] = (),
    ) -> None:
        if not paths:
            raise UsageError("a result needs a run", None, "give at least one run folder")
        self.paths = tuple(paths)
        self.cancelled = False
        self.notes: list[str] = []
        self._slos = as_slos(slos) if slos is not None else None
        self._users = users
        self._rate = rate
        self._skip_damaged = skip_damaged
        self._damaged_runs = tuple(damaged)
        self._damaged_levels: list[StoreError] = []
        self._answers: dict[tuple[str, str, frozenset[str]], list[Estimate]] = {}

    @property
    def path(self) -> Path:
        """The folder of the (first) run."""
        return self.paths[0]

    @cached_property
    def meta(self) -> dict[str, Any]:
        """The contents of ``run.json`` of the (first) run."""
        return read_run(self.path)

    @cached_property
    def slos(self) -> tuple[Slo, ...]:
        """The SLOs that are judged, in order."""
        return self._slos if self._slos is not None else self._stored_slos()

    def _stored_slos(self) -> tuple[Slo, ...]:
        """The SLOs of the first run.

        Raises:
            StoreError: its ``run.json`` holds one that does not parse.
        """
        try:
            return as_slos(self._option("slo", "slos"))
        except SloError as error:
            file = str(self.path / "run.json")
            raise StoreError(f"options.slo: {error.what}", file, "restore it from a copy, or give --slo") from None

    @property
    def rate(self) -> float | None:
        """The requests per second that are sized for, None where users are."""
        return self._rate

    @cached_property
    def users(self) -> float | None:
        """The users that are sized for, None when nobody said, or where a rate is sized for."""
        if self.rate is not None:
            return None
        asked = self._users if self._users is not None else self._option("users")
        return None if asked is None else float(asked)

    @cached_property
    def levels(self) -> tuple[LevelData, ...]:
        """Every level visit of every run, in the order of the runs and of their visits."""
        left_out: list[StoreError] = []
        damaged = left_out if self._skip_damaged else None
        found = tuple(level for path in self.paths for level in read_levels(path, damaged=damaged))
        if left_out and not found:
            raise left_out[0]
        self._damaged_levels = left_out
        return found

    @property
    def damaged(self) -> list[str]:
        """What was left out because its files are damaged, and why; empty unless that was asked for."""
        _ = self.levels
        return [str(error) for error in (*self._damaged_runs, *self._damaged_levels)]

    @cached_property
    def summary(self) -> pl.DataFrame:
        """One row per level visit; columns as in ``gpusize.analysis.summary.SUMMARY_COLUMNS``."""
        from gpusize.analysis.summary import summarize

        return summarize(self.levels, self.slos)

    @cached_property
    def sources(self) -> list[dict[str, Any]]:
        """What became of the sources of samples, by run: readings had and lost; see `analysis.sources.sources_of`."""
        found = []
        for path in self.paths:
            metas = [each.meta for each in self.levels if each.folder is not None and path in each.folder.parents]
            found += [{"run": str(read_run(path).get("run")), **each} for each in sources_of(metas)]
        return found

    @cached_property
    def unlike_replicas(self) -> list[str]:
        """What is said of runs whose replicas are not alike; see `analysis.unlike_replicas`."""
        runs: dict[str, list[LevelData]] = {}
        for level in self.levels:
            runs.setdefault(level.run, []).append(level)
        return [str(each) for levels in runs.values() if (each := unlike_replicas(levels)) is not None]

    @cached_property
    def search(self) -> Found | None:
        """What the search of the (first) run found, for the SLOs that it searched for; None of a sweep."""
        terms = self.meta.get("adaptive")
        if not terms:
            return None
        from gpusize.estimate.search.result import found_of
        from gpusize.estimate.search.terms import Adaptive

        mine = [level for level in self.levels if level.folder is not None and self.path in level.folder.parents]
        levels = [level for level in mine if level.meta.get("search")]
        users = self._option("users")
        asked = None if users is None else float(users)
        return found_of(levels, self._stored_slos(), Adaptive.of(terms, terms.get("gpus")), self._natures, asked)

    @cached_property
    def certificate(self) -> Certificate | None:
        """What `gpusize.prove` proved by the (first) run; None of other runs.

        Raises:
            StoreError: ``certificate.json`` cannot be read.
        """
        from gpusize.estimate.certificate import read_certificate

        return read_certificate(self.path)

    @property
    def _natures(self) -> list[str | None]:
        return [nature_of(target) for target in self.meta.get("targets") or []]

    @cached_property
    def truth(self) -> Truth | None:
        """What the simulated cluster would really need, by its model in virtual time; None for a real target."""
        from gpusize.estimate.search.terms import searched
        from gpusize.estimate.truth import truth_of

        config = (self.meta.get("targets") or [{}])[0].get("simulated")
        if config is None or not self.can_estimate:
            return None
        try:
            slos = searched(self.slos, self._natures)
            return truth_of(config, self.users or 1, slos, self.scan(), self._option("max_tokens"))
        except UsageError as error:
            # The options of this run were checked before it; what does not fit now was changed later.
            file, todo = str(self.path / "run.json"), "restore it from a copy, or leave this run out"
            raise StoreError(f"targets[0].simulated: {error.what}", file, todo) from None

    def scan(self) -> pl.LazyFrame:
        """The records as a LazyFrame over the files, ``outcome`` as an enum; of several runs with a column ``run``."""
        import polars as pl

        from gpusize.records.schema import empty

        frames = [level.records for level in self.levels if not level.imported]
        if len(self.paths) > 1:
            runs = [level.run for level in self.levels if not level.imported]
            frames = [f.select(pl.lit(run).alias("run"), pl.all()) for f, run in zip(frames, runs, strict=True)]
        return pl.concat(frames) if frames else empty()

    @cached_property
    def records(self) -> pl.DataFrame:
        """All records in memory, one row per attempt; see ``scan`` for more than fit there."""
        return self.scan().collect()

    def estimate(
        self,
        users: float | None = None,
        slos: Sequence[Slo | str] | Slo | str | None = None,
        method: str = "auto",
        gpus: int | None = None,
        *,
        gpus_per_replica: int = 1,
        rate: float | None = None,
        host_gpus: int | None = None,
        allow: Collection[str] = (),
        **more: Any,
    ) -> Estimate:
        """How many GPUs so many users need; the answer, or the reason why there is none.

        Args:
            users: requests in flight at all times; None for what the run was asked.
            slos: all must be met; None for those of the run.
            method: ``auto``, the default's answer, or a name in ``gpusize.estimate.methods.METHODS``.
            gpus: GPUs that were tested, where the run does not say.
            gpus_per_replica: GPUs come in multiples of it.
            rate: requests per second, instead of users; ``slope`` and ``crossing`` do not answer for it.
            host_gpus: GPUs of one host, where they come in whole hosts that share nothing.
            allow: what may differ between several runs: ``targets``, ``models``, ``dataset``.
            more: ``token_rate`` (output tokens per second, instead of users), and other fields of ``Question``, as
                ``think_s``, ``think``, ``router``, ``process``, ``headroom``.

        Raises:
            UsageError: no users or no SLO are known, no such method, or runs that cannot be compared.
        """
        if method == "all":
            raise UsageError("an estimate takes one method, not all", "method", "use estimates() for all of them")
        whole: dict[str, Any] = {"gpus_per_replica": gpus_per_replica, "rate": rate, "host_gpus": host_gpus}
        return self.estimates(users, slos, method, gpus, allow=allow, **whole, **more)[0]

    def estimates(
        self,
        users: float | None = None,
        slos: Sequence[Slo | str] | Slo | str | None = None,
        method: str = "all",
        gpus: int | None = None,
        *,
        gpus_per_replica: int = 1,
        rate: float | None = None,
        host_gpus: int | None = None,
        allow: Collection[str] = (),
        **more: Any,
    ) -> list[Estimate]:
        """As ``estimate``, one answer per method, the default's first. The same is not worked out twice.

        Args:
            users: requests in flight; None for what the run was asked for.
            slos: SLOs to meet; None for those of the run.
            method: a method's name, ``auto``, or ``all``.
            gpus: GPUs that were measured, where the run does not say.
            gpus_per_replica: GPUs of one replica of the model.
            rate: requests per second, instead of users.
            host_gpus: GPUs of one host; hosts are added whole. None where that does not matter.
            allow: what may differ between several runs.
            **more: further fields of ``Question``.

        Raises:
            UsageError: no users or no SLO are known, no such method, or runs that cannot be compared.
        """
        from gpusize.estimate.methods import estimate

        whole: dict[str, Any] = {"gpus_per_replica": gpus_per_replica, "host_gpus": host_gpus}
        question = self.question(users, slos, gpus, rate=rate, **whole, **more)
        key = (repr(question), method, frozenset(allow))
        if key not in self._answers:
            self._answers[key] = estimate(self.levels, question, method, allow=allow)
        return list(self._answers[key])

    def question(
        self,
        users: float | None = None,
        slos: Sequence[Slo | str] | Slo | str | None = None,
        gpus: int | None = None,
        *,
        gpus_per_replica: int = 1,
        rate: float | None = None,
        token_rate: float | None = None,
        host_gpus: int | None = None,
        **more: Any,
    ) -> Question:
        """What ``estimate`` answers with these arguments (more: other fields of ``Question``); raises as it does.

        Output tokens per second (``token_rate``) become requests per second by the measured length of answers.

        Args:
            users: requests in flight; None for what the run was asked for.
            slos: SLOs to meet; None for those of the run.
            gpus: GPUs that were measured, where the run does not say.
            gpus_per_replica: GPUs of one replica of the model.
            rate: requests per second, instead of users.
            token_rate: output tokens per second, instead of users.
            host_gpus: GPUs of one host; hosts are added whole. None where that does not matter.
            **more: further fields of ``Question``.

        Raises:
            UsageError: no users or no SLO are known, more than one of users, rate and token rate is given, or there is
                no such argument.
        """
        from gpusize.base.text import did_you_mean
        from gpusize.estimate.methods import Question
        from gpusize.estimate.token_rate import output_tokens

        known = [each.name for each in dataclasses.fields(Question)]
        for name in more:
            if name not in known:
                raise UsageError(f"there is no argument {name!r}", name, did_you_mean(name, known, "see Question"))
        if users is not None:
            within("users", as_number(users, "users"))
        for name, value in (("rate", rate), ("token_rate", token_rate)):
            if value is not None:
                as_rate(value, name)
        self._check_gpus(gpus)
        if token_rate is not None:
            if any(each is not None for each in (users, rate, self._users, self._rate)):
                raise UsageError(
                    "more than one of users, requests/s and tokens/s is given", None, "ask for one of them"
                )
            rate, more = token_rate / output_tokens(self.levels), {**more, "token_rate": token_rate}

        wanted = self.slos if slos is None else as_slos(slos)
        asked_rate = self.rate if rate is None and users is None else rate
        if asked_rate is not None:
            return Question(users or 0, wanted, gpus_per_replica, gpus, asked_rate, host_gpus, **more)
        asked_users = self.users if users is None else users
        if asked_users is None:
            raise UsageError("user count unknown", "users", "pass --users N")
        return Question(asked_users, wanted, gpus_per_replica, gpus, host_gpus=host_gpus, **more)

    def _check_gpus(self, gpus: int | None) -> None:
        """A number of tested GPUs is for runs that do not say one; of others it would be left out without a word."""
        known = {level.gpus for level in self.levels}
        if gpus is None or not known or 0 in known or gpus in known:
            return
        said = " and ".join(f"{each:,}" for each in sorted(known))
        raise UsageError(
            f"{gpus:,} were tested, but the {'run says' if len(self.paths) == 1 else 'runs say'} {said}",
            "gpus",
            "leave it out, or measure again with the right number",
        )

    def asking(
        self,
        users: float | None = None,
        slos: Sequence[Slo | str] | Slo | str | None = None,
        rate: float | None = None,
    ) -> Result:
        """The same measurements with another question; None keeps what was asked before, and a rate stands for users.

        Args:
            users: requests in flight.
            slos: SLOs to meet.
            rate: requests per second, instead of users.

        Raises:
            UsageError: invalid users.
            SloError: an SLO that does not parse.
        """
        if users is not None and rate is not None:
            raise UsageError("users and a rate are both given", None, "ask for one of them")
        if users is not None:
            within("users", as_number(users, "users"))
        kept_users, kept_rate = (self._users, self.rate) if users is None and rate is None else (users, rate)
        kept = self._slos if slos is None else slos
        left: dict[str, Any] = {"skip_damaged": self._skip_damaged, "damaged": self._damaged_runs}
        return Result(self.paths, slos=kept, users=kept_users, rate=kept_rate, **left)

    @property
    def can_estimate(self) -> bool:
        """Whether users and SLOs are known, so that ``estimate`` needs no arguments."""
        return self.users is not None and bool(self.slos)

    def _possible_estimates(self) -> list[Estimate]:
        return self.estimates() if self.can_estimate else []

    def plot(self, kind: str = "runtime", *, dark: bool = False) -> Figure:
        """One figure.

        Args:
            kind: the name of one of ``gpusize.report.figures.plots.KINDS``, such as ``runtime`` or ``attainment``.
            dark: whether it is for dark paper.

        Raises:
            UsageError: there is no such figure, or no data for it.
        """
        from gpusize.report.figures.plots import figures

        made = figures(self, self._possible_estimates())
        if kind not in made:
            raise UsageError(f"this result has no figure {kind!r}", "kind", f"there are {', '.join(made) or 'none'}")
        if not dark:
            return made[kind]
        from gpusize.report.figures.style import darkened

        return darkened(made[kind])

    def report(self, out: str | Path | None = None, *, plots: bool = True) -> Path:
        """Write summary, estimate, plots and ``report.html``; what is there already is made anew.

        Args:
            out: a folder; the (first) run's own by default.
            plots: whether figures are made.

        Returns:
            The path of ``report.html``.

        Raises:
            StoreError: a file cannot be written.
        """
        from gpusize.report.export import write_outputs

        estimates = self._possible_estimates()
        calculator = self.calculator_output() if estimates else None
        folder = self.path if out is None else Path(out)
        return write_outputs(self, estimates, folder, plots=plots, truth=self.truth, calc_output=calculator)[-1]

    def markdown(self) -> str:
        """The answer with its interval, the levels and the warnings as Markdown, for a pull request."""
        from gpusize.report.summary.markdown import markdown

        return markdown(self, self._possible_estimates())

    def export(self, format: str, out: str | Path, *, what: str = "summary") -> list[Path]:  # noqa: A002 -- its name
        """Write the result in the format of another tool.

        Args:
            format: ``csv``, ``json``, ``parquet``; ``perf_analyzer`` (its verbose CSV, a file a run), ``nat`` (the
                sizing calculator's JSON), ``otava`` (Apache Otava's CSV, a row a run) or ``benchmark_report`` (llm-d's
                v0.2.1, a document a level; JSON where ``out`` ends in .json, else YAML).
            out: a file; or a folder, where it has no suffix or is one.
            what: ``summary``, ``records`` or ``samples``, for csv, json and parquet.

        Returns:
            The files. What has no place in them is added to ``notes``.

        Raises:
            UsageError: no such format, several files for one name, or for ``nat`` no users.
            StoreError: a file cannot be written.
        """
        from gpusize.report.exchange.formats import export

        check_kinds({"out": out}, {"out": PATH})
        written, notes = export(self, format, Path(out), what)
        self.notes += notes
        return written

    @property
    def metas(self) -> list[dict[str, Any]]:
        """The contents of each run's ``run.json``."""
        return [read_run(path) for path in self.paths]

    def calculator_output(self) -> dict[str, Any]:
        """The levels as the sizing calculator's ``calc_runner_output.json``.

        Raises:
            UsageError: no users are known.
        """
        from gpusize.estimate.methods import to_calc_output
        from gpusize.records.dataset_rows import read_ids

        return to_calc_output(self.levels, self.question(), read_ids(self.path))

    def _option(self, *names: str) -> Any:
        options = self.meta.get("options") or {}
        return next((options[name] for name in names if options.get(name) is not None), None)

    def __repr__(self) -> str:
        runs = f", {len(self.paths)} runs" if len(self.paths) > 1 else ""
        return f"Result({str(self.path)!r}, {len(self.levels)} levels{runs})"

    def _repr_html_(self) -> str:
        from gpusize.report.notebook.show import result_html

        try:
            return result_html(self, self._possible_estimates())
        except (StoreError, UsageError) as error:
            return result_html(self, problem=str(error))
