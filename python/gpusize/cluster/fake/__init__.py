"""Nodes with GPUs that nobody owns, so that a real scheduler can be studied at any size.

The API server and the schedulers take them for nodes. What a kubelet does for the pods bound to them is done here: a
pod starts, becomes ready, ends and goes, each after a delay of its own. Labels and annotations are those of KWOK.
"""
