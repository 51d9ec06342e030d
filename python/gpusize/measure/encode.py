"""From a target and a dataset to what the engine's session takes: all bytes are made here, before the first request."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.measure.mix import SESSION_PART, think_times_ns, with_priority_header
from gpusize.targets.apis import Conversing, encode_rows
from gpusize.targets.server import Target
from gpusize.targets.workflow.target import WorkflowTarget
from gpusize.workload.dataset import TRACES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpusize.targets.apis import Api
    from gpusize.workload.dataset import Dataset
    from gpusize.workload.load import Load

__all__ = ["Prepared", "mean_turns", "model_names", "prepare"]

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
    talks = _conversations(dataset.rows)
    _check_sessions(target, spoken, dataset, load, talks)
    rows, answers = _encoded(target, spoken, dataset, talks)
    spec = {**target.to_spec(spoken), "trace": trace}
    if load is not None:
        spec |= {"pin": list(load.pin), "source_addresses": list(load.source_addresses)}
    mix = _mix(target, spoken, dataset, load, talks, answers)
    return Prepared(spec, _segments(spoken, answers[0]), rows, mix)


def _check_sessions(target: Target, api: Api, dataset: Dataset, load: Load | None, talks: _Talks | None) -> None:
    """Refuse what only conversations have, where requests stand alone."""
    if load is not None and load.sessions and talks is None:
        todo = 'give rows "session", as sharegpt and multi-turn files have it, or leave out --sessions'
        raise UsageError("no row says which conversation it belongs to", dataset.source, todo)
    if load is not None and load.sessions:
        return
    if target.history == "answers":
        todo = "add --sessions, so that a turn waits for the answer before it, or use --history recorded"
        raise UsageError("later turns repeat answers, and these are single requests", "history", todo)
    if any("capture" in segment for segment in api.segments()):
        todo = "add --sessions, so that a turn waits for the answer before it, or leave ${answer:…} out"
        raise UsageError("it repeats earlier answers, and these are single requests", "body template", todo)


def _encoded(target: Target, api: Api, dataset: Dataset, talks: _Talks | None) -> tuple[list[list[bytes]], list[int]]:
    """For each row the bytes of its fields, and how many answers its body repeats."""
    if target.history == "recorded" or talks is None:
        return encode_rows(api, dataset), [0] * len(dataset)
    if not isinstance(api, Conversing):
        todo = "write ${answer:-1} into a --body-template, or use --history recorded"
        raise UsageError(f"the {api.name} API has no messages to put answers between", "history", todo)
    if dataset.fmt in TRACES:
        todo = "use --history recorded: the lengths of a trace are those of whole requests"
        raise UsageError(
            "the made-up prompts of a trace already stand for the whole conversation", dataset.source, todo
        )
    rows: list[list[bytes]] = [[] for _ in range(len(dataset))]
    answers = [0] * len(dataset)
    for turns in talks.in_order():
        for answered, (row, fields) in enumerate(
            zip(turns, api.conversation([dataset[row] for row in turns]), strict=True)
        ):
            rows[row], answers[row] = fields, answered
    return rows, answers


def _segments(api: Api, answers: int) -> list[dict[str, Any]]:
    return api.segments_after(answers) if answers and isinstance(api, Conversing) else api.segments()


def _mix(
    target: Target, api: Api, dataset: Dataset, load: Load | None, talks: _Talks | None, answers: Sequence[int]
) -> dict[str, Any] | None:
    """The API's own mix of requests, and what the rows say of models and conversations."""
    made = getattr(api, "mix", None)
    mix: dict[str, Any] | None = made(dataset) if made is not None else None
    models = _models(target, dataset)
    recorded = load is not None and load.thinking.kind == "recorded"
    header = None if load is None else load.priority_header
    if mix is None and talks is None and len(set(models)) == 1 and not recorded and header is None:
        return None
    if mix is None:
        numbers = {name: number for number, name in enumerate(model_names(target, dataset))}
        wanted = [(numbers[name or ""], count) for name, count in zip(models, answers, strict=True)]
        kinds = {kind: number for number, kind in enumerate(dict.fromkeys(wanted))}
        plain = {"path": target.address.path or "/", "headers": []}
        mix = {
            "requests": [{**plain, "segments": _segments(api, count), "model": model} for model, count in kinds],
            "of_row": [kinds[kind] for kind in wanted],
        }
    said = {"sessions": None, "turns": None} if talks is None else {"sessions": talks.numbers, "turns": talks.turns}
    mix |= said | {"think_ns": think_times_ns(dataset) if recorded else None}
    return mix if header is None else with_priority_header(mix, dataset, header)


def mean_turns(dataset: Dataset) -> float:
    """How many requests a conversation of the dataset has, on the mean; 1 where no row belongs to one."""
    talks = _conversations(dataset.rows)
    return 1.0 if talks is None else len(dataset) / len(set(talks.numbers))


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


@dataclass(frozen=True)
class _Talks:
    """The dataset's conversations: for each row its conversation, numbered by first appearance, and its turn."""

    numbers: list[int]
    turns: list[int]

    def in_order(self) -> list[list[int]]:
        """The rows of each conversation as the engine sends them: by their turns, and of equal ones as in the file."""
        found: list[list[int]] = [[] for _ in range(max(self.numbers) + 1)]
        for row, number in enumerate(self.numbers):
            found[number].append(row)
        return [sorted(rows, key=self.turns.__getitem__) for rows in found]


def _conversations(rows: Sequence[Mapping[str, Any]]) -> _Talks | None:
    """None where no row belongs to one; else a row that does not is one of its own.

    Turns that rows do not number are counted in their order.
    """
    if not any(row.get("session") is not None for row in rows):
        return None
    numbers: dict[tuple[str, str | None], int] = {}
    begun: Counter[int] = Counter()
    sessions: list[int] = []
    turns: list[int] = []
    for index, row in enumerate(rows):
        name = row.get("session")
        known = (f"row {index}", None) if name is None else (f"session {name}", row.get(SESSION_PART))
        sessions.append(numbers.setdefault(known, len(numbers)))
        number, turn = sessions[-1], row.get("turn")
        if not isinstance(turn, int) or isinstance(turn, bool) or not 0 <= turn < _MOST_TURNS:
            turn = min(begun[number], _MOST_TURNS - 1)
        turns.append(turn)
        begun[number] += 1
    return _Talks(sessions, turns)
