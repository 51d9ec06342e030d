"""The search for the highest load within the SLOs: what is measured next follows from what has been measured.

terms     precision, budget, limit
visits    levels as the search sees them, and the load under which a target breaks
margin    by how much a load keeps an SLO
crossing  the capacity with its interval
count     whether the count that it is for is known
more      what as much again would buy
looks     where to measure next
planner   the next level, or why the search is over
result    what a search has found
"""

from gpusize.estimate.search.terms import Adaptive

__all__ = ["Adaptive"]
