"""The parts of ``python -m benches.http``; each can be run alone with ``--only``."""
