"""Whether two systems differ: figures of runs beside each other, with intervals that hold.

``student`` has the t distribution, ``blocks`` the error of a figure inside one run, ``figures`` what is compared,
``matching`` the levels of the sides, ``differences`` the intervals and the verdicts.
"""
