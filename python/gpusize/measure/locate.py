"""Where an address leaves the API's path open, or the path the API: the way that answers the first row is taken.

A gateway's base address (``https://h/openai``) has no path of an API, and ``/generate`` is served by workflows and by
several inference servers with bodies of their own. What the user said outright is never changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpusize.base.errors import DatasetError, TargetError, UsageError
from gpusize.base.urls import parse_url
from gpusize.measure.encode import prepare
from gpusize.measure.probe import refusal
from gpusize.targets.apis import create_api
from gpusize.targets.server import Target

if TYPE_CHECKING:
    from gpusize.engine.session import AnyEngine, ProbeRecord
    from gpusize.measure.spec import RunSpec

__all__ = ["located", "other_ways"]

_NO_SUCH_PATH: Final = frozenset({404, 405})
_OTHER_BODY: Final = frozenset({400, 415, 422, 500})
"""What servers say to a body that is meant for another API; sloppy ones fail on it."""

_SHARED_PATHS: Final = ("/generate", "/generate/stream")
"""Paths that a workflow has and other servers too."""


def other_ways(target: Target) -> list[Target]:
    """The same server by other paths, or with another API, where the user has said neither; the likeliest first."""
    path = target.address.path
    if "?" in path:
        return []
    path = path.rstrip("/")
    if target.api_is_guessed and target.api == "nat":
        return [replace(target, api="generic")] if path.endswith(_SHARED_PATHS) else []
    name = _versioned(target)
    if name is None or not path:
        return []
    default = create_api(name, target.api_options()).default_path
    ending = default.removeprefix("/v1")
    return [] if path.endswith(ending) else [_moved(target, path + more, name) for more in (ending, default)]


def _versioned(target: Target) -> str | None:
    """The API below ``/v1``: the named one, or chat where nothing says what else it is."""
    name = str(target.api)
    if name != "generic":
        return name if target.make_api().default_path.startswith("/v1/") else None
    # Who says how bodies are made or answers read does not mean chat.
    own = target.body_template or target.response or target.method != "POST"
    return "openai-chat" if target.api_is_guessed and not own else None


def _moved(target: Target, path: str, api: str) -> Target:
    first, *others = (parse_url(url).url(path) for url in target.urls)
    return replace(target, url=first, replicas=tuple(others), api=api)


def located(spec: RunSpec, engine: Callable[..., AnyEngine]) -> tuple[RunSpec, list[str]]:
    """The run, sent to where the server answers, and what the user should know of that.

    Where the address and the API are sure nothing is sent here. Otherwise the first row goes to the address as it
    stands, and only if there is no such path, or the body is not understood, to the other ways.

    Raises:
        TargetError: none of them answers; the text names all that were tried.
    """
    target = spec.target
    ways = other_ways(target) if isinstance(target, Target) else []
    if not ways or not isinstance(target, Target):
        return spec, []
    record = _first(spec, target, engine)
    if not _is_elsewhere(record, target):
        return spec, []
    tried = [_said(target, record)]
    for way in ways:
        try:
            found = _first(spec, way, engine)
        except (UsageError, DatasetError):
            # These rows, or these options, do not fit that API.
            continue
        if found["outcome"] == "ok":
            note = (
                f"{_said(target, record)}; the first request was understood by {way.url} ({way.api}), which is measured"
            )
            return replace(spec, target=way), [note]
        tried.append(_said(way, found))
    problem = refusal(record, target)
    path = "say how a body looks with --body-template" if target.api == "nat" else "give the whole address"
    todo = f"tried {', '.join(tried)}; {path}, or name the API with --api"
    raise TargetError(problem.what, problem.where, todo)


def _first(spec: RunSpec, target: Target, engine: Callable[..., AnyEngine]) -> ProbeRecord:
    ready = prepare(target, spec.dataset, load=spec.load)
    with engine({**ready.spec, "replicas": []}, ready.segments, ready.rows[:1], workers=1) as one:
        return one.probe()


def _is_elsewhere(record: ProbeRecord, target: Target) -> bool:
    if target.api == "nat":
        return record["status"] in _OTHER_BODY or record["outcome"] in {"api_error", "protocol_error"}
    return record["status"] in _NO_SUCH_PATH


def _said(target: Target, record: ProbeRecord) -> str:
    what = record["status"] if record["outcome"] == "http_error" else record["outcome"]
    return f"{target.url} as {target.api} ({what})"
