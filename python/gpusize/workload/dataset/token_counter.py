"""How tokens are counted before a server does: by a local tokenizer file, or by an estimate that says so."""

from __future__ import annotations

import hashlib
import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from gpusize.base.errors import DatasetError, EnvironmentLacks
from gpusize.base.text import read_bytes, shown

__all__ = ["CHARACTERS_PER_TOKEN", "ESTIMATE", "Counter", "Estimate", "Tokenizer", "counter_of"]

CHARACTERS_PER_TOKEN: Final = 4
"""The usual rule of thumb for English text."""

ESTIMATE: Final = "estimate"
"""The name that asks for the estimate where a tokenizer file could stand."""


class Counter(Protocol):
    """Something that counts tokens."""

    @property
    def name(self) -> str:
        """What notes and reports call it."""
        ...

    @property
    def key(self) -> str:
        """What tells it from others: equal keys count alike."""
        ...

    def count(self, text: str) -> int:
        """Tokens of a text, without those that a chat template adds."""
        ...

    def end_of(self, text: str, number: int) -> int:
        """The character after the token of this number, from 1; the text's end when it has fewer."""
        ...


class Estimate:
    """Four characters to a token, rounded up."""

    name = f"the estimate of {CHARACTERS_PER_TOKEN} characters per token"
    key = ESTIMATE

    def count(self, text: str) -> int:
        """Tokens of a text, by its length alone."""
        return math.ceil(len(text) / CHARACTERS_PER_TOKEN)

    def end_of(self, text: str, number: int) -> int:
        """By the number of characters alone."""
        return min(number * CHARACTERS_PER_TOKEN, len(text))


class Tokenizer:
    """A ``tokenizer.json`` as Hugging Face's ``tokenizers`` writes it, read from a local file.

    Raises:
        EnvironmentLacks: the package ``tokenizers`` is not installed.
        DatasetError: not such a file.
    """

    def __init__(self, path: str | Path) -> None:
        data = read_bytes(path, error=DatasetError)
        try:
            package = importlib.import_module("tokenizers")
        except ImportError:
            raise EnvironmentLacks(
                "the package tokenizers is not installed", str(path), 'install "gpusize[tokens]"'
            ) from None
        try:
            self._tokenizer: Any = package.Tokenizer.from_file(str(path))
        except Exception as problem:  # noqa: BLE001 - the package raises plain Exception for whatever is wrong with a file
            raise DatasetError(
                f"this is not a tokenizer: {shown(str(problem), 120)}", str(path), "name a tokenizer.json"
            ) from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.name = f"tokenizer {path}"
        self.key = hashlib.sha256(data).hexdigest()

    def count(self, text: str) -> int:
        """Tokens of a text, without special tokens."""
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def end_of(self, text: str, number: int) -> int:
        """By the places of the tokens in the text."""
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return int(offsets[number - 1][1]) if number <= len(offsets) else len(text)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """``count`` of each text, in parallel."""
        return [len(each) for each in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]


def counter_of(tokenizer: str | Path | None) -> Counter:
    """The tokenizer in a file; the estimate for ``"estimate"`` and for None.

    Raises:
        EnvironmentLacks: the package ``tokenizers`` is not installed.
        DatasetError: not a tokenizer file.
    """
    return Estimate() if tokenizer is None or str(tokenizer) == ESTIMATE else Tokenizer(tokenizer)
