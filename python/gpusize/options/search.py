"""Whether options ask for a search, and for which: levels that are said take its place, and it theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.estimate.search.terms import Adaptive, cannot_search
from gpusize.options.load import LOAD_STOPS, LOAD_WAYS
from gpusize.options.table import kinds_of

if TYPE_CHECKING:
    from gpusize.analysis.slo import Slo
    from gpusize.workload.load import Load

__all__ = ["SEARCH_OPTIONS", "over_levels", "refuse_levels", "terms_of", "wants_search"]

SEARCH_OPTIONS: Final = kinds_of("search")
"""Options of a search, with the kind of value of each."""

_LEVELS: Final = (*LOAD_WAYS, *LOAD_STOPS)
_CHOOSES: Final = (
    "leave out --adaptive to measure these levels, or leave them out: a search chooses the levels and how long they "
    "are, --budget bounds them all"
)
_NO_RATES: Final = (
    "leave out --adaptive to measure what comes at rates, or leave out what says so: a search raises the requests in "
    "flight, and gpusize estimate --rate answers for rates from what it measures"
)


def over_levels(options: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a file without its levels where a search is given, and without its search where levels are."""
    if given.get("adaptive"):
        return {name: value for name, value in options.items() if name not in _LEVELS}
    if any(name in given for name in _LEVELS):
        return {name: value for name, value in options.items() if name not in SEARCH_OPTIONS}
    return dict(options)


def wants_search(options: Mapping[str, Any]) -> bool:
    """Whether the levels are to be found: when that is said, or when there is an SLO and nothing says the levels."""
    asked = options.get("adaptive")
    if asked is not None:
        return bool(asked)
    return bool(options.get("slo")) and all(options.get(name) is None for name in (*_LEVELS, "sample_records"))


def refuse_levels(options: Mapping[str, Any]) -> None:
    """Whether a search is asked for and nothing beside it says the levels.

    Raises:
        UsageError: both are; what the load lacks, as an end of its rates, would be no help.
    """
    own = next((name for name in _LEVELS if options.get(name) is not None), None)
    if own is not None and wants_search(options):
        at_rates = own in LOAD_WAYS and own != "concurrencies"
        raise UsageError(f"a search and {own} are both given", own, _NO_RATES if at_rates else _CHOOSES)


def terms_of(
    options: Mapping[str, Any],
    load: Load,
    slos: Sequence[Slo],
    gpus: int | None = None,
) -> Adaptive | None:
    """The search that is asked for, or that the SLOs call for; None for the levels of the load.

    Args:
        options: of the run; those of the load are not read.
        load: how hard.
        slos: what has to be kept.
        gpus: behind all targets; None where nobody said.

    Raises:
        UsageError: a search beside levels, or what belongs to a search without one.
    """
    said = {name: value for name, value in load.options().items() if load.names_way or name not in LOAD_WAYS}
    given = {**{name: options.get(name) for name in SEARCH_OPTIONS}, **said, "slo": list(slos)}
    if wants_search(given):
        refuse_levels(given)
        problem = cannot_search(slos)
        if problem is None:
            return _bounded(Adaptive.of(options, gpus))
        if options.get("adaptive"):
            raise problem
    alone = next((name for name in SEARCH_OPTIONS if name != "adaptive" and options.get(name) is not None), None)
    if alone is not None:
        todo = "add --adaptive and an SLO, and leave out the levels"
        raise UsageError(f"{alone} belongs to a search", alone, todo)
    return None


def _bounded(terms: Adaptive) -> Adaptive:
    """The search, whose budget is known to be one: of money it needs the number of GPUs.

    Raises:
        UsageError: it is not known.
    """
    _ = terms.time_s
    return terms
