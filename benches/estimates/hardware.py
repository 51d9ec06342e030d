"""GPUs and language models as they are: what an engine's iterations are made of.

GPUs: dense 16-bit tensor FLOP/s, memory bandwidth and memory as NVIDIA's data sheets have them (A10, L4, L40S, A100
80GB SXM, H100 SXM, H200 SXM, HGX B200; where a sheet gives FLOP/s with sparsity, half of it). Models: parameters,
layers, width of the attention, heads of keys and values as the ``config.json`` of the published weights have them.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GPUS", "MODELS", "Gpu", "Model", "fits"]


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    Attributes:
        flops: FLOP/s, 16 bits, dense.
        bandwidth: bytes/s.
        memory: bytes.
    """

    name: str
    flops: float
    bandwidth: float
    memory: float


@dataclass(frozen=True)
class Model:
    """A decoder.

    Attributes:
        parameters: all of them.
        active: those that one token uses.
        layers: transformer blocks.
        width: query heads times their dimension.
        kv_width: heads of keys and values times their dimension.
        expert_parameters: those in experts; 0 where there are none.
        expert_share: share of the experts that one token uses.
    """

    name: str
    parameters: float
    active: float
    layers: int
    width: int
    kv_width: int
    expert_parameters: float = 0.0
    expert_share: float = 1.0

    @property
    def kv_bytes(self) -> int:
        """Keys and values of one token, 16 bits."""
        return 2 * 2 * self.layers * self.kv_width

    @property
    def attention_flops(self) -> int:
        """A product and a sum for each query with each key, and for each weight with each value."""
        return 4 * self.layers * self.width


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("A10", 125e12, 600e9, 24e9),
        Gpu("L4", 121e12, 300e9, 24e9),
        Gpu("L40S", 362e12, 864e9, 48e9),
        Gpu("A100", 312e12, 2039e9, 80e9),
        Gpu("H100", 989e12, 3350e9, 80e9),
        Gpu("H200", 989e12, 4800e9, 141e9),
        Gpu("B200", 2250e12, 8000e9, 180e9),
    )
}
MODELS = {
    model.name: model
    for model in (
        Model("Qwen2.5-1.5B", 1.54e9, 1.54e9, 28, 1536, 256),
        Model("Phi-3-mini", 3.82e9, 3.82e9, 32, 3072, 3072),
        Model("Llama-3.1-8B", 8.03e9, 8.03e9, 32, 4096, 1024),
        Model("Qwen2.5-14B", 14.8e9, 14.8e9, 48, 5120, 1024),
        Model("Qwen2.5-32B", 32.8e9, 32.8e9, 64, 5120, 1024),
        Model("Llama-3.1-70B", 70.6e9, 70.6e9, 80, 8192, 1024),
        # 128 experts of which a token uses 8: 48 x 128 x 3 x 2048 x 768 parameters; and 8 of which it uses 2.
        Model("Qwen3-30B-A3B", 30.5e9, 3.3e9, 48, 4096, 512, 29.0e9, 8 / 128),
        Model("Mixtral-8x7B", 46.7e9, 12.9e9, 32, 4096, 1024, 45.1e9, 2 / 8),
    )
}
USABLE = 0.9
"""Share of the memory that an engine takes (vLLM's ``gpu_memory_utilization``)."""
ACTIVATIONS = 0.06
"""Share of it for what is neither weights nor cache."""


def fits(gpu: Gpu, model: Model, together: int, weight_bytes: float) -> float:
    """Tokens that the KV cache of so many GPUs holds beside the weights; not above 0 where these do not fit.

    Args:
        together: GPUs that share the model (tensor parallelism).
        weight_bytes: of one parameter.
    """
    room = together * gpu.memory * (USABLE - ACTIVATIONS) - model.parameters * weight_bytes
    return room / model.kv_bytes
