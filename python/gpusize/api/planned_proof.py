"""What a proof is going to measure: from an earlier run and a question, or from an interrupted proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusize.base.errors import UsageError
from gpusize.base.units import as_duration_s
from gpusize.estimate.certificate import Certificate, Side, read_certificate
from gpusize.estimate.question import gpus_text
from gpusize.measure.encode import mean_turns
from gpusize.options.assemble import read_options
from gpusize.options.inputs import addresses_of, dataset_from_options
from gpusize.options.proof import Budget, load_options, side_of, without_load
from gpusize.records.store import find_runs, read_run
from gpusize.studies.placeholders import fill_words, split_command, unknown_names

if TYPE_CHECKING:
    from gpusize.analysis.proof.judge import Terms
    from gpusize.analysis.slo import Slo

__all__ = ["Sought", "Ways", "planned", "resumed", "scale_words"]


@dataclass(frozen=True, slots=True)
class Sought:
    """What is to be proved, as `gpusize.prove` takes it."""

    gpus: int | None
    users: float | None
    rate: float | None
    slos: Sequence[Slo | str] | Slo | str | None
    gpus_per_replica: int


@dataclass(frozen=True, slots=True)
class Ways:
    """Where so many GPUs are, and one replica less, as `gpusize.prove` takes it."""

    url: str | Sequence[str] | None = None
    target_gpus: int | None = None
    fewer_url: str | Sequence[str] | None = None
    scale_command: str | None = None
    fewer_by_load: bool = False

    @property
    def to_fewer(self) -> list[str]:
        """Names of what leads to one replica less; a scale command does beside one of the others, too."""
        given = {
            "fewer_url": self.fewer_url is not None,
            "fewer_by_load": self.fewer_by_load,
            "scale_command": self.scale_command is not None,
        }
        return [name for name, there in given.items() if there]


def planned(
    runs: str | Path | Sequence[str | Path] | None,
    sought: Sought,
    ways: Ways,
    terms: Terms,
    *,
    budget: int | str,
    duration: str | float,
    options: Mapping[str, Any],
) -> tuple[dict[str, Any], Certificate]:
    """Options of target and dataset, and the certificate with nothing measured yet.

    Args:
        runs: earlier runs.
        sought: what is to be proved.
        ways: where.
        terms: what is promised.
        budget: what each side may cost.
        duration: length of a level.
        options: over those of the run.

    Raises:
        UsageError: invalid arguments.
        StoreError: a run cannot be read.
    """
    from gpusize import __version__
    from gpusize.result import open_run

    if runs is None or not runs:
        raise UsageError("no run is named", None, "give a run folder: it says what to send, and where")
    gpus, per = sought.gpus, sought.gpus_per_replica
    if gpus is None:
        raise UsageError("the number of GPUs is not said", "gpus", "give the number that is to be proved, as --gpus 8")
    earlier = open_run(runs).asking(sought.users, sought.slos, sought.rate)
    question = earlier.question(gpus_per_replica=per)
    if gpus < 1 or gpus % per:
        todo = "give a multiple of --gpus-per-replica"
        raise UsageError(f"{gpus} GPUs are no whole number of replicas of {per}", "gpus", todo)
    if not question.slos:
        raise UsageError("there is no SLO to prove", "slo", "give one, as in --slo 'p95 runtime <= 10s'")
    mine = {name: value for name, value in options.items() if value is not None}
    base, _ = read_options(None, mine | ({} if ways.url is None else {"url": ways.url}), earlier.path)
    base = without_load(base)
    simulated = _simulated(earlier.meta) if ways.url is None and base.get("url") is None else None
    # Where nobody says what is behind it, the run's own target has what it had when it was measured.
    own = None if ways.url is not None or ways.scale_command is not None or simulated is not None else base.get("gpus")
    at = int(ways.target_gpus or own or gpus)
    addresses = 0 if simulated is not None else len(addresses_of(base.get("url") or []))
    if ways.target_gpus is None and own is None and ways.scale_command is None:
        _check_addresses("url", addresses, at, per)
    load: dict[str, Any] = {
        "asked_gpus": gpus,
        "users": None if question.rate is not None else question.users,
        "rate": question.rate,
        "turns": _turns(base) if question.rate is not None else 1.0,
    }
    asked = side_of(gpus, at, **load)
    if ways.fewer_url is not None and ways.target_gpus is None and gpus > per:
        _check_addresses("fewer_url", len(addresses_of(ways.fewer_url)), gpus - per, per)
    at_less = _fewer_at(ways, gpus - per, at, simulated=simulated is not None)
    fewer = None if at_less is None else side_of(gpus - per, at_less, **load)
    given = Budget.parse(budget)
    own_options = {
        "fewer_url": [ways.fewer_url] if isinstance(ways.fewer_url, str) else ways.fewer_url,
        "scale_command": ways.scale_command,
        "simulated": simulated,
        # What says how many GPUs are behind it, and how many addresses stand for them.
        "from_run": ways.target_gpus is None and bool(own),
        "addresses": addresses,
    }
    certificate = Certificate(
        gpus=gpus,
        gpus_per_replica=per,
        users=load["users"],
        rate=load["rate"],
        slos=tuple(map(str, question.slos)),
        terms=terms,
        budget=str(given),
        duration_s=as_duration_s(duration, "duration"),
        asked=asked,
        fewer=fewer,
        version=__version__,
        extra={"options": own_options},
    )
    for side in certificate.sides:
        # What is wrong with a side is told before the other is measured.
        load_options(certificate, side, given)
    if ways.scale_command is not None:
        scale_words(ways.scale_command, certificate, asked)
    return base, certificate


def _check_addresses(option: str, addresses: int, gpus: int, per: int) -> None:
    """Refuse several addresses that are not as many as there are replicas: a proof of other GPUs would be false.

    One address may be a router before any number of them.

    Raises:
        UsageError: they are not, and nobody said what is behind them.
    """
    if addresses <= 1 or addresses * per == gpus:
        return
    replicas = "" if per == 1 else f" ({gpus // per} replicas of {per})"
    there = gpus_text(addresses * per)
    what = f"{addresses} addresses would be taken for {gpus_text(gpus)}{replicas}"
    todo = f"give all of them, or say what is behind them: --target-gpus {addresses * per} where that is {there}"
    if option == "url":
        todo += f", --target-gpus {gpus} where they lead to {gpus_text(gpus)}"
    else:
        todo = "give one for each replica, or one router before all of them"
    raise UsageError(what, option, todo)


def _turns(options: Mapping[str, Any]) -> float:
    """Requests that each arrival brings: 1, or those of a conversation, where conversations begin at the rate."""
    if not options.get("sessions"):
        return 1.0
    dataset = dataset_from_options(options)
    return 1.0 if dataset is None else mean_turns(dataset)


def _fewer_at(ways: Ways, less: int, at: int, *, simulated: bool) -> int | None:
    """GPUs that stand for one replica less; None where that is not tried.

    Raises:
        UsageError: two ways are given, or there is no smaller number.
    """
    wanted = ways.to_fewer
    if {"fewer_url", "fewer_by_load"} <= set(wanted):
        raise UsageError("two ways to fewer GPUs are given", wanted[0], "give one of them")
    if less < 1 and (ways.fewer_url is not None or ways.fewer_by_load):
        raise UsageError("there is no smaller number of GPUs to try", wanted[0], "leave it out")
    if less < 1 or not (wanted or simulated):
        return None
    return at if ways.fewer_by_load else less


def _simulated(meta: Mapping[str, Any]) -> dict[str, Any] | None:
    found = (meta.get("targets") or [{}])[0].get("simulated")
    return dict(found) if found else None


def resumed(path: Path) -> tuple[dict[str, Any], Certificate]:
    """As ``planned``, of an interrupted proof.

    Args:
        path: the folder of one of its runs.

    Raises:
        UsageError: it is no run of a proof.
        StoreError: it cannot be read.
    """
    [folder] = find_runs(path)[:1] or [path]
    certificate = read_certificate(folder)
    if certificate is None:
        raise UsageError("there is no proof to resume", str(folder), "name a run folder with a certificate.json")
    first = folder.parent / (certificate.asked.run or folder.name)
    base, _ = read_options(None, {}, first)
    label = dict(read_run(first).get("labels") or {})
    label.pop("prove", None)
    return {**without_load(base), "out": str(first.parent), "label": label}, certificate


def scale_words(text: str, certificate: Certificate, side: Side) -> list[str]:
    """The words of the command that brings up the replicas of a side.

    Raises:
        ConfigError: it cannot be split.
        UsageError: a placeholder that there is not, or none at all.
    """
    names: dict[str, str | int | float | bool] = {
        "replicas": side.at_gpus // certificate.gpus_per_replica,
        "gpus": side.at_gpus,
    }
    unknown = unknown_names(text, set(names))
    todo = "write {replicas} or {gpus} where the number belongs"
    if unknown:
        raise UsageError(f"there is no {{{unknown[0]}}}", "scale_command", todo)
    if "{replicas}" not in text and "{gpus}" not in text:
        raise UsageError("the command would not know how many replicas to bring up", "scale_command", todo)
    return fill_words(split_command(text, "scale_command"), names)
