"""How many GPUs, from what production's metrics pages and access logs say: a replica is fitted to it, no load sent.

    1  production    scrapes, and perhaps an access log, as arrivals, lengths and what each replica did meanwhile
    2  costs         an iteration's costs from times between tokens, then by replaying the day until its means agree
    3  limit         sequences and cache that a replica holds, where the pages show that it was full
    4  checks        what the replay gets wrong of the SLOs' own histograms
    5  count         the fewest simulated replicas; a refusal where what was never seen decides it

docs/reference/telemetry.md has the rules.
"""
