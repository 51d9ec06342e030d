"""Sends workloads: each request an attempt, put off or failed ones again, until they are created or refused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, Final

from gpusize.base.errors import GpusizeError, TargetError
from gpusize.base.text import shown
from gpusize.cluster.access.api import Answer, KubeApi, Resource
from gpusize.cluster.access.refused import status_of
from gpusize.cluster.submit.attempts import RETRIED, Outcomes
from gpusize.cluster.submit.journal import Journal
from gpusize.cluster.submit.tally import Tally
from gpusize.cluster.submit.workloads import KubeObject, Workload
from gpusize.cluster.tables import LABEL_RUN, LABEL_WORKLOAD

__all__ = ["METADATA", "Sender", "Sending", "pause"]

METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""Answers hold no more of an object than its metadata, which has its uid."""

FIRST: Final = 10
"""Where so many workloads have failed and none was created, the others are not tried."""

_BACKOFF_S: Final = 0.25
_MOST_BACKOFF_S: Final = 8.0
_MESSAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Sending:
    """How a submission sends.

    Attributes:
        run: id of the run.
        namespace: of the workloads.
        resources: of their kinds, by API version and kind.
        retries: how often a request is sent again.
        at_once: most requests under way.
        seed: of the pauses before retries.
        now_ns: the clock, ns since 1970.
    """

    run: str
    namespace: str
    resources: Mapping[tuple[str, str], Resource]
    retries: int
    at_once: int
    seed: int
    now_ns: Callable[[], int]


async def pause(seconds: float, stop: asyncio.Event) -> bool:
    """Wait, or until a stop is asked for; whether it was."""
    if seconds > 0 and not stop.is_set():
        try:
            async with asyncio.timeout(seconds):
                await stop.wait()
        except TimeoutError:
            pass
    return stop.is_set()


class Sender:
    """Sends workloads to one API server.

    Args:
        api: the server.
        sending: how.
        journal: takes the rows.
        tally: counts.
        earlier: what became of the workloads before.
        stop: set when nothing more is to be sent.
    """

    def __init__(
        self, api: KubeApi, sending: Sending, journal: Journal, tally: Tally, earlier: Outcomes, stop: asyncio.Event
    ) -> None:
        self._api = api
        self._how = sending
        self._journal = journal
        self._tally = tally
        self._earlier = earlier
        self._stop = stop
        self._slots = asyncio.Semaphore(sending.at_once)
        self._under_way: set[asyncio.Timeout] = set()
        self._draws = random.Random(sending.seed)
        self.gave_up: str | None = None

    def cut(self) -> None:
        """Wait no more for the answers that are still to come."""
        now = asyncio.get_running_loop().time()
        for each in self._under_way:
            each.reschedule(now)

    async def send(self, workload: Workload, due_ns: int) -> None:
        """Create the objects of a workload one after the other, as far as that goes.

        Args:
            workload: what is left of it is created.
            due_ns: when, ns since 1970.
        """
        first_ns = self._earlier.first_sent_ns.get(workload.index)
        tried = self._earlier.of(workload.index)
        for each in workload.objects:
            before = tried.get((each.kind, each.name))
            if before is not None and before.created:
                continue
            sent_ns, row = await self._create(workload, each, due_ns, before.attempts if before else 0)
            if sent_ns is not None and first_ns is None:
                first_ns = sent_ns
                self._tally.sent(sent_ns - due_ns)
            if row is None or row["uid"] is None:
                self._failed(row)
                return
            due_ns = self._how.now_ns()
        self._tally.created += 1
        self._journal.submitted(workload.index, workload.name, first_ns if first_ns is not None else due_ns)

    async def _create(
        self, workload: Workload, each: KubeObject, due_ns: int, number: int
    ) -> tuple[int | None, dict[str, Any] | None]:
        """When it was first sent, and the last attempt; None for what there was none of."""
        first_ns, row = None, None
        for again in range(self._how.retries + 1):
            if self._slots.locked():
                self._tally.bound_reached += 1
            async with self._slots:
                if self._stop.is_set():
                    return first_ns, None
                row = await self._attempt(workload, each, number + again, due_ns)
            first_ns = row["sent_ns"] if first_ns is None else first_ns
            if row["status"] not in RETRIED or again == self._how.retries:
                break
            backoff_s = min(_BACKOFF_S * 2.0**again, _MOST_BACKOFF_S) * self._draws.uniform(0.5, 1.0)
            if await pause(max(backoff_s, row["retry_after_s"] or 0.0), self._stop):
                return first_ns, None
            self._tally.retried += 1
            due_ns = self._how.now_ns()
        return first_ns, row

    async def _attempt(self, workload: Workload, each: KubeObject, number: int, due_ns: int) -> dict[str, Any]:
        resource = self._how.resources[each.api_version, each.kind]
        row: dict[str, Any] = {
            "workload": workload.name,
            "index": workload.index,
            "kind": each.kind,
            "name": each.name,
            "namespace": self._how.namespace,
            "attempt": number,
            "due_ns": due_ns,
            "sent_ns": self._how.now_ns(),
            "acknowledged_ns": None,
            "status": 0,
            "reason": None,
            "message": None,
            "retry_after_s": None,
            "uid": None,
            "server_date_s": None,
        }
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._under_way.add(limit)
                answer = await self._api.post(resource.path(self._how.namespace), each.body, accept=METADATA)
                row["acknowledged_ns"] = self._how.now_ns()
                self._read(answer, row)
                if answer.status == 409:
                    await self._look(resource, workload, each, row)
        except TimeoutError:
            row |= {"status": 0, "acknowledged_ns": None, "reason": "Interrupted"}
            row["message"] = "the command ended before the answer came"
        except TargetError as problem:
            row |= {"reason": "NoAnswer", "message": shown(problem.what, _MESSAGE)}
        finally:
            self._under_way.discard(limit)
        self._tally.answered(row["status"], row["retry_after_s"])
        self._journal.add(row)
        return row

    def _read(self, answer: Answer, row: dict[str, Any]) -> None:
        row["status"] = answer.status
        row["server_date_s"] = _seconds(answer.headers.get("date"))
        if answer.status < 300:
            row["uid"] = _metadata(answer).get("uid") or ""
            return
        said = status_of(answer.body)
        row["reason"] = str(said.get("reason") or "") or None
        row["message"] = shown(str(said.get("message") or answer.body[:_MESSAGE].decode("utf-8", "replace")), _MESSAGE)
        row["retry_after_s"] = answer.retry_after_s

    async def _look(self, resource: Resource, workload: Workload, each: KubeObject, row: dict[str, Any]) -> None:
        """Whose an object is that is there already: ours, where the answer to an earlier attempt was lost."""
        try:
            path = resource.path(self._how.namespace, each.name)
            found = await self._api.ask("GET", path, accept=METADATA)
        except GpusizeError:
            return
        metadata = _metadata(found) if found.status == 200 else {}
        labels = metadata.get("labels") or {}
        if labels.get(LABEL_RUN) == self._how.run and labels.get(LABEL_WORKLOAD) == workload.name:
            row["uid"] = metadata.get("uid") or ""
            row["message"] = "it is ours: an earlier attempt created it, and its answer was lost"
        elif found.status == 200:
            row["message"] = f"{row['message']}; it is not of this run"

    def _failed(self, row: Mapping[str, Any] | None) -> None:
        if row is None or row["reason"] == "Interrupted":
            return
        self._tally.failed += 1
        if self._tally.failed == FIRST and not self._tally.created and self.gave_up is None:
            word = f"{row['status']} {row['reason'] or ''}".strip() if row["status"] else "no answer"
            self.gave_up = f"the first {FIRST} workloads all failed, the last with {word}: {row['message']}"
            self._stop.set()


def _metadata(answer: Answer) -> Mapping[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        return {}
    metadata = found.get("metadata") if isinstance(found, dict) else None
    return metadata if isinstance(metadata, dict) else {}


@lru_cache(maxsize=8)
def _seconds(date: str | None) -> int | None:
    """A ``Date`` header as seconds since 1970."""
    try:
        return None if date is None else int(parsedate_to_datetime(date).timestamp())
    except (ValueError, TypeError):
        return None
