"""A real Kubernetes control plane on loopback: the peer ``kube`` (``make kube-server``)."""

from tests.servers.kube.control_plane import ControlPlane

__all__ = ["ControlPlane"]
