"""Was a level's load delivered? The sent times against the process that was asked for, by effect sizes.

An open loop is judged by how many requests were sent of those scheduled, how late they were beside the gaps between
them, whether neighbouring gaps know of each other, and whether counts vary as those of the process do; a trace by
whether each request was sent, in order and in time; a closed loop by Little's law and its think time. Bounds and their
sources are in docs/reference/delivery.md. Of sampled levels, what their seconds and histograms tell is judged.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpusize.analysis.delivery.actual import SentRequests, sent_requests
from gpusize.analysis.delivery.check import DeliveryCheck
from gpusize.analysis.delivery.closed_loop import closed_checks
from gpusize.analysis.delivery.intended import intended_streams, is_ramp
from gpusize.analysis.delivery.never_sent import unsent_text
from gpusize.analysis.delivery.open_loop import stream_checks
from gpusize.analysis.stop_cause import WHOLE
from gpusize.base.text import shown

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData

__all__ = ["Delivery", "DeliveryCheck", "counts_of", "delivery_of"]

COUNT_SHARE: Final = 0.01
"""Share of the schedule that may stay unsent."""
RATE_SHARE: Final = 0.05
"""By which a rate may fall short where only what was sent is known."""
CHANCE: Final = 3.0
"""Standard errors that a number of requests that were drawn by a Poisson process may be off."""


class Delivery(NamedTuple):
    """Whether the load was sent as asked for, check by check.

    Attributes:
        delivered: whether this load was delivered; None where nothing could be judged.
        reasons: why it was not.
        checks: all that was held against the request.
    """

    delivered: bool | None
    reasons: list[str]
    checks: list[DeliveryCheck]

    @property
    def text(self) -> str:
        """The same in one sentence."""
        if self.delivered is None:
            return "not judged" + (f": {self.checks[0].text}" if self.checks else "")
        if self.delivered:
            return "this load was delivered"
        return f"it was not, because {'; '.join(self.reasons)}"


class Counts(NamedTuple):
    """Where the requests of a level visit went: offered = sent + shed + unsent, always."""

    offered: int
    sent: int
    shed: int
    unsent: int


def counts_of(level: LevelData) -> Counts:
    """What became of every request of a single visit that was due.

    ``unsent`` are those that were neither sent nor shed: no connection could be opened, or an end was asked for while
    they waited.
    """
    meta, outcomes = level.meta, level.meta.get("outcomes") or {}
    if meta.get("due") is not None and meta.get("sent") is not None:
        offered, sent = int(meta["due"]), int(meta["sent"])
    else:
        import polars as pl

        counted = level.requests().select(pl.len().alias("due"), pl.col("sent_ns").count().alias("sent"))
        offered, sent = (int(n) for n in counted.collect(engine="streaming").row(0))
    shed = int(outcomes.get("shed", 0))
    return Counts(offered, sent, shed, max(0, offered - sent - shed))


def delivery_of(level: LevelData) -> Delivery:
    """Judge one visit of a level, over all of it: warm-up and drain were asked for as well.

    Args:
        level: a single visit; of pooled ones the first is judged.
    """
    if level.imported:
        return Delivery(None, [], [DeliveryCheck("count", None, None, "not judged", "imported: there are no records")])
    visit = level.visits()[0]
    return visit.kept.once("delivery", lambda: _judge(visit))


def _judge(visit: LevelData) -> Delivery:
    if visit.setting.get("kind") == "closed":
        counts = counts_of(visit)
        checks = closed_checks(visit, counts.offered, counts.sent)
    else:
        checks = _open_checks(visit)
    checks = [*checks, *_hosts(visit)]
    reasons = [each.text for each in checks if each.status == "failed"]
    judged = any(each.status != "not judged" for each in checks)
    return Delivery(not reasons if judged else None, reasons, checks)


def _hosts(level: LevelData) -> list[DeliveryCheck]:
    """Of a load that many hosts send: whether all of them sent to the end."""
    hosts = level.meta.get("hosts") or []
    if not hosts:
        return []
    gone = [each for each in hosts if each.get("missing")]
    there = 1.0 - sum(float(each.get("share") or 0.0) for each in gone)
    if not gone:
        return [DeliveryCheck("hosts", there, 1.0, "ok", f"{len(hosts)} hosts sent to the end")]
    named = ", ".join(shown(f"{each.get('name')} {each['missing']}", 120) for each in gone)
    return [DeliveryCheck("hosts", there, 1.0, "failed", f"{len(gone)} of {len(hosts)} hosts did not: {named}")]


def _open_checks(level: LevelData) -> list[DeliveryCheck]:
    counts = counts_of(level)
    if counts.offered == 0:
        return [DeliveryCheck("count", None, None, "not judged", "no request was due")]
    sent = sent_requests(level)
    if not level.due_known:
        return _by_rate(level, sent)
    checks = [_count(level, counts, sent)]
    streams = intended_streams(level.setting)
    for intended in streams:
        several = f" ({shown(intended.name, 40)})" if len(streams) > 1 else ""
        found = stream_checks(sent.of(intended.stream if several else None), intended)
        checks += [each._replace(name=each.name + several) for each in found]
    return checks


def _by_rate(level: LevelData, sent: SentRequests) -> list[DeliveryCheck]:
    """Of another tool that kept no due times: whether as many requests were sent per second as it was asked for."""
    why = "the file does not say when requests were due"
    others = [DeliveryCheck("lateness", None, None, "not judged", why)]
    if not level.rate or sent.length_s <= 0 or is_ramp(level.setting):
        return [DeliveryCheck("count", None, None, "not judged", why), *others]
    rate = sent.count / sent.length_s
    share, bound = rate / level.rate, 1 - RATE_SHARE - CHANCE / math.sqrt(sent.count)
    text = f"{rate:.4g} requests/s were sent, {level.rate:.4g} were asked for"
    if share < bound:
        text += "; the others waited before they were sent, which no time of this file counts"
        return [DeliveryCheck("count", share, bound, "failed", text), *others]
    return [DeliveryCheck("count", share, bound, "ok", text), *others]


def _count(level: LevelData, counts: Counts, sent: SentRequests) -> DeliveryCheck:
    """Sent against scheduled; a level that was stopped early against what had become due.

    A schedule of sessions says how many begin; how many turns they have is for the answers to say.
    """
    expected, went, what = level.setting.get("expected"), counts.sent, "requests were sent"
    whole = level.meta.get("stop_reason") in (None, *WHOLE)
    if expected and whole and level.setting.get("unit") == "session":
        whole = sent.sampled == 1
        went, what = (sent.count, "sessions began") if whole else (went, what)
    wanted = int(expected) if expected and whole else counts.offered
    exact = level.setting.get("process") in ("trace", "plan")
    share, bound = went / wanted, 1.0 if exact else 1 - COUNT_SHARE
    text = f"{went:,} of {wanted:,} {what}"
    if bound <= share <= 2 - bound:
        return DeliveryCheck("count", share, bound, "ok", text)
    why = []
    if counts.shed:
        why.append(f"{counts.shed:,} were shed: the target did not keep up; offer less or give it more")
    if counts.unsent:
        why.append(unsent_text(level, counts.unsent))
    if wanted != counts.offered and went == counts.sent:
        why.append(f"{counts.offered:,} became due where the schedule has {wanted:,}")
    return DeliveryCheck("count", share, bound, "failed", ": ".join([text, "; ".join(why)] if why else [text]))


def check_rows(level: LevelData) -> list[dict[str, Any]]:
    """The checks of one level as rows of a table: ``check``, ``value``, ``bound``, ``status``, ``text``."""
    found = delivery_of(level)
    return [
        {"check": each.name, "value": each.value, "bound": each.bound, "status": each.status, "text": each.text}
        for each in found.checks
    ]
