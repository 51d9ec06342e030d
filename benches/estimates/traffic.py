"""What is asked of language models: prompts and answers of some kinds of use, in pairs that belong together."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_OUTPUT", "MOST_PROMPT", "Use", "pairs_of"]

MOST_PROMPT = 12_000
MOST_OUTPUT = 2_000
PAIRS = 400


@dataclass(frozen=True)
class Use:
    """One kind of requests: lognormal lengths, linked.

    Attributes:
        prompt: range of the prompts' median, tokens.
        output: the same of answers.
        spread: ranges of the two sigmas of the logarithm.
        link: range of the correlation of the logarithms.
    """

    prompt: tuple[float, float]
    output: tuple[float, float]
    spread: tuple[tuple[float, float], tuple[float, float]]
    link: tuple[float, float]

    def pairs(self, rng: np.random.Generator, count: int) -> list[tuple[int, int]]:
        """So many requests of this kind, with medians, spreads and a correlation drawn for all of them."""
        medians = [math.exp(rng.uniform(math.log(low), math.log(high))) for low, high in (self.prompt, self.output)]
        sigmas = [rng.uniform(*each) for each in self.spread]
        link = rng.uniform(*self.link)
        first, second = rng.normal(size=(2, count))
        prompts = medians[0] * np.exp(sigmas[0] * first)
        outputs = medians[1] * np.exp(sigmas[1] * (link * first + math.sqrt(1 - link**2) * second))
        tokens = zip(_tokens(prompts, MOST_PROMPT), _tokens(outputs, MOST_OUTPUT), strict=True)
        return [(int(prompt), int(output)) for prompt, output in tokens]


# Published traces say as much: chats of some hundred tokens either way with long tails (ShareGPT, LMSYS-Chat-1M,
# BurstGPT), prompts that are far longer than answers for code and for documents (Azure's of 2023 and 2024, Mooncake).
_CHAT = Use((60, 700), (80, 350), ((0.5, 1.1), (0.4, 0.9)), (-0.1, 0.5))
_DOCUMENTS = Use((1200, 4500), (60, 300), ((0.2, 0.6), (0.3, 0.7)), (-0.1, 0.4))
_LONG = Use((2600, 6500), (30, 400), ((0.1, 0.3), (0.2, 0.6)), (-0.2, 0.3))
_CODE = Use((800, 2500), (15, 60), ((0.4, 0.8), (0.4, 0.9)), (-0.2, 0.3))
_WRITING = Use((30, 200), (300, 900), ((0.3, 0.7), (0.2, 0.6)), (0.0, 0.5))


def pairs_of(rng: np.random.Generator, kind: str) -> list[tuple[int, int]]:
    """(prompt, answer) in tokens, each as likely as the others."""
    uses = {"chat": _CHAT, "documents": _DOCUMENTS, "long prompts": _LONG, "code": _CODE, "writing": _WRITING}
    if kind == "fixed":
        prompts, outputs = [128, 256, 512, 1024, 2048, 4096], [32, 64, 128, 256, 512]
        return [(int(rng.choice(prompts)), int(rng.choice(outputs)))]
    if kind == "chat and documents":
        documents = round(PAIRS * rng.uniform(0.1, 0.5))
        return _CHAT.pairs(rng, PAIRS - documents) + _DOCUMENTS.pairs(rng, documents)
    return uses[kind].pairs(rng, PAIRS)


def _tokens(values: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    return np.clip(np.round(values), 1, most).astype(np.int64)
