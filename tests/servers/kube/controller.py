"""What doubles of controllers have in common: each collection is listed and then watched, whatever the server does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import httpx

__all__ = ["Controller", "put"]

_PAUSE_S = 0.1
_TIMEOUT_S = 30.0
_AT_ONCE = 8
"""Objects of a collection that are handled at the same time, as controllers do."""


class _Expired(Exception):
    """The watch's version is gone: list again."""


class Controller:
    """Calls ``handle`` for each object that is there, that comes, and that changes; a context manager.

    Args:
        client: makes a client of the API with all rights; each collection has one of its own.
        paths: of the collections.
    """

    def __init__(self, client: Callable[[], httpx.Client], paths: Sequence[str]) -> None:
        self._client = client
        self._ended = threading.Event()
        self.refused: list[str] = []
        """What the API server would not take, in its words."""
        self._threads = [threading.Thread(target=self._run, args=(path,), name=path) for path in paths]

    def handle(self, client: httpx.Client, path: str, found: dict[str, Any]) -> None:
        """Make what the object lacks; it may be called with the same one again."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, path: str) -> None:
        with self._client() as client, ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=path) as pool:

            def handled(found: dict[str, Any]) -> None:
                pool.submit(self._handled, client, path, found)

            # A watch that brings nothing is looked away from now and then, to see whether this ends.
            client.timeout = httpx.Timeout(_TIMEOUT_S, read=0.5)
            version = ""
            while not self._ended.is_set():
                try:
                    if not version:
                        version = self._listed(client, path, handled)
                    for kind, found in _watched(client, path, version):
                        if kind in {"ADDED", "MODIFIED"}:
                            handled(found)
                        version = found["metadata"]["resourceVersion"]
                except httpx.ReadTimeout:
                    continue
                except _Expired:
                    version = ""
                except httpx.HTTPError:
                    # The API server is away: try again until it is back.
                    self._ended.wait(_PAUSE_S)

    @staticmethod
    def _listed(client: httpx.Client, path: str, handled: Callable[[dict[str, Any]], None]) -> str:
        answer = client.get(path, timeout=_TIMEOUT_S)
        answer.raise_for_status()
        listed = answer.json()
        for found in listed["items"]:
            handled(found)
        version: str = listed["metadata"]["resourceVersion"]
        return version

    def _handled(self, client: httpx.Client, path: str, found: dict[str, Any]) -> None:
        """One that the API server refuses (a name too long, a namespace that ends) is noted; else until it is there."""
        while "deletionTimestamp" not in found["metadata"] and not self._ended.is_set():
            try:
                self.handle(client, path, found)
            except httpx.HTTPStatusError as refused:
                answer = refused.response
                if answer.is_client_error and answer.status_code != httpx.codes.TOO_MANY_REQUESTS:
                    self.refused.append(f"{found['metadata']['name']}: {answer.text}")
                    return
            except httpx.HTTPError:
                pass  # the API server is away
            else:
                return
            self._ended.wait(_PAUSE_S)


def put(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Create an object in the collection at this path; one that is there already stays as it is, and is what is had."""
    answer = client.post(path, json=body, timeout=_TIMEOUT_S)
    if answer.status_code == httpx.codes.CONFLICT:
        answer = client.get(f"{path}/{body['metadata']['name']}", timeout=_TIMEOUT_S)
    answer.raise_for_status()
    made: dict[str, Any] = answer.json()
    return made


def _watched(client: httpx.Client, path: str, version: str) -> Iterator[tuple[str, dict[str, Any]]]:
    query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"}
    with client.stream("GET", path, params=query) as answer:
        if answer.status_code == httpx.codes.GONE:
            raise _Expired
        answer.raise_for_status()
        for line in answer.iter_lines():
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise _Expired
            yield event["type"], event["object"]
