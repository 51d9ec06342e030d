"""``gpusize pipeline run --verify`` as a user runs it: what it recommends holds, and the exit code says so."""

from __future__ import annotations

import json
from pathlib import Path

from tests.containers.conftest import Leftovers, Run
from tests.containers.engine import IMAGE
from tests.containers.test_sizing import TWO_CORES

# A dollar sign is two in a definition.
SCRIPT = TWO_CORES.replace("$", "$$")
BURNS = f"""\
pipeline: burns
operators:
  burn: {{image: "{IMAGE}", command: [sh, -c, "{SCRIPT}"]}}
"""

FLOWS = f"""\
pipeline: flows
operators:
  read: {{image: "{IMAGE}", command: [sh, -c, "cat /in/a.txt /in/a.txt > /out/b; sleep 0.3"], input: /in, output: /out}}
  spike:
    image: "{IMAGE}"
    command:
      - sh
      - -c
      - sleep 0.3; dd if=/dev/zero bs=100M count=1 of=/dev/null 2>/dev/null; wc -l < /in/b > /out/n; sleep 0.3
    input: {{read: /in}}
    output: {{lines: /out}}
  write:
    image: "{IMAGE}"
    command: [sh, -c, "sleep 0.3; cat /n/n /b/b > /out/all"]
    input: {{spike/lines: /n, read: /b}}
    output: /out
"""


def test_what_burns_two_cores_gets_them_and_they_hold(run: Run, tmp_path: Path, leftovers: Leftovers) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(BURNS, "utf-8")
    # Whole cores: on a busy machine a part of one could be what slows it at one time and not at another.
    done = run("pipeline", "run", file, "--verify", "--whole-cores", "--metrics-dir", "m", "--no-plots")
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert ": holds" in done.stdout
    [document] = [json.loads(each.read_text()) for each in (tmp_path / "m").glob("*/pipeline.json")]
    [burn] = document["operators"]
    advice, last = burn["recommendation"], burn["trials"][-1]
    assert (last["kind"], last["verdict"]["holds"], last["verdict"]["oom_killed"]) == ("verify", True, False)
    assert last["limits"]["mem_bytes"] == advice["mem_bytes"]
    # Two that count at once would take more than one, but on a machine that is busy otherwise.
    assert burn["executions"][0]["usage"]["cpu"]["total_s"] > 0.3
    assert advice["cpu_cores"] > 0.5
    assert leftovers() == []


def test_a_pipeline_through_which_files_flow_holds_as_a_whole(
    run: Run, payload: Path, tmp_path: Path, leftovers: Leftovers
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(FLOWS, "utf-8")
    more = ("--verify", "--whole-cores", "--metrics-dir", "m", "--keep", "kept", "--no-plots")
    done = run("pipeline", "run", file, payload, *more)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert done.stdout.count(": holds") == 3
    assert (tmp_path / "kept" / "write" / "all").read_text() == "2\nhello\nhello\n"
    [document] = [json.loads(each.read_text()) for each in (tmp_path / "m").glob("*/pipeline.json")]
    for each in document["operators"]:
        assert [trial["kind"] for trial in each["trials"]] == ["verify"] * len(each["trials"])
        assert each["trials"][-1]["verdict"]["holds"]
    spike = document["operators"][1]["recommendation"]
    assert spike["mem_bytes"] >= 100 << 20
    assert leftovers() == []
