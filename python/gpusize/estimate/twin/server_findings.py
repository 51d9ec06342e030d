"""What an answer says of the server's own figures: which were used, and what speaks against the records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gpusize.estimate.twin.batching_model import streamed
from gpusize.estimate.twin.server_figures import OTHERS, served_limit, steps

if TYPE_CHECKING:
    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["ServerFindings", "server_findings"]

OUTSIDE: Final = 0.2
"""Share of a request's time outside the server that is worth a warning, beyond ``LEAST_S``."""
LEAST_S: Final = 0.001
APART: Final = 0.1
"""Times between tokens that differ by more are not both right."""
FEWEST: Final = 100
"""Fewer tokens, or requests, are left to chance."""


@dataclass(frozen=True)
class ServerFindings:
    """Texts and details for the answer."""

    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)


def server_findings(visits: Sequence[Observed], model: str) -> ServerFindings:
    """What the server said during visits of one replica, and what of it the model rests on.

    Args:
        visits: all that were fitted to.
        model: name of the model that answered; what another one would use is not said to be used.
    """
    if all(each.served is None for each in visits):
        return ServerFindings()
    limit = served_limit([each.served for each in visits])
    used = None if streamed(visits) else steps([each.served for each in visits])
    texts = []
    if limit is not None and model in ("batching", "flow"):
        why = ", as its cache was full" if limit[1] else ""
        texts.append(
            f"at most {limit[0]} requests are worked on at once, as the server showed while others waited{why}"
        )
    if used is not None and model == "batching":
        texts.append("the costs of a step are the server's own: no first tokens were seen")
    details = {
        "at_once": None if limit is None else limit[0],
        "varies": None if limit is None else limit[1],
        "steps": None if used is None else list(used),
    }
    found = (_others(visits), _outside(visits), _gaps(visits), _preempted(visits))
    return ServerFindings(tuple(texts), tuple(text for text in found if text), {"served": details})


def _others(visits: Sequence[Observed]) -> str:
    """Whether the server answered requests of others, too, or only some of what was sent."""
    known = [(each, each.served.answered) for each in visits if each.served and each.served.answered is not None]
    sent = sum(each.due_s.size for each, _ in known)
    answered = sum(count for _, count in known)
    slack = OTHERS * sent + sum(each.users for each, _ in known)
    if answered - sent > slack:
        return (
            f"the server answered {answered:,.0f} requests where {sent:,} were sent: others use it too, and the "
            "capacity is only what they left"
        )
    if sent - answered > slack:
        return (
            f"the server's figures are of {answered:,.0f} of {sent:,} requests, so of some replicas only: they do not "
            "enter the fit; sample all replicas with --metrics-url"
        )
    return ""


def _outside(visits: Sequence[Observed]) -> str:
    """Whether much of what clients wait is spent outside the server."""
    import numpy as np

    total, inside_s, outside_s = 0, 0.0, 0.0
    for each in visits:
        took = (each.last_s - each.sent_s)[each.ok]
        took = took[np.isfinite(took)]
        if each.served is None or not each.served.request_s or not took.size:
            continue
        total += took.size
        inside_s += took.size * each.served.request_s
        outside_s += float(took.sum()) - took.size * each.served.request_s
    if total < FEWEST or outside_s / total < LEAST_S or outside_s < OUTSIDE * (inside_s + outside_s):
        return ""
    share = outside_s / (inside_s + outside_s)
    return (
        f"{share:.0%} of a request's time is spent outside the server, whose own mean is {inside_s / total:.3g} s: "
        "more replicas do not shorten what the network and proxies take"
    )


def _gaps(visits: Sequence[Observed]) -> str:
    """Whether tokens come at another pace than the server makes them."""
    import numpy as np

    seen_s, seen, own_s = 0.0, 0.0, 0.0
    for each in visits:
        kept = each.ok & (each.tokens_out >= 2) & np.isfinite(each.first_s) & np.isfinite(each.last_s)
        if each.served is None or not each.served.step_s or not kept.any():
            continue
        gaps = float((each.tokens_out[kept] - 1).sum())
        seen_s += float((each.last_s - each.first_s)[kept].sum())
        seen += gaps
        own_s += gaps * each.served.step_s
    if seen < FEWEST or abs(seen_s / own_s - 1) <= APART:
        return ""
    return (
        f"tokens came {seen_s / seen * 1e3:.3g} ms apart, by the server's own count {own_s / seen * 1e3:.3g} ms: "
        "something between holds them back, or answers have other tokens than were counted"
    )


def _preempted(visits: Sequence[Observed]) -> str:
    count = sum(each.served.preemptions for each in visits if each.served)
    if count < 1:
        return ""
    return (
        f"the server preempted {count:,.0f} requests for lack of cache and restarted them, which no model here covers"
    )
