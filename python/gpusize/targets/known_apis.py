"""Our APIs by name: where each is, and how addresses end that speak it. One more API is its module and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = ["KNOWN", "Known", "listed"]


class Known(NamedTuple):
    """One API.

    Attributes:
        module: below ``gpusize.targets.apis``; imported when the API is asked for.
        factory: what makes the API there, of `gpusize.targets.apis.ApiOptions`.
        endings: of paths; of the APIs whose endings fit, the first one is guessed.
    """

    module: str
    factory: str
    endings: tuple[str, ...] = ()


_WORKFLOW: Final = tuple(f"/{route}{kind}" for route in ("generate", "workflow") for kind in ("", "/stream", "/full"))
_GRPC: Final = "/inference.GRPCInferenceService"

KNOWN: Final[Mapping[str, Known]] = MappingProxyType(
    {
        "openai-chat": Known("openai_chat", "OpenAiChat", ("/chat/completions",)),
        "openai-completions": Known("openai_completions", "OpenAiCompletions", ("/completions",)),
        "openai-embeddings": Known("openai_embeddings", "OpenAiEmbeddings", ("/embeddings",)),
        "openai-responses": Known("openai_responses", "OpenAiResponses", ("/responses",)),
        "kserve": Known("kserve", "KserveBinary"),
        "kserve-json": Known("kserve", "KserveJson"),
        "kserve-grpc": Known("kserve", "KserveGrpc", (f"{_GRPC}/ModelInfer",)),
        "kserve-grpc-stream": Known("kserve", "KserveGrpcStream", (f"{_GRPC}/ModelStreamInfer",)),
        "nat": Known("nat", "NatGenerate", _WORKFLOW),
        "nat-chat": Known("nat", "NatChat", ("/chat", "/chat/stream")),
        "generic": Known("generic", "Generic"),
    }
)
"""In the order of the help."""


def listed() -> str:
    """All names in a sentence: ``a, b or c``."""
    *others, last = KNOWN
    return f"{', '.join(others)} or {last}"
