"""A tokenizer of single bytes, as a folder that ``transformers`` loads: ``tiny_tokenizer FOLDER``.

Tools that insist on a tokenizer get one without a download, and the cheapest there is: every byte is a token.
"""

from __future__ import annotations

import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast


def main(folder: str) -> None:
    """Write it; deterministic."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<eos>": 0, **{letter: number for number, letter in enumerate(alphabet, start=1)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", bos_token="<eos>")
    fast.save_pretrained(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
