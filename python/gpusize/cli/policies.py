"""Options that name an autoscaler's policy, for the commands that simulate one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from gpusize.cli.command import option

if TYPE_CHECKING:
    from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler, Surroundings

POLICY: Final = "Policy"
"""The options' group in help."""

_POLICY: Final = option("Manifest of HorizontalPodAutoscalers (autoscaling/v2) or KEDA ScaledObjects.", "FILE", POLICY)
Policies = Annotated[list[Path], _POLICY]
OnePolicy = Annotated[Path | None, _POLICY]
Signals = Annotated[
    list[str] | None,
    option("What a metric measures, where its name does not tell: NAME=sum(waiting).", "NAME=QUERY", POLICY),
]
ScrapeInterval = Annotated[str, option("Scrape the replicas' metrics this often.", "TIME", POLICY)]
SyncPeriod = Annotated[str, option("Let the HPA decide this often.", "TIME", POLICY)]
AtZero = Annotated[str, option("Requests that come while there is no replica: hold or refuse.", "WHAT", POLICY)]
HoldTimeout = Annotated[str, option("Refuse a request that was held for so long.", "TIME", POLICY)]
Outages = Annotated[
    list[str] | None, option("Let all metrics fail from one time of the day to another: 10m..15m.", "FROM..TO", POLICY)
]


def surroundings(at_zero: str, hold: str, outages: Sequence[str]) -> Surroundings:
    """What stands around the policies."""
    from gpusize.base.errors import UsageError
    from gpusize.base.units import as_duration_s
    from gpusize.estimate.plan.autoscale.autoscaler import Surroundings

    if at_zero not in ("hold", "refuse"):
        raise UsageError(f'"{at_zero}" is nothing that can be done with requests', "--at-zero", "take hold or refuse")
    hold_s = as_duration_s(hold, "--hold-timeout")
    if hold_s <= 0:
        raise UsageError("--hold-timeout must be positive", "--hold-timeout", "take refuse as --at-zero to hold none")
    read = []
    for each in outages:
        begin, mark, end = each.partition("..")
        if not mark:
            what = f'"{each}" is no stretch of time'
            raise UsageError(what, "--metrics-outage", "give FROM..TO from the start of the day, as 10m..15m")
        stretch = as_duration_s(begin, "--metrics-outage"), as_duration_s(end, "--metrics-outage")
        if stretch[1] <= stretch[0]:
            raise UsageError(f'"{each}" ends before it begins', "--metrics-outage", "give the earlier time first")
        read.append(stretch)
    return Surroundings(at_zero == "hold", hold_s, tuple(read))


def autoscalers(
    files: Sequence[Path],
    signals: Sequence[str],
    every: tuple[str, str],
    around: Surroundings | None = None,
) -> list[Autoscaler]:
    """The policies of all files; those of one name are told apart by their file's, then by a number.

    Args:
        files: manifests.
        signals: ``NAME=QUERY`` each.
        every: how often is scraped, and how often is decided, as texts.
        around: what stands around them; None for what `surroundings` has for an HPA.
    """
    from gpusize.base.errors import UsageError
    from gpusize.base.units import as_duration_s
    from gpusize.estimate.plan.autoscale.autoscaler import Surroundings, Timing
    from gpusize.estimate.plan.autoscale.manifest import read_policies

    told = {}
    for each in signals:
        name, mark, query = each.partition("=")
        if not mark or not name.strip() or not query.strip():
            raise UsageError(f'"{each}" is no signal', "--signal", "give NAME=QUERY, as queue_depth=sum(waiting)")
        told[name.strip()] = query.strip()
    timing = Timing(as_duration_s(every[0], "--scrape-interval"), as_duration_s(every[1], "--sync-period"))
    read = [(file, each) for file in files for each in read_policies(file, told, timing, around or Surroundings())]
    found: list[Autoscaler] = []
    for file, one in read:
        twins = sum(other.name == one.name for _, other in read)
        name = one.name if twins == 1 else f"{one.name} ({file.stem})"
        taken = sum(other.name == name or other.name.startswith(f"{name} #") for other in found)
        found.append(one.named(f"{name} #{taken + 1}" if taken else name))
    return found
