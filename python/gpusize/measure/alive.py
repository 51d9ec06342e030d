"""Whether the target of a sweep still answers: after a level that broke, one that had held is measured once more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gpusize.analysis.broken import Look, broke, check_load, failed_of, failed_text, has_failed, load_of
from gpusize.analysis.failures import failures_text
from gpusize.analysis.stop_cause import Stop

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.measure.sweep import Step

__all__ = ["Alive"]


@dataclass
class Alive:
    """Looks at the levels of a sweep as they are committed.

    Only levels of one steady load count, each apart from the others: stages follow a clock of their own, and measuring
    one of them again would be another load.

    Attributes:
        failed: that the target has failed, in words; empty while it has not.
    """

    failed: str = ""
    _looks: list[Look] = field(default_factory=list)
    _steps: dict[float, Step] = field(default_factory=dict)
    _first: tuple[str, str] | None = None
    _asked: bool = False

    @classmethod
    def of(cls, steps: Iterable[Step], earlier: Iterable[LevelData]) -> Alive:
        """One that knows what an earlier part of a resumed run has measured well.

        Args:
            steps: all steps of the run.
            earlier: its levels so far.
        """
        found, known = cls(), {step.index: step for step in steps}
        for level in earlier:
            step = known.get(int(level.meta.get("step", -1)))
            if step is not None and not broke(level.state, level.meta):
                found.after(step, level.meta)
        return found

    def after(self, step: Step, level: Mapping[str, Any]) -> Step | Stop | None:
        """What a level that was committed calls for: a step to measure next, the end, or nothing.

        Args:
            step: what was measured.
            level: its ``level.json``.
        """
        load, state = load_of(step.setting), str(level["state"])
        if load is None or step.setting.get("stage") is not None or state not in ("done", "interrupted"):
            return None
        fell = broke(state, level)
        failed, ended = failed_of(level.get("outcomes") or {})
        self._looks.append(Look(load, fell, failed=failed, ended=ended))
        if step.checks is not None:
            self._asked = False
        if not fell:
            self._steps[load], self._first = step, None
            return None
        told = (_named(step.setting), failures_text(level, brief=True))
        if self._first is not None and has_failed(self._looks):
            self.failed = failed_text(*self._first, *told)
            return Stop("errors", 0, self.failed)
        self._first = self._first or told
        again = None if self._asked else check_load(self._looks)
        if again is None:
            return None
        self._asked = True
        return replace(self._steps[again], checks=int(level["visit"]))


def _named(setting: Mapping[str, Any]) -> str:
    closed = setting.get("concurrency")
    return f"{setting['rate']:g} requests/s" if closed is None else f"concurrency {closed}"
