"""Ctrl-C as a wish, also where a library would make an exception of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gpusize

SOURCE = {**os.environ, "PYTHONPATH": str(Path(gpusize.__file__).parents[1])}
# In a process of its own, which imports Polars as late as a run does.
QUERIES = """
import os, signal, sys, threading
from gpusize.base.interrupt import StopSwitch, on_interrupt

switch = StopSwitch()
with on_interrupt(switch):
    import polars as pl

    numbers = pl.LazyFrame({"a": range(200_000)})
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    while not switch.asked:
        numbers.select(pl.col("a").sort(descending=True).rolling_mean(5).sum()).collect(engine="streaming")
    print(numbers.select(pl.col("a").max()).collect(engine="streaming").item(), switch.asked)
"""


def test_a_query_goes_on_when_an_end_is_asked_for() -> None:
    """What a level says of itself must not get lost while its records are read."""
    argv = [sys.executable, "-c", QUERIES]
    done = subprocess.run(argv, check=False, env=SOURCE, capture_output=True, text=True, timeout=60)
    assert done.stdout == "199999 1\n", done.stderr
