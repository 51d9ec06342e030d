"""The functions that a program calls: run, plan, GPUs over time."""
