"""The way to a cluster's API server: kubeconfig, signing in, requests, what kinds it knows."""
