"""From a cluster's objects to stamps: watches, lists that close their gaps, and a canary that tells clocks and lag."""

from __future__ import annotations

from gpusize.base.errors import EnvironmentLacks

try:
    import msgspec  # noqa: F401
except ImportError as missing:
    # It comes with lightkube; the nodes of a large cluster are read with it.
    raise EnvironmentLacks(
        "the way to a Kubernetes cluster needs lightkube", None, "install it: pip install 'gpusize[kube]'"
    ) from missing
