"""KServe v2 (the Open Inference Protocol), as Triton and others speak it: metadata, tensors, inputs, statistics."""
