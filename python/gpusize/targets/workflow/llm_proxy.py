"""The LLM proxy as an observer of a run: starts it, collects the calls it saw, and ties them to their requests."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.child_process import Child
from gpusize.base.errors import EnvironmentLacks
from gpusize.base.text import shown
from gpusize.base.urls import parse_url
from gpusize.records.calls import write_spans
from gpusize.targets.workflow.mark_calls import set_default_base_url
from gpusize.targets.workflow.match_calls import existing_calls, tie, visit_of
from gpusize.targets.workflow.trace_ids import NO_VISIT

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["REMOTE_PORT", "LlmProxy"]

REMOTE_PORT: Final = 8790
"""Where the proxy listens for a workflow that is a server: its address has to be known before it is started."""
SYNC_S: Final = 5.0
MOST_CALLS: Final = 5_000_000
"""Calls that are kept until a level ends; more are counted and dropped."""
VARIABLES: Final = ("OPENAI_BASE_URL", "OPENAI_API_BASE")


class LlmProxy:
    """A local pass-through that times the calls of language models. It is started once and stopped for good.

    Args:
        upstream: address of the API, as ``http://llm:8000/v1``.
        port: where to listen on loopback; 0 for any free port, ``REMOTE_PORT`` for a workflow that is a server.

    Attributes:
        notes: what the user should know.

    Raises:
        UsageError: not an http or https address, or one with a password in it.
    """

    def __init__(self, upstream: str, *, port: int = 0) -> None:
        self._address = parse_url(upstream)
        self._port = port
        self._lock = threading.Lock()
        self._replied = threading.Event()
        self._calls: list[dict[str, Any]] = []
        self._dropped = 0
        self._still_open = 0
        self._child: Child | None = None
        self._thread: threading.Thread | None = None
        self._before: dict[str, str | None] = {}
        self._added: dict[str, float] = {}
        # Whoever starts a server has to know the address before the proxy is up.
        self.notes = [f"the workflow has to reach its language model at {self.base_url()}"] if port else []

    # ---------------------------------------------------------------------------------------- as an observer of a run

    def start(self) -> None:
        """Bring the proxy up; a second start changes nothing.

        Raises:
            EnvironmentLacks: it does not come up, or its port is taken.
        """
        if self._child is not None:
            return
        child = Child(["gpusize.targets.workflow.proxy", self._address.url("/"), str(self._port)])
        ready = _ready(child)
        self._child = child
        self._port = int(ready["port"])
        self._added = {name: float(ready[name]) for name in ("added_p50_s", "added_p99_s")}
        self._thread = threading.Thread(target=self._read, args=(child,), name="gpusize-llm-proxy", daemon=True)
        self._thread.start()
        self._before = {name: os.environ.get(name) for name in VARIABLES}
        os.environ.update(dict.fromkeys(VARIABLES, self.base_url()))
        set_default_base_url(self.base_url())
        typical_ms, most_ms = (1e3 * self._added[name] for name in ("added_p50_s", "added_p99_s"))
        self.notes += [
            f"LLM calls are timed at {self.base_url()} on their way to {self._address.url()}",
            f"the LLM proxy adds {typical_ms:.2g} ms to each call (p99 {most_ms:.2g} ms)",
        ]

    def base_url(self, trace: str | None = None) -> str:
        """The address that a client has to be given.

        Args:
            trace: trace id of the request that the calls belong to; without it they are tied by their ``traceparent``.
        """
        route = "" if trace is None else f"/r/{trace}"
        return f"http://127.0.0.1:{self._port}{route}{self._address.path.rstrip('/')}"

    def boundary(self) -> None:
        """Nothing is read between levels."""

    def level(self, folder: Path, start_ns: int, end_ns: int) -> dict[str, Any]:
        """Write the level's calls into its folder.

        Args:
            folder: the level's open folder, its records written.
            start_ns: when the level began.
            end_ns: when its last request ended.

        Returns:
            ``llm_proxy`` (``calls``, ``unassigned``, ``still_open``, ``added_p50_s``, ``added_p99_s``,
            ``relay_p99_s``), ``spans`` and ``span_parts`` of the whole level, and ``alerts``.

        Raises:
            StoreError: the calls cannot be written.
        """
        self._sync()
        visit = visit_of(folder)
        with self._lock:
            mine = [call for call in self._calls if _belongs(call, visit, start_ns, end_ns)]
            later = [call for call in self._calls if _is_later(call, visit, end_ns)]
            # Without a key and before the level are the calls of the first request, which goes before the run.
            lost = self._dropped + sum(bool(call["key"]) and call["key"][0] < visit for call in self._calls)
            self._calls, self._dropped = later, 0
        tied, unassigned = tie(folder, visit, mine)
        before, parts = existing_calls(folder)
        parts = sorted([*parts, *write_spans(folder, tied, "proxy")])
        unassigned += lost
        facts = {
            "calls": len(tied),
            "unassigned": unassigned,
            "still_open": self._still_open,
            **self._added,
            "relay_p99_s": _p99_s([call["relay_ns"] for call in mine]),
        }
        alerts = []
        if unassigned:
            todo = "give each request its own gpusize.llm_base_url(), or pass its traceparent on"
            alerts.append(f"{unassigned} LLM calls could not be tied to a request and are left out: {todo}")
        return {"llm_proxy": facts, "spans": before + len(tied), "span_parts": parts, "alerts": alerts}

    def stop(self) -> None:
        """End the proxy; safe to call twice."""
        child, self._child = self._child, None
        if child is None:
            return
        set_default_base_url(None)
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before = {}
        child.end()
        if self._thread is not None:
            self._thread.join(SYNC_S)
        child.close()

    # ------------------------------------------------------------------------------------------------- with the child

    def _read(self, child: Child) -> None:
        for line in child.lines():
            said = json.loads(line)
            if "call" not in said:
                self._still_open = int(said["open"])
                self._replied.set()
                continue
            with self._lock:
                if len(self._calls) < MOST_CALLS:
                    self._calls.append(said["call"])
                else:
                    self._dropped += 1

    def _sync(self) -> None:
        """Wait until everything that has ended has been told."""
        if self._child is None:
            return
        self._replied.clear()
        if self._child.tell("sync"):
            self._replied.wait(SYNC_S)


def _ready(child: Child) -> dict[str, Any]:
    """What the proxy says when it is up.

    Raises:
        EnvironmentLacks: it is not.
    """
    said = child.read() or {"error": ""}
    if "error" in said:
        reason = said["error"] or child.last_words().rpartition("\n")[2]
        child.end()
        child.close()
        raise EnvironmentLacks(f"the LLM proxy did not start: {shown(reason, 300)}", "llm_proxy")
    return said


def _belongs(call: dict[str, Any], visit: int, start_ns: int, end_ns: int) -> bool:
    return bool(call["key"][0] == visit if call["key"] else start_ns <= call["start_ns"] <= end_ns)


def _is_later(call: dict[str, Any], visit: int, end_ns: int) -> bool:
    return bool(visit < call["key"][0] < NO_VISIT if call["key"] else call["start_ns"] > end_ns)


def _p99_s(times_ns: Sequence[int]) -> float | None:
    ordered = sorted(times_ns)
    return round(ordered[int(0.99 * (len(ordered) - 1))] / 1e9, 6) if ordered else None
