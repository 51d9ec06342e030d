"""Prints the CPU seconds of drawing and saving the figures of a run, its numbers and matplotlib at hand."""

import sys
import tempfile
import time
from pathlib import Path

import matplotlib.backends.backend_agg
import matplotlib.backends.backend_svg
import matplotlib.figure

from gpusize.report.figures.plots import figures, save_figures
from gpusize.result import open_run

result = open_run(sys.argv[1])
estimates = result.estimates()
_ = result.summary, result.tables, matplotlib.figure, matplotlib.backends.backend_agg, matplotlib.backends.backend_svg
with tempfile.TemporaryDirectory() as folder:
    start_s = time.process_time()
    save_figures(figures(result, estimates), Path(folder))
    print(time.process_time() - start_s)
