"""Peers of the benchmarks, run by the interpreters of their own environments."""
