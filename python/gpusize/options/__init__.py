"""From options and files to target, dataset and load.

Whoever needs a name imports its module: the help needs the table of options alone.
"""
