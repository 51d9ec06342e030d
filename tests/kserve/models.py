"""Models to make requests for."""

from gpusize.targets.kserve.metadata import ModelMetadata, TensorSpec


def model(*inputs: TensorSpec, **facts) -> ModelMetadata:
    """A model with these inputs and one output; without a batch dimension unless ``max_batch_size`` says so."""
    known = {"name": "m", "versions": ("1",), "max_batch_size": 0, "outputs": (TensorSpec("OUT", "FP32", (-1,)),)}
    return ModelMetadata(inputs=inputs, **{**known, **facts})


BATCHED = model(TensorSpec("IN", "FP32", (-1, 4)), max_batch_size=8)
FIXED = model(TensorSpec("IN", "FP32", (4,)))
VARYING = model(TensorSpec("IN", "FP32", (-1,)))
MATRIX = model(TensorSpec("IN", "INT32", (-1, 2)))
TEXTS = model(TensorSpec("IN", "BYTES", (-1,)))
TWO = model(TensorSpec("A", "INT64", (-1,)), TensorSpec("B", "FP32", (-1, 2), optional=True))
