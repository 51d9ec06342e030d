"""``gpusize doctor``: what this machine can measure."""

from __future__ import annotations

import sys
from typing import Annotated

from gpusize.cli.command import Debug, Json, option

EPILOG = """Examples:

  gpusize doctor

  gpusize doctor --quick --json"""


def command(
    quick: Annotated[
        bool, option("Do not measure the highest rate, which takes about ten seconds.", names=("--quick",))
    ] = False,
    json: Json = False,
    _debug: Debug = False,
) -> int:
    """Check clock, timers, cores, limits and software, and measure the highest rate that this machine can send."""
    from gpusize.cli.shared import note
    from gpusize.doctor import examine
    from gpusize.doctor.text import doctor_document, print_findings
    from gpusize.report.export import dumps
    from gpusize.report.summary.terminal import make_console

    findings = examine(quick=quick, note=note if sys.stderr.isatty() else lambda _: None)
    if json:
        sys.stdout.write(dumps(doctor_document(findings)))
    else:
        print_findings(findings, make_console())
    broken = [finding for finding in findings if finding.prevents]
    for finding in broken:
        note(f"nothing can be measured here: {finding.name}: {finding.value}")
    return 3 if broken else 0
