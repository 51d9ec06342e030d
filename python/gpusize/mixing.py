"""Several models behind one address: which row goes to which model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpusize.dataset import repeated_ids
from gpusize.errors import UsageError
from gpusize.kserve.mix import interleave

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpusize.dataset import Dataset

__all__ = ["dealt"]


def dealt(dataset: Dataset, models: Mapping[str, int]) -> Dataset:
    """The rows as they go to several models: one cycle in which every model gets every row equally often.

    A row's field ``model`` is the model it goes to, whatever it was before. The options that make the dataset stay
    those of the file: the mix belongs to the target.

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
    return replace(
        dataset,
        rows=tuple({**dataset.rows[row], "model": names[model]} for model, row in cycle),
        ids=tuple(repeated_ids(dataset.ids, numbers)),
        lines=tuple(dataset.lines[row] for row in numbers) if dataset.lines else (),
    )
