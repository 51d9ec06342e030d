"""Benchmarks: every bar is a number that a committed command produces, beside its peer, in one run."""
