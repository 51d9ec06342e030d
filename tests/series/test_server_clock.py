from __future__ import annotations

import random

from gpusize.observe.series.ask import Answer
from gpusize.observe.series.server_clock import read_clock

MS = 1_000_000


class Server:
    """One whose clock is so far ahead; way there and back take a random time."""

    def __init__(self, ahead_ns: int, seed: int, *, scalar: bool = True, date: bool = True) -> None:
        self.now_ns = 1_800_000_000_000_000_000
        self.ahead_ns, self.scalar, self.date = ahead_ns, scalar, date
        self.random = random.Random(seed)

    def wall_ns(self) -> int:
        return self.now_ns

    def ask(self, path: str, parameters: dict[str, str]) -> Answer:
        assert (path, parameters) == ("/api/v1/query", {"query": "time()"})
        self.now_ns += self.random.randrange(1, 80 * MS)
        seconds = round((self.now_ns + self.ahead_ns) / 1e6) / 1e3
        stamp = "Fri, 15 Jan 2027 08:00:00 GMT"
        self.now_ns += self.random.randrange(1, 80 * MS)
        data = {"resultType": "scalar", "result": [seconds, f"{seconds:.3f}"]} if self.scalar else {}
        return Answer(data, (), stamp if self.date else None)


def test_the_offset_is_within_its_uncertainty():
    for seed in range(200):
        ahead_ns = random.Random(seed).randrange(-(10**11), 10**11)
        server = Server(ahead_ns, seed)
        found = read_clock(server, server.wall_ns)  # type: ignore[arg-type]
        assert found.method == "time()"
        assert abs(found.offset_ns - ahead_ns) <= found.uncertainty_ns
        assert found.uncertainty_ns <= 81 * MS


def test_the_date_of_the_answer_stands_in():
    # The answer's date is 1,800,000,000 s since 1970, and our clock shows just that.
    server = Server(0, 1, scalar=False)
    found = read_clock(server, server.wall_ns)  # type: ignore[arg-type]
    assert found.method == "Date"
    assert abs(found.offset_ns) <= found.uncertainty_ns <= 10**9
    none = Server(0, 1, scalar=False, date=False)
    assert read_clock(none, none.wall_ns).method == "unknown"  # type: ignore[arg-type]


def test_a_clock_that_was_set_meanwhile_does_not_confuse_it():
    server = Server(0, 3)
    real = server.ask

    def jump(path: str, parameters: dict[str, str]) -> Answer:
        server.ahead_ns += 3600 * 10**9
        return real(path, parameters)

    server.ask = jump  # type: ignore[method-assign]
    found = read_clock(server, server.wall_ns)  # type: ignore[arg-type]
    assert found.uncertainty_ns <= 81 * MS
