"""The search for the highest load within the SLOs: what is measured next follows from what has been measured.

terms     precision, budget, limit
visits    levels as the search sees them
crossing  the capacity with its interval
wall      the load under which a target breaks
planner   the next level, or why the search is over
steps     the planner's levels for a sweep
found     what a search has found
"""

from gpusize.estimate.search.terms import Adaptive

__all__ = ["Adaptive"]
