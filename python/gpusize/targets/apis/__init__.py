"""APIs by name: our own, and those that other packages offer in the entry point group ``gpusize.targets.apis``."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gpusize.base.errors import EnvironmentLacks, UsageError
from gpusize.base.text import shown
from gpusize.targets.apis.base import Api, ApiOptions, Nature, ResponseSpec, Segment, render
from gpusize.targets.apis.history import Conversing, History
from gpusize.targets.apis.kserve import create_kserve
from gpusize.targets.apis.response_options import response_from_texts
from gpusize.targets.apis.template import BodyTemplate
from gpusize.targets.known_apis import KNOWN
from gpusize.workload.dataset import Dataset

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "GROUP",
    "Api",
    "ApiOptions",
    "BodyTemplate",
    "Conversing",
    "History",
    "Nature",
    "ResponseSpec",
    "Segment",
    "api_names",
    "create_api",
    "create_kserve",
    "encode_rows",
    "guess_api",
    "nature_of_api",
    "render",
    "response_from_texts",
]

GROUP: Final = "gpusize.apis"
"""Entry point group of third parties' APIs."""

_KSERVE_PATH: Final = re.compile(r".*/v2/models/[^/]+(?:/versions/[^/]+)?(?:/infer)?")


def _own(name: str) -> Callable[[ApiOptions], Api]:
    """What makes one of our own APIs."""
    known = KNOWN[name]
    factory: Callable[[ApiOptions], Api] = getattr(
        importlib.import_module(f"gpusize.targets.apis.{known.module}"), known.factory
    )
    return factory


def _offered() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP) if point.name not in KNOWN}


def api_names() -> list[str]:
    """Names of all APIs that can be used here, our own first."""
    return [*KNOWN, *sorted(_offered())]


def create_api(name: str, options: ApiOptions | None = None) -> Api:
    """The API called ``name``.

    Raises:
        UsageError: no such API, or options that it cannot take.
        EnvironmentLacks: another package offers it and cannot be loaded.
    """
    chosen = options or ApiOptions()
    if name in KNOWN:
        return _own(name)(chosen)
    offered = _offered()
    if name not in offered:
        close = difflib.get_close_matches(name, api_names(), n=1)
        hint = f'did you mean "{close[0]}"? ' if close else ""
        raise UsageError(f'there is no API "{shown(name)}"', "api", f"{hint}known are {', '.join(api_names())}")
    point = offered[name]
    try:
        factory = point.load()
    except Exception as problem:  # whatever a foreign module raises while it is imported
        raise EnvironmentLacks(
            f"{point.value} cannot be loaded: {problem}", f"API {name}", "install its package again"
        ) from problem
    made = factory(chosen)
    if not isinstance(made, Api):
        raise EnvironmentLacks(
            f"{point.value} does not make an API", f"API {name}", "see gpusize.targets.apis.base.Api for its shape"
        )
    return made


def nature_of_api(name: str, options: ApiOptions | None = None) -> Nature | None:
    """What a request to the API called ``name`` is, as the API itself declares; None where it declares nothing.

    Raises:
        UsageError: no such API, or options that it cannot take.
        EnvironmentLacks: another package offers it and cannot be loaded.
    """
    return getattr(_own(name) if name in KNOWN else create_api(name, options), "nature", None)


def guess_api(path: str, method: str = "POST") -> str:
    """The API that an address most likely speaks, by the end of its path; generic when nothing else fits.

    An address without a path, or whose path ends in ``/v1``, means chat.
    """
    plain = path.split("?", 1)[0].rstrip("/")
    if method not in {"POST", "PUT"}:
        return "generic"
    fitting = next((name for name, known in KNOWN.items() if plain.endswith(known.endings)), None)
    if fitting is not None:
        return fitting
    if _KSERVE_PATH.fullmatch(plain):
        return "kserve"
    return "openai-chat" if not plain or plain.endswith("/v1") else "generic"


def encode_rows(api: Api, dataset: Dataset) -> list[list[bytes]]:
    """For each row of ``dataset`` the bytes of each of its fields, as the engine's session takes them.

    Raises:
        DatasetError: a row that this API cannot send, with its line.
    """
    return [api.fields(row) for row in dataset]
