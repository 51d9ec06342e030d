"""What a submission and a cleaning say at their end, line by line."""

from __future__ import annotations

from gpusize.base.text import shown
from gpusize.base.units import format_duration
from gpusize.cluster.submit.clean import Cleaned
from gpusize.cluster.submit.submit import Submitted

__all__ = ["cleaned_lines", "submitted_lines"]


def submitted_lines(done: Submitted) -> list[str]:
    """What was created and what was not, how fast, and where it is written."""
    facts, counts, session = done.facts, done.facts["counts"], done.facts["sessions"][-1]
    rate = session["attempts"] / session["elapsed_s"] if session["elapsed_s"] > 0 else 0.0
    created = f"{counts['created']:,} of {counts['workloads']:,} workloads created in namespace {facts['namespace']}"
    sent = f"{session['attempts']:,} requests in {_time(session['elapsed_s'])} ({rate:.3g}/s)"
    told = f"{session['retried']:,} sent again, {session['throttled']:,} put off (429)"
    failed = f"{session['server_errors']:,} server errors, {session['unanswered']:,} without an answer"
    lines = [f"run {facts['run']}: {created}", f"{sent}: {told}, {failed}"]
    late = session["lateness_s"]
    if late is not None:
        lines.append(f"sent after they were due: p50 {_time(late['p50'])}, p99 {_time(late['p99'])}")
    lines += [f"failed: {number:,} with {shown(reason, 80)}" for reason, number in counts["failed"].items()]
    for key, word in (("unanswered", "sent without an answer"), ("partly", "in part"), ("not_sent", "not sent")):
        if counts[key]:
            lines.append(f"{word}: {counts[key]:,}")
    return [*lines, str(done.path)]


def _time(seconds: float) -> str:
    return format_duration(float(f"{max(seconds, 1e-6):.3g}"))


def cleaned_lines(done: Cleaned) -> list[str]:
    """What was deleted, or would be, by kind."""
    total = sum(map(len, done.found.values()))
    if not total:
        return [f"run {done.run}: nothing is left in namespace {done.namespace}"]
    word = "would be deleted" if done.dry_run else "deleted" if not done.held else "found"
    head = f"run {done.run} in namespace {done.namespace}: {total:,} objects {word}"
    if not done.dry_run and not done.held:
        head += ", none is left"
    width = max(len(f"{len(names):,}") for names in done.found.values())
    return [head, *(f"  {len(names):>{width},} {kind}" for kind, names in sorted(done.found.items()))]
