"""Writes a llama-architecture model with random weights as GGUF: a real LLM without a download.

Run by the interpreter of the peer ``llama`` (it has ``gguf``). The defaults give about 0.5 MB and a tenth of a
millisecond per token; ``--embedding 768 --blocks 6 --feed-forward 2048`` about 170 MB and well over 5 ms.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gguf
import numpy as np

# Tokens that the tokenizer needs (unknown, begin, end, every byte) and a few that make text of the answers.
SPECIAL = ("<unk>", "<s>", "</s>")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
LETTERS = ("▁", *"abcdefghijklmnopqrstuvwxyz")


def vocabulary(writer: Any) -> int:
    """Write the tokenizer; how many tokens it has."""
    kinds = gguf.TokenType
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * len(BYTES), *[kinds.NORMAL] * len(LETTERS)]
    tokens = [*SPECIAL, *BYTES, *LETTERS]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([int(kind) for kind in types])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(value=True)
    return len(tokens)


def weights(writer: Any, tokens: int, options: argparse.Namespace) -> None:
    """Write every tensor: normal with the variance that keeps activations about the same from layer to layer."""
    rng = np.random.default_rng(options.seed)
    width, inner = options.embedding, options.feed_forward

    def matrix(name: str, rows: int, columns: int) -> None:
        values = rng.standard_normal((rows, columns), dtype=np.float32) / np.float32(columns**0.5)
        writer.add_tensor(f"{name}.weight", values)

    def ones(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(width, dtype=np.float32))

    matrix("token_embd", tokens, width)
    for block in range(options.blocks):
        ones(f"blk.{block}.attn_norm")
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"blk.{block}.{part}", width, width)
        ones(f"blk.{block}.ffn_norm")
        matrix(f"blk.{block}.ffn_gate", inner, width)
        matrix(f"blk.{block}.ffn_up", inner, width)
        matrix(f"blk.{block}.ffn_down", width, inner)
    ones("output_norm")
    matrix("output", tokens, width)


def write(path: Path, options: argparse.Namespace) -> None:
    """The whole file."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny random llama")
    writer.add_context_length(options.context)
    writer.add_embedding_length(options.embedding)
    writer.add_block_count(options.blocks)
    writer.add_feed_forward_length(options.feed_forward)
    writer.add_head_count(options.heads)
    writer.add_head_count_kv(options.heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(options.embedding // options.heads)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    tokens = vocabulary(writer)
    writer.add_vocab_size(tokens)
    weights(writer, tokens, options)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--embedding", type=int, default=64, help="width of a token's vector (%(default)s)")
    parser.add_argument("--blocks", type=int, default=2, help="(%(default)s)")
    parser.add_argument("--heads", type=int, default=4, help="(%(default)s)")
    parser.add_argument("--feed-forward", type=int, default=128, help="(%(default)s)")
    parser.add_argument("--context", type=int, default=2048, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same file (%(default)s)")
    options = parser.parse_args()
    write(options.out, options)


if __name__ == "__main__":
    main()
