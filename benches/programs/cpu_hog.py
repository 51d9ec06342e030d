"""A neighbour that changes: it takes a share of its core, or nothing, for random times; ``... cpu_hog SEED``."""

from __future__ import annotations

import random
import sys
import time

from benches.lib.procs import go_first

TURN_S = 4.0
"""Mean length of a turn."""
SHARE, PERIOD_S = 0.15, 0.01
"""What it takes: so much of each period at once."""


def main(seed: str) -> None:
    """Go on until killed."""
    go_first()
    rnd = random.Random(seed)
    while True:
        time.sleep(rnd.expovariate(1 / TURN_S))
        over_s = time.monotonic() + rnd.expovariate(1 / TURN_S)
        while (begun_s := time.monotonic()) < over_s:
            while time.monotonic() < begun_s + SHARE * PERIOD_S:
                pass
            time.sleep((1 - SHARE) * PERIOD_S)


if __name__ == "__main__":
    main(sys.argv[1])
