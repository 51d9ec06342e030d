"""Several models behind one address, several streams of one load: which row goes where, and what it says."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.units import seconds_to_ns
from gpusize.targets.apis.kserve import is_kserve
from gpusize.targets.kserve.inputs import TENSORS
from gpusize.targets.kserve.mix import interleave
from gpusize.targets.kserve.rows import TensorRow
from gpusize.workload.dataset import Dataset, repeated_ids
from gpusize.workload.dataset.dataset import WHOLE_ROW
from gpusize.workload.dataset.row_ids import unique_ids

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpusize.targets.server import Target
    from gpusize.workload.dataset import Row
    from gpusize.workload.load import Load, Stream

__all__ = [
    "BODY_PRIORITY",
    "HEADER_PRIORITY",
    "SESSION_PART",
    "dealt",
    "server_priorities",
    "streamed",
    "streamed_rows",
    "think_times_ns",
    "with_priority_header",
]

BODY_PRIORITY: Final = "stream_priority"
"""Field of a row: the priority that the server is told in the body."""

HEADER_PRIORITY: Final = "header_priority"
"""Field of a row: the priority that the server is told in a header."""

SESSION_PART: Final = "session_part"
"""Field of a row: tells conversations of one name apart that are held with several models, or by several streams."""


def dealt(dataset: Dataset, models: Mapping[str, int]) -> Dataset:
    """The rows as they go to several models: one cycle in which every model gets every row equally often.

    A row's field ``model`` is the model it goes to, whatever it was before. A conversation is held with each model by
    itself, and anew with each copy of its rows. The options that make the dataset stay those of the file: the mix
    belongs to the target.

    Args:
        dataset: what each model is sent.
        models: their weights.

    Raises:
        UsageError: the cycle would have more than a million rows.
    """
    names = list(models)
    try:
        cycle = interleave([models[name] for name in names], [len(dataset)] * len(names))
    except UsageError as problem:
        raise UsageError(problem.what, problem.where, "take fewer rows, or weights that divide better") from None
    numbers = [row for _, row in cycle]
    copies: Counter[tuple[int, int]] = Counter()
    rows = []
    for model, row in cycle:
        rows.append({**_apart(dataset.rows[row], f"{model}.{copies[model, row]}"), "model": names[model]})
        copies[model, row] += 1
    return replace(
        dataset,
        rows=tuple(rows),
        ids=tuple(repeated_ids(dataset.ids, numbers)),
        lines=tuple(dataset.lines[row] for row in numbers) if dataset.lines else (),
    )


def _apart(row: Mapping[str, Any], part: object) -> dict[str, Any]:
    """The row, whose conversation is not that of the same rows in other parts."""
    if row.get("session") is None:
        return dict(row)
    return {**row, SESSION_PART: f"{row.get(SESSION_PART, '')}/{part}"}


@dataclass(frozen=True)
class _Group:
    """What streams may share: the same rows, for one model, with one priority."""

    dataset: int
    model: str | None
    priority: int | None


def streamed(target: Target, dataset: Dataset | None, load: Load) -> tuple[Target, Dataset, Load]:
    """Target, rows and load of a run of several streams: each gets its part of the rows, with its model and priority.

    A row's field ``model`` is the model of its stream, `BODY_PRIORITY` what the server is told. Rows stand once for
    each combination of dataset, model and priority. Without such differences nothing is changed.

    Args:
        target: where to send.
        dataset: what streams send that name no dataset of their own.
        load: with streams; returned with ``rows`` of each filled in.

    Raises:
        UsageError: a stream has nothing to send.
        DatasetError: a stream's dataset cannot be read.
    """
    own = load.own_datasets()
    kserve = is_kserve(target.api)
    # As soon as there are several models, rows say theirs: those of streams that name none are dealt to the target's.
    several = len(target.models) > 1 or any(each.model for each in load.streams)
    if several and not kserve and target.models:
        dataset = None if dataset is None else dealt(dataset, target.models)
        own = {key: dealt(each, target.models) for key, each in own.items()}
    told = [_server_priority(stream, load, kserve=kserve) for stream in load.streams]
    rows, planned = _together(dataset, own, load, told, kserve=kserve)
    return target if kserve or planned is load else _asking(target, load), rows, planned


def streamed_rows(dataset: Dataset | None, load: Load) -> tuple[Dataset, Load]:
    """As `streamed` for a workflow, which is told no model and no priority.

    Raises:
        UsageError: a stream has nothing to send, or says what only a server is told.
        DatasetError: a stream's dataset cannot be read.
    """
    for stream in load.streams:
        name = next((each for each in ("model", "server_priority") if getattr(stream, each) is not None), None)
        if name is not None:
            todo = f"leave {name} out; a field of the rows in the stream's own dataset can say it"
            raise UsageError(f"a workflow cannot take a stream's {name.replace('_', ' ')}", stream.label, todo)
    return _together(dataset, load.own_datasets(), load, [None] * len(load.streams), kserve=False)


def _together(
    dataset: Dataset | None,
    own: Mapping[tuple[str | None, ...], Dataset],
    load: Load,
    told: Sequence[int | None],
    *,
    kserve: bool,
) -> tuple[Dataset, Load]:
    """One dataset of what all streams send, and the load with the part of each; the load itself if all send the same.

    Args:
        dataset: what streams send that name no dataset of their own.
        own: the others', as `Load.own_datasets` has them.
        load: with streams.
        told: the priority that the server is told, of each stream.
        kserve: rows are tensors.
    """
    sets: list[Dataset] = [] if dataset is None else [dataset]
    numbers = {key: len(sets) + number for number, key in enumerate(own)}
    sets += own.values()
    groups = []
    for stream, priority in zip(load.streams, told, strict=True):
        if stream.dataset is None and dataset is None:
            raise UsageError("it has nothing to send", stream.label, "give it a dataset, or the run one by --dataset")
        number = 0 if stream.dataset is None else numbers[stream.own_rows]
        groups.append(_Group(number, stream.model, priority))
    different = list(dict.fromkeys(groups))
    used = sets[different[0].dataset]
    if different == [_Group(different[0].dataset, None, None)]:
        return used, load
    blocks = [_rows_of(sets[group.dataset], group, load, kserve=kserve) for group in different]
    parts, first = {}, 0
    for group, block in zip(different, blocks, strict=True):
        parts[group] = (first, len(block))
        first += len(block)
    streams = [replace(stream, rows=parts[group]) for stream, group in zip(load.streams, groups, strict=True)]
    return _joined(dataset, sets, different, blocks), load.changed(streams=streams)


def _rows_of(dataset: Dataset, group: _Group, load: Load, *, kserve: bool) -> list[Row]:
    """A group's rows, marked with its model and priority; for KServe those that were made for its model."""
    chosen = list(dataset)
    if kserve and group.model is not None:
        chosen = [row for row in chosen if row.fields.get("model", group.model) == group.model]
        if not chosen:
            raise UsageError(f'no tensors were made for model "{group.model}"', "streams", "name it with --model too")
    said: dict[str, Any] = {} if group.model is None else {"model": group.model}
    if group.priority is not None:
        said[BODY_PRIORITY if load.priority_header is None else HEADER_PRIORITY] = group.priority
    return [replace(row, fields=_marked(row.fields, said)) for row in chosen]


def _marked(fields: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    tensors = fields.get(TENSORS)
    if isinstance(tensors, TensorRow) and BODY_PRIORITY in said:
        return {**fields, **said, TENSORS: replace(tensors, priority=said[BODY_PRIORITY])}
    return {**fields, **said}


def _server_priority(stream: Stream, load: Load, *, kserve: bool) -> int | None:
    """The number that a server is told: what the user says, else ours as the server counts.

    vLLM serves lower numbers first. Triton's highest priority is 1, so that ranks are counted from the top.
    """
    if stream.server_priority is not None or stream.priority is None:
        return stream.server_priority
    if load.priority_header is not None:
        return stream.priority
    if kserve:
        ranks = sorted({each.priority for each in load.streams if each.priority is not None}, reverse=True)
        return ranks.index(stream.priority) + 1
    return -stream.priority


def _asking(target: Target, load: Load) -> Target:
    """The target, asked for the models that streams name beside its own."""
    names = [stream.model for stream in load.streams]
    if not any(names):
        return target
    if None in names and not target.models:
        todo = "name one for every stream, or --model for those without"
        raise UsageError("some streams name a model and others do not", "streams", todo)
    own = list(target.models) if None in names else []
    # The target's own model stays what it was: run.json keeps it, and the streams say theirs again.
    return target.asking(list(dict.fromkeys([*own, *(name for name in names if name)])))


def _joined(
    base: Dataset | None, sets: Sequence[Dataset], groups: Sequence[_Group], blocks: Sequence[Sequence[Row]]
) -> Dataset:
    used = [sets[group.dataset] for group in groups]
    same = len({group.dataset for group in groups}) == 1
    first = base if base is not None and base in used else used[0]
    # Rows of several datasets may send fields of several names: all of them have the first one's.
    # Conversations of one name are several: one stream's users are not another's.
    rows = [
        {
            **_apart(row.fields, number),
            **({} if first.key in (row.key, WHOLE_ROW) else {first.key: row.value}),
        }
        for number, block in enumerate(blocks)
        for row in block
    ]
    facts = [(each.sha256, group.model, group.priority) for each, group in zip(used, groups, strict=True)]
    lines = [each.lines[row.index] for each, block in zip(used, blocks, strict=True) for row in block if each.lines]
    joined = replace(
        first,
        rows=tuple(rows),
        ids=tuple(unique_ids([row.id for block in blocks for row in block])),
        sha256=first.sha256 if same else hashlib.sha256(repr(facts).encode()).hexdigest(),
        lines=tuple(lines) if same else (),
        notes=tuple(dict.fromkeys(note for each in used for note in each.notes)),
    )
    # The options of the run's own dataset make it again; the load names the others.
    return joined if base is first or same else replace(joined, source="streams", fmt=None, synthetic=None, prompt=None)


def think_times_ns(dataset: Dataset) -> list[int]:
    """The engine's ``Mix.think_ns``: each row's ``delay_s``, 0 where it has none.

    Raises:
        UsageError: no row has one, or one that is no time.
    """
    found, any_given = [], False
    for number, row in enumerate(dataset.rows):
        value = row.get("delay_s")
        any_given |= value not in (None, "")
        try:
            seconds = float(value) if value not in (None, "") and not isinstance(value, bool) else 0.0
            if not 0 <= seconds <= 1e9:
                raise ValueError
        except (TypeError, ValueError):
            raise UsageError(f'"delay_s" is {value!r}', dataset.where(number), "write seconds, 0 or more") from None
        found.append(seconds_to_ns(seconds))
    if not any_given:
        todo = 'give rows "delay_s", or a think time such as exp(2s)'
        raise UsageError("no row says how long the pause before it was", dataset.source, todo)
    return found


def with_priority_header(mix: Mapping[str, Any], dataset: Dataset, header: str) -> dict[str, Any]:
    """The engine's Mix, in which requests say their priority in a header: one more kind for each priority of a kind.

    Args:
        mix: with ``requests`` and ``of_row``.
        dataset: as `streamed` returned it.
        header: its name.
    """
    kinds: dict[tuple[int, int | None], int] = {}
    requests: list[dict[str, Any]] = []
    of_row: list[int] = []
    for kind, row in zip(mix["of_row"], dataset.rows, strict=True):
        priority = row.get(HEADER_PRIORITY)
        if (kind, priority) not in kinds:
            kinds[kind, priority] = len(requests)
            plain = mix["requests"][kind]
            more = [] if priority is None else [[header, str(priority)]]
            requests.append({**plain, "headers": [*plain["headers"], *more]})
        of_row.append(kinds[kind, priority])
    return {**mix, "requests": requests, "of_row": of_row}


def server_priorities(load: Load) -> list[int]:
    """The numbers that a KServe server may be told: `kserve.prepare.prepare_kserve` leaves room for them."""
    told = [_server_priority(stream, load, kserve=True) for stream in load.streams]
    return [] if load.priority_header is not None else sorted({each for each in told if each is not None})
