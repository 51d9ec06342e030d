"""How soon a report page opens: ``python -m benches.page [--requests 1000000] [--starts 15]``.

A run of 10^6 requests is reported, and its page opened in a headless Chromium of its own for each start, over loopback.
The page stands in a frame of a page that tells when it has loaded and when a frame was drawn after that, by the
browser's own clock. Tables go to standard output, and with ``--record`` to benches/RESULTS.md. The exit code is 1 when
a bar is short.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

from benches.lib.bars import Bar, exit_code
from benches.lib.context import say
from benches.lib.host import ROOT, facts
from benches.lib.procs import run_measured
from benches.lib.report_runs import LEVELS, write_run
from benches.lib.results import Report
from benches.lib.stats import Interval, bootstrap_median, plain

MOST_OPEN_S, MOST_MB = 2.0, 2.0
ANSWER_S = 120
AROUND = """<!DOCTYPE html><iframe id="page" width="1300" height="900"></iframe><script>
const began = performance.now();
page.onload = () => {
  const loaded = performance.now() - began;
  page.contentWindow.requestAnimationFrame(() => page.contentWindow.requestAnimationFrame(() =>
    fetch("told", {method: "POST", body: JSON.stringify({loaded, drawn: performance.now() - began})})));
};
page.src = "report.html";
</script>"""


class _Pages(SimpleHTTPRequestHandler):
    """Gives the two pages, and takes what the one around tells."""

    def __init__(self, *arguments: Any, told: Queue[dict[str, float]], **more: Any) -> None:
        self._told = told
        super().__init__(*arguments, **more)

    def do_POST(self) -> None:
        self._told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: the table says what came of it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the run, report it, open its page, print."""
    options = _options(arguments)
    if shutil.which("chromium") is None:
        sys.stderr.write("benches.page: there is no chromium on PATH\n")
        return 3
    report = Report()
    with tempfile.TemporaryDirectory(dir=options.dir) as place:
        run = write_run(Path(place) / "run", options.requests // len(LEVELS))
        made = run_measured([sys.executable, "-m", "gpusize", "report", str(run)])
        page = run / "report.html"
        (run / "around.html").write_text(AROUND, encoding="utf-8")
        size_mb = page.stat().st_size / 1e6
        with _served(run) as (address, told):
            starts = [_opened(address, told, Path(place) / f"profile-{k}") for k in range(options.starts)]
    loaded, drawn = ([start[key] / 1000 for start in starts] for key in ("loaded", "drawn"))
    rows: list[list[object]] = [
        ["loaded, s", bootstrap_median(loaded), plain(max(loaded))],
        ["first frame after that, s", bootstrap_median(drawn), plain(max(drawn))],
        ["size, MB", plain(size_mb), plain(size_mb)],
        ["made by gpusize report, CPU s", plain(made.cpu_s), plain(made.cpu_s)],
    ]
    note = f"Since the frame was given its address; {options.starts} starts of Chromium, each with a new profile."
    report.table(f"the page of {options.requests:,} requests", ["what", "median", "most"], rows, note)
    # The longest of them: that of whoever was least lucky.
    report.bar(Bar("page_open_s", Interval(bootstrap_median(drawn).value, min(drawn), max(drawn)), MOST_OPEN_S, "s"))
    report.bar(Bar("page_mb", Interval.exact(size_mb), MOST_MB, "MB"))
    if options.record:
        report.append_to(ROOT / "benches" / "RESULTS.md", facts(), options.command)
    return exit_code(report.bars)


@contextmanager
def _served(folder: Path) -> Iterator[tuple[str, Queue[dict[str, float]]]]:
    told: Queue[dict[str, float]] = Queue()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Pages, told=told, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/around.html", told
    finally:
        server.shutdown()
        server.server_close()


def _opened(address: str, told: Queue[dict[str, float]], profile: Path) -> dict[str, float]:
    """One start of the browser: milliseconds until the page had loaded, and until a frame was drawn after that."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--remote-debugging-port=0"]
    quiet = subprocess.DEVNULL
    browser = subprocess.Popen(["chromium", *options, address], stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        found = told.get(timeout=ANSWER_S)
    finally:
        browser.terminate()
        browser.wait(timeout=ANSWER_S)
    say(f"loaded after {found['loaded']:.0f} ms, drawn after {found['drawn']:.0f} ms")
    return found


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benches.page")
    parser.add_argument("--requests", type=int, default=1_000_000, help=f"in all, over {len(LEVELS)} levels")
    parser.add_argument("--starts", type=int, default=15, help="of the browser")
    parser.add_argument("--dir", help="where the run is written: 100 MB")
    parser.add_argument("--record", action="store_true", help="append to benches/RESULTS.md")
    options = parser.parse_args(given)
    options.command = " ".join(["python -m benches.page", *given])
    return options


if __name__ == "__main__":
    sys.exit(main())
