"""Readings of containers, processes and the host, and what was used by them."""
