"""Options that name an autoscaler's policy, for the commands that simulate one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from gpusize.cli.command import option

if TYPE_CHECKING:
    from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler

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


def autoscalers(files: Sequence[Path], signals: Sequence[str], scrape: str, sync: str) -> list[Autoscaler]:
    """The policies of all files; those of one name are told apart by their file's, then by a number."""
    from gpusize.base.errors import UsageError
    from gpusize.base.units import as_duration_s
    from gpusize.estimate.plan.autoscale.autoscaler import Timing
    from gpusize.estimate.plan.autoscale.manifest import read_policies

    told = {}
    for each in signals:
        name, mark, query = each.partition("=")
        if not mark or not name.strip() or not query.strip():
            raise UsageError(f'"{each}" is no signal', "--signal", "give NAME=QUERY, as queue_depth=sum(waiting)")
        told[name.strip()] = query.strip()
    timing = Timing(as_duration_s(scrape, "--scrape-interval"), as_duration_s(sync, "--sync-period"))
    read = [(file, each) for file in files for each in read_policies(file, told, timing)]
    found: list[Autoscaler] = []
    for file, one in read:
        twins = sum(other.name == one.name for _, other in read)
        name = one.name if twins == 1 else f"{one.name} ({file.stem})"
        taken = sum(other.name == name or other.name.startswith(f"{name} #") for other in found)
        found.append(one.named(f"{name} #{taken + 1}" if taken else name))
    return found
