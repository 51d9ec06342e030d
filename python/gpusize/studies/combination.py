"""What one combination of a study will do, with every placeholder filled in; nothing is started here."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpusize.base.text import shown
from gpusize.options.labels import labels_of
from gpusize.studies.placeholders import Scalar, fill, fill_words
from gpusize.studies.run_options import check_run, checked_options
from gpusize.studies.spec import Combination, Study

__all__ = ["Plan", "plan_of"]

_OURS: Final = ("out", "append", "strict", "json", "quiet")
_LEVELS: Final = ("concurrencies", "rates")
_STOPS: Final = ("passes", "count", "duration")


@dataclass(frozen=True)
class Plan:
    """One combination, ready to be done.

    Args:
        combination: its settings.
        work: its own folder, for logs and whatever the commands put there.
        setup: commands, one after the other.
        serve: a command to be kept running, or None.
        ready: an address, the words of a command, or None.
        warmup: options of the run that is thrown away, or None.
        run: options of the run.
        teardown: commands that always run.
        labels: the run's labels.
    """

    combination: Combination
    work: Path
    setup: tuple[list[str], ...]
    serve: list[str] | None
    ready: str | list[str] | None
    warmup: dict[str, Any] | None
    run: dict[str, Any]
    teardown: tuple[list[str], ...]
    labels: dict[str, str]

    def lines(self) -> list[str]:
        """What would be done, for ``--dry-run``."""
        found = [self.combination.name]
        found += [f"  setup     {shlex.join(words)}" for words in self.setup]
        if self.serve:
            found.append(f"  serve     {shlex.join(self.serve)}")
        if self.ready:
            found.append(f"  ready     {self.ready if isinstance(self.ready, str) else shlex.join(self.ready)}")
        for name, options in (("warmup", self.warmup), ("run", self.run)):
            if options is not None:
                texts = [f"{key}={shown(value, 80)}" for key, value in options.items() if key not in {"out", "label"}]
                found.append(f"  {name:<9} {' '.join(texts)}")
        found.append(f"  labels    {' '.join(f'{key}={value}' for key, value in self.labels.items())}")
        return found + [f"  teardown  {shlex.join(words)}" for words in self.teardown]


def plan_of(study: Study, combination: Combination) -> Plan:
    """Fill in a combination's values and check the options of its run.

    A setting ``gpus`` that is a whole number also tells the run how many GPUs there are, unless ``run`` says so itself.
    0, the server on its CPU, tells it nothing.

    Raises:
        ConfigError: an option that ``gpusize run`` does not have, or an invalid value, with its place.
        UsageError: invalid labels.
    """
    work = (study.out / "work" / combination.name).absolute()
    names: dict[str, Scalar] = {
        **combination.settings,
        "study": str(study.out.absolute()),
        "work": str(work),
        "combination": combination.name,
        "python": sys.executable,
    }
    run = _options(study, "run", study.run, names)
    gpus = combination.settings.get("gpus")
    if "gpus" not in run and isinstance(gpus, int) and not isinstance(gpus, bool) and gpus:
        run["gpus"] = gpus
    check_run(run, study.document, "run")
    settings = {key: fill("{value} ", {"value": value}).strip() for key, value in combination.settings.items()}
    labels = {**labels_of(run.get("label")), "study": study.name, **settings}
    run = {**run, "label": labels, "out": str(study.out)}
    warmup = None
    if study.warmup is not None:
        own = _options(study, "warmup", study.warmup, names)
        warmup = {**_without_replaced(run, own), **own, "out": str(work / "warmup")}
        check_run(warmup, study.document, "warmup")
    ready = study.ready
    return Plan(
        combination=combination,
        work=work,
        setup=tuple(fill_words(words, names) for words in study.setup),
        serve=fill_words(study.serve, names) if study.serve else None,
        ready=str(fill(ready, names)) if isinstance(ready, str) else fill_words(ready, names) if ready else None,
        warmup=warmup,
        run=run,
        teardown=tuple(fill_words(words, names) for words in study.teardown),
        labels=labels,
    )


def _without_replaced(run: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The run's options less those that the warm-up's own stand for."""
    gone = {name for group in (_LEVELS, _STOPS) if any(each in own for each in group) for name in group}
    return {name: value for name, value in run.items() if name not in gone}


def _options(study: Study, key: str, given: Mapping[str, Any], names: Mapping[str, Scalar]) -> dict[str, Any]:
    return checked_options(fill(given, names), study.document, key, refused=_OURS, whose="a study")
