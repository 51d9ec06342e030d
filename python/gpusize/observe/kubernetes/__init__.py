"""Ways to servers inside a Kubernetes cluster."""
