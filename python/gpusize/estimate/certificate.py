"""What was proved of a number of GPUs: the question, what was sent where, the verdicts, and what they rest on.

``certificate.json`` in the folders of the runs holds it; docs/how-to/prove.md says what each field is.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from gpusize.analysis.proof.judge import Judged, SloJudged, Terms
from gpusize.base.errors import StoreError
from gpusize.base.files import storing, write_json
from gpusize.estimate.question import gpus_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gpusize.analysis.level import LevelData

__all__ = ["FILE", "Certificate", "Side", "digest_of", "percent_text", "read_certificate", "write_certificate"]

FILE: Final = "certificate.json"
SCHEMA: Final = 1

CUT_OFF: Final = 0.05
"""Share of a rate's requests that may be missing, as the ends of levels cut conversations off."""

How = Literal["as asked", "scaled down", "by load"]

STEADY: Final = (
    "the target and the load stay as they are: what comes seldomer than once in the time that was measured is not seen"
)
BLOCKS: Final = (
    "what happens in one block of requests says little of the next: blocks are made so long that neighbours are not "
    "correlated, as far as can be seen"
)
PROPORTION: Final = (
    "{at} {load}, as {gpus} {asked}: that is exact only where replicas share nothing; where they share a "
    "queue, more of them carry more than in proportion, and where they share hosts, networks or a router, less"
)


BEHIND: Final = "{gpus} {stand} behind {where} loaded, as the question says; nothing measured shows it"
FROM_RUN: Final = "{gpus} {are} behind the target, as its run says; where that is not so, say --target-gpus"


@dataclass(frozen=True, slots=True)
class Side:
    """A number of GPUs, and what was measured of it.

    Attributes:
        gpus: the number that is spoken of.
        at_gpus: GPUs that really were behind the target.
        how: ``as asked``; ``scaled down``: fewer GPUs with their share of the load; ``by load``: more GPUs than are
            spoken of, with more load.
        users: that were sent; None for a rate.
        rate: requests per second that were sent; None for users.
        turns: requests that each arrival brings on the mean: so many times fewer conversations begin. 1 for requests
            that stand alone.
        run: the folder of the run, by name; empty before it began.
        judged: by what was measured so far; None for nothing.
        levels: that were measured to their end.
        length_s: how long these were, together.
        requests: that were sent in them, warm-up included.
        left_out: levels that count for nothing, as the load generator was the limit in them.
        digest: SHA-256 over the checksums of the run's files, as ``digest_of``.
        ended: why no more was measured, where it was neither a verdict nor the budget.
    """

    gpus: int
    at_gpus: int
    how: How
    users: int | None = None
    rate: float | None = None
    turns: float = 1.0
    run: str = ""
    judged: Judged | None = None
    levels: int = 0
    length_s: float = 0.0
    requests: int = 0
    left_out: int = 0
    digest: str = ""
    ended: str = ""

    @property
    def verdict(self) -> str:
        """``kept``, ``not kept`` or ``undecided``."""
        return "undecided" if self.judged is None else self.judged.verdict

    @property
    def why(self) -> str:
        """The verdict's reason, in words."""
        return self.ended or ("nothing was measured" if self.judged is None else self.judged.why)

    @property
    def load_text(self) -> str:
        """What was sent: ``100 users``, ``12.5 requests/s``; and how, where conversations began at a rate."""
        text = _load_text(self.users, self.rate)
        if self.rate is None or self.turns == 1:
            return text
        return f"{text}, in {self.arrivals:.6g} conversations/s of {self.turns:.4g} requests on the mean"

    @property
    def arrivals(self) -> float | None:
        """What begins each second: requests, or the conversations that bring them; None for users."""
        return None if self.rate is None else float(f"{self.rate / self.turns:.9g}")

    def as_brought(self, judged: Judged, requests: int, length_s: float) -> Judged:
        """No "kept" of a lighter load than was asked for: the end of a level cuts conversations off, with their turns.

        How many conversations begin is chance: three standard errors of it are left.

        Args:
            judged: by what was measured.
            requests: that were sent in whole levels.
            length_s: how long these were, together.
        """
        if judged.verdict != "kept" or self.rate is None or self.turns == 1 or length_s <= 0:
            return judged
        wanted = self.rate * length_s
        if requests >= wanted * (1 - CUT_OFF - 3 / math.sqrt(wanted / self.turns)):
            return judged
        why = (
            f"only {requests / length_s:.4g} requests/s came of the {self.rate:.4g} that were asked for, as levels end "
            "before their conversations do: give a --duration many times as long as a conversation"
        )
        return replace(judged, verdict="undecided", why=why)


@dataclass(frozen=True, slots=True)
class Certificate:
    """Whether so many GPUs keep the SLOs under the load of the question, and whether fewer do not.

    Attributes:
        gpus: the number that was to be proved.
        gpus_per_replica: GPUs come in multiples of it.
        users: of the question; None for a rate.
        rate: requests per second of the question; None for users.
        slos: of the question; all must be kept.
        terms: the chances of being wrong, and what the test goes by.
        budget: what each side could cost, as it was asked for.
        duration_s: length of a level.
        asked: that number of GPUs.
        fewer: one replica less; None where it was not to be tried.
        state: ``running``, ``interrupted`` or ``done``.
        version: of gpusize.
    """

    gpus: int
    gpus_per_replica: int
    users: float | None
    rate: float | None
    slos: tuple[str, ...]
    terms: Terms
    budget: str
    duration_s: float
    asked: Side
    fewer: Side | None = None
    state: Literal["running", "interrupted", "done"] = "running"
    version: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sides(self) -> tuple[Side, ...]:
        """Those that were to be measured."""
        return (self.asked,) if self.fewer is None else (self.asked, self.fewer)

    @property
    def proved(self) -> bool:
        """Whether all that was to be shown is: the number keeps the SLOs and, where it was tried, one less does not."""
        return self.asked.verdict == "kept" and (self.fewer is None or self.fewer.verdict == "not kept")

    @property
    def conclusion(self) -> str:
        """What is to be said of the number, in one sentence, and why."""
        return f"{self.headline}: {self.because}" if self.because else self.headline

    @property
    def because(self) -> str:
        """Why it is not known, or not so; empty where the numbers say all."""
        if self.asked.verdict != "kept":
            return self.asked.why
        return self.fewer.why if self.fewer is not None and self.fewer.verdict == "undecided" else ""

    @property
    def headline(self) -> str:
        """What is to be said of the number, in one sentence."""
        slos = " and ".join(self.slos)
        what = f"{gpus_text(self.gpus)}"
        keep = "keeps" if self.gpus == 1 else "keep"
        if self.asked.verdict == "not kept":
            return f"{what} {'does' if self.gpus == 1 else 'do'} not keep {slos}"
        if self.asked.verdict == "undecided":
            return f"whether {what} {keep} {slos} is undecided"
        if self.fewer is None:
            return f"{what} {keep} {slos}; whether fewer do was not tried"
        less = gpus_text(self.fewer.gpus)
        one = self.fewer.gpus == 1
        if self.fewer.verdict == "not kept":
            return f"{what} {keep} {slos}, and {less} {'does' if one else 'do'} not"
        if self.fewer.verdict == "kept":
            return f"{what} {keep} {slos}, and so {'does' if one else 'do'} {less}: fewer are enough"
        return f"{what} {keep} {slos}; whether {less} {'does' if one else 'do'} is undecided"

    @property
    def load_text(self) -> str:
        """The load of the question, and how it was sent where conversations began at a rate."""
        if self.asked.turns != 1 and self.asked.how == "as asked":
            return self.asked.load_text
        return _load_text(self.users, self.rate)

    @property
    def errors_text(self) -> str:
        """The chances of being wrong."""
        return (
            f'"kept" is wrong in at most {percent_text(self.terms.alpha)} of such proofs, "not kept" in at most '
            f"{percent_text(self.terms.beta)}, whenever they end"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must hold for the verdicts to hold."""
        found = [
            BLOCKS,
            STEADY,
            *self.behind,
            *(self.proportion(side) for side in self.sides if side.how != "as asked"),
        ]
        return tuple(dict.fromkeys(found))

    @property
    def behind(self) -> tuple[str, ...]:
        """What is taken to be behind the addresses that are loaded, where that does not follow from their number."""
        options = self.extra.get("options") or {}
        addresses, gpus = int(options.get("addresses") or 0), self.asked.at_gpus
        if options.get("from_run") and self.asked.how != "as asked":
            return (FROM_RUN.format(gpus=gpus_text(gpus), are="is" if gpus == 1 else "are"),)
        if addresses == 0 or addresses * self.gpus_per_replica == gpus or options.get("scale_command"):
            return ()
        where = "the address that is" if addresses == 1 else f"the {addresses} addresses that are"
        stand = "stands" if gpus == 1 else "stand"
        return (BEHIND.format(gpus=gpus_text(gpus), stand=stand, where=where),)

    def proportion(self, side: Side) -> str:
        """What must hold where a side was not measured as it was asked for."""
        there, spoken = (f"{gpus_text(n)} {'carries' if n == 1 else 'carry'}" for n in (side.at_gpus, side.gpus))
        return PROPORTION.format(at=there, load=side.load_text, gpus=spoken, asked=self.load_text)

    def to_json(self) -> dict[str, Any]:
        """The contents of ``certificate.json``."""
        return {
            "schema": SCHEMA,
            "gpusize": self.version,
            "state": self.state,
            "conclusion": self.conclusion,
            "proved": self.proved,
            "question": {
                "gpus": self.gpus,
                "gpus_per_replica": self.gpus_per_replica,
                "users": self.users,
                "rate": self.rate,
                "slos": list(self.slos),
            },
            "terms": {**self.terms.to_json(), "budget": self.budget, "duration_s": self.duration_s},
            "errors": self.errors_text,
            "assumptions": list(self.assumptions),
            "asked": _side_json(self.asked),
            "fewer": None if self.fewer is None else _side_json(self.fewer),
            **self.extra,
        }


def percent_text(share: float) -> str:
    """``5 %``."""
    return f"{100 * share:.4g} %"


def _load_text(users: float | None, rate: float | None) -> str:
    if rate is not None:
        return f"{rate:.6g} requests/s"
    return f"{users or 0:,.6g} user{'' if users == 1 else 's'}"


def _side_json(side: Side) -> dict[str, Any]:
    names = ("gpus", "at_gpus", "how", "users", "rate", "turns", "run", "levels", "length_s", "requests", "left_out",
             "digest", "ended")  # fmt: skip
    judged = None if side.judged is None else side.judged.to_json()
    return {"verdict": side.verdict, "why": side.why, **{name: getattr(side, name) for name in names}, "judged": judged}


def digest_of(levels: Sequence[LevelData]) -> str:
    """SHA-256 over the checksums of the files of all levels, in the order of levels and names, as lowercase hex.

    Whoever has the run folder makes it again: ``sha256sum`` of each file of ``level.json``'s ``checksums``.
    """
    found = hashlib.sha256()
    for level in levels:
        for name, digest in sorted((level.meta.get("checksums") or {}).items()):
            found.update(f"{level.visit} {name} {digest}\n".encode())
    return found.hexdigest()


def write_certificate(folder: Path, certificate: Certificate) -> Path:
    """Write ``certificate.json`` into a run folder.

    Raises:
        StoreError: it cannot be written.
    """
    with storing(folder):
        write_json(folder / FILE, certificate.to_json())
    return folder / FILE


def read_certificate(folder: Path) -> Certificate | None:
    """The certificate of a run folder; None where it has none.

    Raises:
        StoreError: it cannot be read, or is not one.
    """
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        return _from_json(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"this is no certificate: {error}", str(file), "restore it from a copy, or remove it"
        ) from None


def _from_json(found: Mapping[str, Any]) -> Certificate:
    question, terms = found["question"], dict(found["terms"])
    budget, duration_s = str(terms.pop("budget")), float(terms.pop("duration_s"))
    return Certificate(
        gpus=int(question["gpus"]),
        gpus_per_replica=int(question["gpus_per_replica"]),
        users=question["users"],
        rate=question["rate"],
        slos=tuple(map(str, question["slos"])),
        terms=Terms(**terms),
        budget=budget,
        duration_s=duration_s,
        asked=_side(found["asked"]),
        fewer=None if found["fewer"] is None else _side(found["fewer"]),
        state=found["state"],
        version=str(found["gpusize"]),
        extra={name: found[name] for name in ("options",) if name in found},
    )


def _side(found: Mapping[str, Any]) -> Side:
    kept = {name: value for name, value in found.items() if name not in ("verdict", "why", "judged")}
    judged = found["judged"]
    if judged is None:
        return Side(**kept)
    slos = tuple(
        SloJudged(**{**each, "attainment": float("nan") if each["attainment"] is None else each["attainment"]})
        for each in judged["slos"]
    )
    return replace(Side(**kept), judged=Judged(**{**judged, "slos": slos}))
