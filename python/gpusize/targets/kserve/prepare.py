"""From a target, its models and the user's inputs to what can be sent: a path, a dataset and an API that knows both."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from gpusize.base.errors import UsageError
from gpusize.base.text import shown
from gpusize.targets.apis.base import Api, Segment
from gpusize.targets.apis.kserve import KSERVE, Kserve, KserveGrpc, create_kserve, is_kserve
from gpusize.targets.kserve.client import KserveClient, connect
from gpusize.targets.kserve.entries import parse_shapes
from gpusize.targets.kserve.inputs import TENSORS, dataset_of_rows, read_inputs
from gpusize.targets.kserve.metadata import ModelMetadata
from gpusize.targets.kserve.mix import interleave, parse_models
from gpusize.targets.kserve.rows import TensorRow
from gpusize.workload.dataset import Dataset, Row

if TYPE_CHECKING:
    from gpusize.targets.server import Target

__all__ = ["KserveRun", "prepare_kserve", "split_path"]

_PATH: Final = re.compile(r"(?P<prefix>.*)/v2/models/(?P<model>[^/?]+)(?:/versions/(?P<version>[^/?]+))?(?:/infer)?/?")


@dataclass(frozen=True)
class KserveRun:
    """A KServe run ready to be sent.

    Args:
        target: the target, its URL with the path of the (first) model's inferences.
        api: encodes every row of the dataset, whichever model it goes to.
        dataset: the requests.
        models: what is asked, in the order of their numbers in the records.
        inferences_per_request: mean batch of the dataset's requests: inferences/s is requests/s times this.
        client: answers questions about the server; statistics come from it.
    """

    target: Target
    api: Api
    dataset: Dataset
    models: tuple[ModelMetadata, ...]
    inferences_per_request: float
    client: KserveClient

    def options(self, inputs: Sequence[str], shapes: Sequence[str], batch: int) -> dict[str, Any]:
        """The options that make this dataset again, as ``--config`` takes them."""
        given = {"input": list(inputs), "shape": list(shapes), "batch": None if batch == 1 else batch}
        return {name: value for name, value in given.items() if value}


class _MixApi:
    """Several models behind one name: a row is encoded by the API of its model."""

    def __init__(self, apis: Mapping[str, Kserve], plain: Kserve, prefix: str) -> None:
        self._apis = dict(apis)
        self._plain = plain
        self._prefix = prefix
        self.name = plain.name
        if isinstance(plain, KserveGrpc):
            self.transport = plain.transport
        self.default_path = next(iter(apis.values())).default_path

    def segments(self) -> list[Segment]:
        """Those of the first model; the mix has each model's own."""
        return next(iter(self._apis.values())).segments()

    def fields(self, row: Row) -> list[bytes]:
        """The row's pieces."""
        return self._apis[row.fields["model"]].fields(row)

    def response(self) -> dict[str, Any]:
        """How to read an answer."""
        return self._plain.response()

    def headers(self) -> list[tuple[str, str]]:
        """Headers of all requests; the mix adds each model's own."""
        return self._plain.headers()

    def mix(self, dataset: Dataset) -> dict[str, Any]:
        """The engine's ``requests``, one per model in the order in which they appear, and ``of_row``."""
        named = [str(row["model"]) for row in dataset.rows]
        names = list(dict.fromkeys(named))
        plain = {name for name, _ in self.headers()}
        requests = [
            {
                "path": self._prefix + self._apis[name].default_path,
                "segments": self._apis[name].segments(),
                "headers": [[key, value] for key, value in self._apis[name].headers() if key not in plain],
                "model": number,
            }
            for number, name in enumerate(names)
        ]
        return {"requests": requests, "of_row": [names.index(name) for name in named]}


def split_path(path: str) -> tuple[str, str | None, str | None]:
    """What stands before ``/v2`` in a path, the model and the version that it names."""
    match = _PATH.fullmatch(path)
    if match:
        version = match["version"]
        return match["prefix"], unquote(match["model"]), None if version is None else unquote(version)
    plain = path.split("?", 1)[0].rstrip("/")
    return ("" if plain.startswith("/inference.") else plain.removesuffix("/v2")), None, None


def prepare_kserve(
    target: Target,
    inputs: Sequence[str],
    *,
    shapes: Sequence[str] = (),
    batch: int = 1,
    seed: int = 0,
    client: KserveClient | None = None,
    priorities: Sequence[int] = (),
) -> KserveRun:
    """Ask the server what its models take and make the requests.

    Args:
        target: the server; ``model`` may name several with their weights, ``a=3,b=1``.
        inputs: as `gpusize.targets.kserve.inputs.read_inputs`; with several models each gets all of them.
        shapes: ``NAME:3,224,224`` for inputs whose dimensions vary.
        batch: inferences in one request.
        seed: of random inputs.
        client: for tests.
        priorities: numbers that requests may be given later (`measure.mix.streamed`): all heads have one length.

    Raises:
        TargetError: the server does not answer, or has no such model; it names those that exist.
        UsageError: invalid options.
        DatasetError: an input that does not fit its model.
    """
    name = str(target.api)
    if not is_kserve(name):
        raise UsageError(f'"{shown(name)}" is not a KServe API', "api", f"use one of {', '.join(KSERVE)}")
    plain = target.make_api()
    grpc = issubclass(KSERVE[name], KserveGrpc)
    prefix, in_path, version = split_path(target.address.path)
    asked = client or connect(target.to_spec(plain), grpc=grpc, prefix=prefix)
    weights = _weights(target, in_path, asked)
    given = parse_shapes(shapes)
    options = target.api_options()
    models = [asked.metadata(each, version if each == in_path else None) for each in weights]
    if len(models) > 1:
        _check_names(given, models)
    sets, apis = [], {}
    for each, model in zip(weights, models, strict=True):
        dataset = read_inputs(inputs, model, shapes=_known(given, model, len(weights)), batch=batch, seed=seed)
        sets.append(dataset)
        made = _rows(dataset)
        longest = max(priorities, key=lambda number: len(str(number)), default=None)
        apis[each] = create_kserve(name, options, model, [replace(row, priority=longest) for row in made])
    dataset = _combined(list(weights.items()), sets)
    first = next(iter(apis.values()))
    spoken: Api = first if len(apis) == 1 else _MixApi(apis, KSERVE[name](options), prefix)
    rows = _rows(dataset)
    return KserveRun(
        replace(target, url=target.address.url(prefix + first.default_path)),
        spoken,
        dataset,
        tuple(models),
        sum(row.batch for row in rows) / len(rows),
        asked,
    )


def _weights(target: Target, in_path: str | None, client: KserveClient) -> dict[str, int]:
    if target.model:
        return parse_models(target.model)
    if in_path:
        return {in_path: 1}
    found = client.models()
    if len(found) == 1:
        return {found[0]: 1}
    names = f"the server has {', '.join(shown(each) for each in found[:8])}" if found else "give --model NAME"
    raise UsageError("no model is named", "model", names)


def _known(shapes: Mapping[str, tuple[int, ...]], model: ModelMetadata, models: int) -> Mapping[str, tuple[int, ...]]:
    """The shapes for one model; of several models, those of its inputs whose dimensions vary."""
    if models == 1:
        return shapes
    varying = {spec.name for spec in model.inputs if -1 in model.dims(spec)}
    return {name: shape for name, shape in shapes.items() if name in varying}


def _check_names(shapes: Mapping[str, tuple[int, ...]], models: Sequence[ModelMetadata]) -> None:
    """Refuse a shape for an input that no model has."""
    names = list(dict.fromkeys(spec.name for model in models for spec in model.inputs))
    unknown = next((name for name in shapes if name not in names), None)
    if unknown is not None:
        owners = ", ".join(shown(model.name) for model in models)
        todo = f"the inputs are {', '.join(map(shown, names))}"
        raise UsageError(f'{owners}: no input "{shown(unknown)}"', "shape", todo)


def _rows(dataset: Dataset) -> list[TensorRow]:
    return [fields[TENSORS] for fields in dataset.rows]


def _combined(weights: Sequence[tuple[str, int]], sets: Sequence[Dataset]) -> Dataset:
    """One dataset of all requests in the order in which they are sent."""
    if len(sets) == 1:
        return sets[0]
    cycle = interleave([weight for _, weight in weights], [len(each) for each in sets])
    rows = [_rows(each) for each in sets]
    return dataset_of_rows(
        [rows[model][row] for model, row in cycle],
        source=sets[0].source,
        notes=list(dict.fromkeys(note for each in sets for note in each.notes)),
        models=[weights[model][0] for model, _ in cycle],
    )
