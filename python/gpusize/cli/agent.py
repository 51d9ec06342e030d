"""``gpusize agent``: send for a run that another machine conducts."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

from gpusize.cli.command import Debug, listed, option

EPILOG = """Examples:

  gpusize agent --join 127.0.0.1:7070

  GPUSIZE_TOKEN=... gpusize agent --join head.lab:7070 --workers 8

  gpusize agent --join head.lab:7070 --ca ca.pem --cert host7.pem --key host7.key"""

INTERRUPTED = 130
KEEP = "gpusize-records"


def command(
    join: Annotated[str, option("Join the run that waits for hosts here (gpusize run --hosts).", "HOST:PORT")],
    token_file: Annotated[str | None, listed("token_file")] = None,
    ca: Annotated[str | None, option("Speak TLS with a head whose certificate is of this authority.", "FILE")] = None,
    cert: Annotated[str | None, option("Show it this certificate.", "FILE")] = None,
    key: Annotated[str | None, option("Key of that certificate.", "FILE")] = None,
    workers: Annotated[int | None, listed("workers")] = None,
    patience: Annotated[str, option("Try this long where nobody listens yet.", "TIME")] = "1m",
    keep: Annotated[str, option("Keep rows that are not to come home here (--records remote).", "FOLDER")] = KEEP,
    no_checks: Annotated[
        bool, option("Do not look at clock, limits and the rate that is reached first.", names=("--no-checks",))
    ] = False,
    _debug: Debug = False,
) -> int:
    """Send this machine's share of a run that gpusize run --hosts conducts, until it ends or is lost.

    It stops by itself within two seconds when the head is gone.
    """
    from gpusize.base.units import as_duration_s
    from gpusize.base.urls import address_of
    from gpusize.cli.shared import note
    from gpusize.doctor.joining import joining_facts
    from gpusize.engine.hosts import agent
    from gpusize.engine.hosts.access import Access, read_token
    from gpusize.engine.limits import allow_most_files

    place = address_of(join, "--join")
    files = {name: None if path is None else Path(path) for name, path in (("ca", ca), ("cert", cert), ("key", key))}
    access = Access(read_token(None if token_file is None else Path(token_file)), **files)
    access.needed_for(place[0])
    patience_s = as_duration_s(patience, "--patience")
    allow_most_files()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        facts = joining_facts(workers, checks=not no_checks)
        agent.join(place, access, facts, workers=workers, patience_s=patience_s, say=note, keep=Path(keep))
    except KeyboardInterrupt:
        note("interrupted: this host sends nothing more")
        return INTERRUPTED
    return 0
