"""Made-up prompts: seeded random words, cut to a number of tokens.

All words have three letters and are common enough to be one token, with the space before them, in the vocabularies of
today's models. So a prompt of n words has 4 n characters and, as a rule, n tokens: the text is a faithful instance of
the estimate of 4 characters per token.
"""

from __future__ import annotations

import random
from typing import Final

from gpusize.base.errors import DatasetError
from gpusize.workload.dataset.token_counter import Counter, Tokenizer

__all__ = ["MAX_CHARACTERS", "WIDTH", "Filler", "check_size"]

WIDTH: Final = 4
"""Characters of a word with the space after it."""

MAX_CHARACTERS: Final = 4_000_000_000
"""Text that a dataset may consist of: all of it is kept in memory."""

_WORDS: Final = (
    "ace act add age ago aid aim air all and ant any arc are arm art ash ask ate axe bad bag ban bar bat bay bed "
    "beg bet bid big bin bit bow box boy bug bus but buy cab can cap car cat cop cow cry cup cut dad day did dig "
    "dim dip dog dot dry due dug ear eat egg ego elm end era eve eye fan far fat fed fee few fig fin fit fix fly "
    "fog for fox fun fur gap gas gel gem get got gum gut guy gym had has hat hay her him hip his hit hop hot how "
    "hub hug ice ill ink its jam jar jaw jet job joy jug key kid kit lab lag lap law lay led leg let lid lie lip "
    "lit log lot low mad man map mat may men met mix mob mud mug nap net new nor not now nut oak odd off oil old "
    "one our out owl own pad pan pat pay pen pet pie pig pin pit pop pot pub put ran rat raw ray red rib rid rim "
    "rip rob rod rot row rub rug run sad sat saw say sea see set she shy sir sit six sky son soy spy sum sun tab "
    "tag tap tax tea ten the tie tin tip toe ton too top toy try two use van vet war was wax way web wet who why "
    "win yet you zip zoo"
)
_VOCABULARY: Final = tuple(_WORDS.split())
_FEWEST_WORDS: Final = 16
_NEARBY: Final = 8


class Filler:
    """Makes texts of a wanted number of tokens.

    Args:
        counter: how tokens are counted.
        seed: of all words.
        words_per_token: how many words stand for one asked token; other than 1 only to correct what a server reports.
    """

    def __init__(self, counter: Counter, seed: int = 1, words_per_token: float = 1.0) -> None:
        self._counter = counter
        self._seed = seed
        self._scale = words_per_token
        words = _VOCABULARY
        self._additive = True
        if isinstance(counter, Tokenizer):
            single = tuple(word for word in _VOCABULARY if counter.count(word) == 1 and counter.count(f"a {word}") == 2)
            words = single if len(single) >= _FEWEST_WORDS else _VOCABULARY
            # Then a text's tokens are the sum of its words', and no prompt needs to be counted.
            self._additive = len(single) >= _FEWEST_WORDS and _adds_up(counter, single)
        size = 256
        self._table = b"".join(f"{words[index % len(words)]} ".encode() for index in range(size))

    @property
    def exact(self) -> bool:
        """Whether lengths are true to the token by the counter itself."""
        return isinstance(self._counter, Tokenizer)

    def words(self, key: str, count: int) -> bytes:
        """``count`` words of four bytes each, a function of the seed and of ``key`` alone."""
        import numpy as np

        if count <= 0:
            return b""
        table = np.frombuffer(self._table, dtype="<u4")
        # The generator works in steps of four bytes: only whole ones make longer texts begin like shorter ones.
        drawn = random.Random(f"{self._seed}/{key}").randbytes(-(-count // 4) * 4)
        return table[np.frombuffer(drawn, dtype=np.uint8)[:count]].tobytes()

    def needed(self, tokens: int) -> int:
        """Words that a text of so many tokens is cut from."""
        return max(1, round(tokens * self._scale))

    def text(self, body: bytes, tokens: int) -> str:
        """The beginning of ``body`` that has ``tokens`` tokens.

        Args:
            body: at least ``needed(tokens)`` words.
            tokens: the wanted number, from 1.
        """
        wanted = self.needed(tokens)
        if self._additive:
            return body[: WIDTH * wanted - 1].decode("ascii")
        return self._cut(body.decode("ascii"), wanted)

    def _cut(self, text: str, wanted: int) -> str:
        """Where the wanted token ends, or beside it: what follows a token can decide how it is split itself."""
        at = self._counter.end_of(text, wanted)
        nearby = sorted(
            range(max(1, at - _NEARBY), min(len(text), at + _NEARBY) + 1), key=lambda place: abs(place - at)
        )
        return text[: next((place for place in nearby if self._counter.count(text[:place]) == wanted), at)]


def _adds_up(counter: Tokenizer, words: tuple[str, ...]) -> bool:
    """Whether every pair of words that can stand side by side is two tokens."""
    texts = [" ".join(f"{first} {second}" for second in words) for first in words]
    return all(count == 2 * len(words) for count in counter.count_many(texts))


def check_size(characters: int, source: str) -> None:
    """Refuse what would not fit into memory.

    Raises:
        DatasetError: more than `MAX_CHARACTERS`.
    """
    if characters > MAX_CHARACTERS:
        raise DatasetError(
            f"its prompts would take {characters / 1e9:.1f} GB of memory", source, "keep fewer rows, such as its head"
        )
