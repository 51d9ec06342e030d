"""Synthetic prompts: a description of lengths, and the rows that follow from it and its seed."""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.text import shown
from gpusize.base.typed import check_kinds
from gpusize.workload.dataset.distributions import Lengths, parse_lengths
from gpusize.workload.dataset.made_up_text import WIDTH, Filler, check_size
from gpusize.workload.dataset.token_counter import CHARACTERS_PER_TOKEN, Counter

__all__ = ["Synthetic", "synthetic_rows"]

_MAKER: Final = 1
"""Version of the way in which rows follow from a description; part of a dataset's identity."""

_PAIR: Final = re.compile(r"([A-Za-z_]+)\s*=\s*((?:[a-z]+\([^()]*\)|[^\s()]+))\s*,?\s*")
_NAMES: Final = ("input", "output", "rows", "prefix", "groups", "seed", "scale")
_EXAMPLE: Final = "write it as 'input=normal(512,64) output=128 rows=200 prefix=0.3 seed=1'"
_MOST_ROWS: Final = 10_000_000


@dataclass(frozen=True)
class Synthetic:
    """What synthetic prompts are to be like.

    Args:
        input: lengths of prompts, in tokens; see ``workload.dataset.distributions.parse_lengths`` for how they are
            written.
        output: lengths of answers to ask for, in tokens; None asks for none.
        rows: how many prompts.
        prefix: share of each prompt, from its start, that the rows of a group have in common.
        groups: how many different shared prefixes there are; row i belongs to group i modulo groups.
        seed: of lengths and words.
        scale: words per asked token; other than 1 only after `corrected`.
    """

    input: str = "512"
    output: str | None = None
    rows: int = 100
    prefix: float = 0.0
    groups: int = 1
    seed: int = 1
    scale: float = 1.0

    def __post_init__(self) -> None:
        bounds = {
            "rows": 1 <= self.rows <= _MOST_ROWS,
            "prefix": 0 <= self.prefix <= 1,
            "groups": self.groups >= 1,
            "scale": math.isfinite(self.scale) and 0.01 <= self.scale <= 100,
        }
        for name, fits in bounds.items():
            if not fits:
                raise UsageError(f"{name} = {getattr(self, name):g} is out of range", "synthetic", _EXAMPLE)

    @classmethod
    def parse(cls, value: str | Mapping[str, Any]) -> Synthetic:
        """From a text such as ``input=normal(512,64) output=lognormal(128,0.5) rows=200`` or from a table.

        Raises:
            UsageError: a name or an invalid value, with its column in a text.
        """
        check_kinds({"synthetic": value}, {"synthetic": ((str, Mapping), "a text or a dictionary")})
        pairs = _pairs(value) if isinstance(value, str) else {str(key): (item, None) for key, item in value.items()}
        given: dict[str, Any] = {}
        for name, (item, column) in pairs.items():
            where = "synthetic" if column is None else f"synthetic, column {column}"
            if name not in _NAMES:
                raise UsageError(f'there is no "{shown(name)}"', where, f"known are {', '.join(_NAMES)}")
            given[name] = _converted(name, item, where)
        return cls(**given)

    def text(self) -> str:
        """The description as a text; `parse` reads the same back."""
        default = Synthetic()
        words = [f"input={self.input}", *([f"output={self.output}"] if self.output else []), f"rows={self.rows}"]
        own = [name for name in ("prefix", "groups", "scale") if getattr(self, name) != getattr(default, name)]
        return " ".join([*words, *(f"{name}={getattr(self, name)!r}" for name in own), f"seed={self.seed}"])

    def scaled(self, factor: float) -> Synthetic:
        """The same with prompts so many times as long; the asked lengths stay."""
        return replace(self, scale=self.scale * factor)


def _pairs(text: str) -> dict[str, tuple[str, int | None]]:
    found: dict[str, tuple[str, int | None]] = {}
    position = len(text) - len(text.lstrip())
    while position < len(text):
        match = _PAIR.match(text, position)
        where = f"synthetic, column {position + 1}"
        if match is None:
            raise UsageError(f'"{shown(text[position:])}" is not name=value', where, _EXAMPLE)
        if match[1] in found:
            raise UsageError(f'"{match[1]}" is given twice', where, "give it once")
        found[match[1]] = (match[2].rstrip(","), position + 1)
        position = match.end()
    return found


def _converted(name: str, item: Any, where: str) -> Any:
    if name in {"input", "output"}:
        if isinstance(item, bool) or not isinstance(item, str | int | float):
            raise UsageError(f"{name} is {shown(item)}, not a distribution of lengths", where, _EXAMPLE)
        return parse_lengths(str(item), where).text
    try:
        number = float(item)
        if isinstance(item, bool) or not math.isfinite(number):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{name} is {shown(item)}, not a number", where, _EXAMPLE) from None
    if name in {"prefix", "scale"}:
        return number
    if number != int(number):
        raise UsageError(f"{name} is {shown(item)}, not a whole number", where, _EXAMPLE)
    return int(item) if isinstance(item, int) else int(number)


def synthetic_rows(what: Synthetic, counter: Counter) -> tuple[list[dict[str, Any]], str, list[str]]:
    """The rows, the SHA-256 that stands for them, and notes.

    Every row has ``prompt`` and ``input_tokens``, and ``output_tokens`` where they are asked for. A row depends on the
    seed and its own number alone: more rows leave the first ones as they are.

    Raises:
        UsageError: invalid lengths.
        DatasetError: a file of lengths that cannot be read, or more text than fits into memory.
    """
    inputs = parse_lengths(what.input, "synthetic")
    outputs = None if what.output is None else parse_lengths(what.output, "synthetic")
    filler = Filler(counter, what.seed, what.scale)
    asked = _drawn(what, inputs, "input")
    check_size(WIDTH * sum(map(filler.needed, asked)), "synthetic")
    answers = None if outputs is None else _drawn(what, outputs, "output")
    longest = max(asked)
    shared: dict[int, bytes] = {}
    rows: list[dict[str, Any]] = []
    for number, tokens in enumerate(asked):
        head = b""
        needed = filler.needed(tokens)
        if what.prefix:
            group = number % what.groups
            if group not in shared:
                shared[group] = filler.words(f"group {group}", round(what.prefix * filler.needed(longest)))
            head = shared[group][: WIDTH * round(what.prefix * needed)]
        body = head + filler.words(f"row {number}", needed - len(head) // WIDTH)
        row: dict[str, Any] = {"prompt": filler.text(body, tokens), "input_tokens": tokens}
        if answers is not None:
            row["output_tokens"] = answers[number]
        rows.append(row)
    identity = [_MAKER, what.text(), inputs.key, outputs.key if outputs else "", counter.key]
    return rows, hashlib.sha256(json.dumps(identity).encode()).hexdigest(), _notes(filler, counter)


def _drawn(what: Synthetic, lengths: Lengths, purpose: str) -> list[int]:
    source = random.Random(f"{what.seed}/{purpose} lengths")
    return [lengths.draw(source) for _ in range(what.rows)]


def _notes(filler: Filler, counter: Counter) -> list[str]:
    if filler.exact:
        return [f"prompt lengths are counted with {counter.name}; what a chat template adds is not in them"]
    advice = "compare them with what the server reports, or name a tokenizer file"
    return [f"prompt lengths are estimated at {CHARACTERS_PER_TOKEN} characters per token; {advice}"]
