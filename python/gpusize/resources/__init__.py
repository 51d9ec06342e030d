"""What a container, a process or the host used, and what to request for it.

`series` keeps readings, `usage` sums them up, `recommend` says what to ask a scheduler for. These three are pure
functions of what was read; `sampler`, `containers` and `gpus` do the reading.
"""
