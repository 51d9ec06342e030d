"""From a target and a dataset to what the engine's session takes: all bytes are made here, before the first request."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpusize.apis import encode_rows
from gpusize.errors import UsageError
from gpusize.mixing import think_times_ns, with_priority_header
from gpusize.target import Target
from gpusize.workflow.target import WorkflowTarget

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpusize.apis import Api
    from gpusize.dataset import Dataset
    from gpusize.load import Load

__all__ = ["Prepared", "model_names", "prepare"]

_MOST_TURNS: Final = 65_535


@dataclass(frozen=True)
class Prepared:
    """What a session is opened with; see docs/reference/engine.md.

    Attributes:
        spec: the TargetSpec.
        segments: the pieces of every body.
        rows: for each row of the dataset the bytes of its fields.
        mix: several requests, conversations and models, where there are such; else None.
    """

    spec: dict[str, Any]
    segments: list[dict[str, Any]]
    rows: list[list[bytes]]
    mix: dict[str, Any] | None = None


def prepare(
    target: Target, dataset: Dataset, api: Api | None = None, *, load: Load | None = None, trace: bool = False
) -> Prepared:
    """Encode every row.

    Args:
        target: where to send.
        dataset: what to send.
        api: what encodes the rows, where it had to be made beforehand; else the target's own.
        load: how it will be sent: recorded think times, priorities in a header, cores and addresses to send from.
        trace: each request says which one it is, in a ``traceparent`` header, for the LLM proxy behind a workflow.

    Raises:
        UsageError: a secret cannot be read, or options that the API cannot take.
        DatasetError: a row that the API cannot send, with its line.
    """
    spoken = api or target.make_api()
    rows = encode_rows(spoken, dataset)
    spec = {**target.to_spec(spoken), "trace": trace}
    if load is not None:
        spec |= {"pin": list(load.pin), "source_addresses": list(load.source_addresses)}
    return Prepared(spec, spoken.segments(), rows, _mix(target, spoken, dataset, load))


def _mix(target: Target, api: Api, dataset: Dataset, load: Load | None) -> dict[str, Any] | None:
    """The API's own mix of requests, and what the rows say of models and conversations."""
    made = getattr(api, "mix", None)
    mix: dict[str, Any] | None = made(dataset) if made is not None else None
    sessions, turns = _conversations(dataset.rows)
    if load is not None and load.sessions and sessions is None:
        todo = 'give rows "session", as sharegpt and multi-turn files have it, or leave out --sessions'
        raise UsageError("no row says which conversation it belongs to", dataset.source, todo)
    models = _models(target, dataset)
    recorded = load is not None and load.thinking.kind == "recorded"
    header = None if load is None else load.priority_header
    if mix is None and sessions is None and len(set(models)) == 1 and not recorded and header is None:
        return None
    if mix is None:
        names = model_names(target, dataset)
        plain = {"path": target.address.path or "/", "segments": api.segments(), "headers": []}
        mix = {
            "requests": [{**plain, "model": index} for index in range(len(names))],
            "of_row": [names.index(name or "") for name in models],
        }
    mix |= {"sessions": sessions, "turns": turns, "think_ns": think_times_ns(dataset) if recorded else None}
    return mix if header is None else with_priority_header(mix, dataset, header)


def model_names(target: Target | WorkflowTarget, dataset: Dataset) -> list[str]:
    """The models that a run asks for, in the order of the records' ``model``; "" where nobody says."""
    named = _models(target, dataset)
    return list(dict.fromkeys([*([""] if None in named else []), *(name for name in named if name is not None)]))


def _models(target: Target | WorkflowTarget, dataset: Dataset) -> list[str | None]:
    """Which model each row goes to: a single model of the target wins over what rows say."""
    if isinstance(target, Target) and len(target.models) == 1:
        return [next(iter(target.models))] * len(dataset.rows)
    own = target.model if isinstance(target, WorkflowTarget) else None
    return [row["model"] if isinstance(row.get("model"), str) else own for row in dataset.rows]


def _conversations(rows: Sequence[Mapping[str, Any]]) -> tuple[list[int] | None, list[int] | None]:
    """Numbers of the conversations, by first appearance, and turns within them; a row without one is one of its own.

    Turns that rows do not number are counted in their order.
    """
    if not any(row.get("session") is not None for row in rows):
        return None, None
    numbers: dict[str, int] = {}
    begun: Counter[int] = Counter()
    sessions: list[int] = []
    turns: list[int] = []
    for index, row in enumerate(rows):
        name = row.get("session")
        sessions.append(numbers.setdefault(f"row {index}" if name is None else f"session {name}", len(numbers)))
        number, turn = sessions[-1], row.get("turn")
        if not isinstance(turn, int) or isinstance(turn, bool) or not 0 <= turn < _MOST_TURNS:
            turn = min(begun[number], _MOST_TURNS - 1)
        turns.append(turn)
        begun[number] += 1
    return sessions, turns
