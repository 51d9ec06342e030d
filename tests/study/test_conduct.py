"""What a study starts and ends, whatever goes wrong in between."""

import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpusize.base.errors import MeasuredNo, StoreError, UsageError
from gpusize.base.process_group import log_tail, run_command
from gpusize.studies.combination import plan_of
from gpusize.studies.conduct import run_study, unfinished
from gpusize.studies.spec import Study, read_study
from gpusize.studies.surroundings import Surroundings
from gpusize.studies.table import study_rows
from tests.analysis.synthetic import percentile_level
from tests.servers.scripted import Send, answer
from tests.virtual_time import VirtualClock

APPEND = "{python} -c \"open('log','a').write('%s\\n')\""


def log() -> list[str]:
    file = Path("log")
    return file.read_text("utf-8").split() if file.exists() else []


def note(text: str) -> str:
    """A command that writes a line into the log."""
    return APPEND % text


def state(path: Path):
    return json.loads((path / "study.json").read_text("utf-8"))["combinations"]


def test_each_combination_is_set_up_measured_and_torn_down(study, measure):
    made = study(
        settings={"n": [1, 2]},
        setup=note("setup-{n}"),
        ready=note("ready-{n}"),
        warmup={"concurrencies": [3]},
        teardown=[note("down-{n}"), note("tidy-{n}")],
    )

    def run(options, _):
        with Path("log").open("a") as file:
            file.write(f"run-{options['concurrencies'][0]}\n")

    measure.during = run
    said: list[str] = []
    result = run_study(made, measure=measure, say=said.append)
    steps = ("setup-{}", "ready-{}", "run-3", "run-1", "down-{}", "tidy-{}")
    assert log() == [step.format(n) for n in (1, 2) for step in steps]
    assert (result.exit_code, result.failed) == (0, [])
    entries = state(result.path)
    assert [entry["state"] for entry in entries.values()] == ["done", "done"]
    runs = sorted(path.name for path in result.path.iterdir() if (path / "run.json").is_file())
    assert sorted(entry["run"] for entry in entries.values()) == runs
    assert not (result.path / "work" / "n=1" / "warmup").exists()
    assert [options["label"]["n"] for options in measure.asked] == ["1", "1", "2", "2"]
    assert "n=2: 2 of 2" in said


def test_a_combination_that_fails_does_not_stop_the_others(study, measure):
    script = "import sys; print('no', 'gpu'); sys.exit(int(sys.argv[1]) % 2)"
    made = study(settings={"n": [1, 2]}, setup=f'{{python}} -c "{script}" {{n}}', teardown=note("down-{n}"))
    result = run_study(made, measure=measure)
    assert log() == ["down-1", "down-2"]
    assert result.failed == ["n=1"]
    assert result.exit_code == 1
    error = state(result.path)["n=1"]["error"]
    assert "setup ended with status 1" in error
    assert "no gpu" in error
    assert state(result.path)["n=2"]["state"] == "done"


def test_programs_that_are_not_there(study, measure):
    result = run_study(study(setup="no-such-program-anywhere", teardown=note("down")), measure=measure)
    assert log() == ["down"]
    assert "no-such-program-anywhere cannot be started" in state(result.path)["all"]["error"]
    assert measure.asked == []


def test_a_combination_of_which_no_level_was_measured_to_its_end_failed(study, measure):
    """Its requests failed, so each level ended early: there is nothing to compare with the others."""
    made = study(settings={"n": [1, 2]})

    def run(options, stop):
        first = options["label"]["n"] == "1"
        ended = [(1, "interrupted"), (4, "interrupted")] if first else [(1, "done"), (4, "cancelled"), (4, "done")]
        measure.levels = [percentile_level(c, 1.0, state=state) for c, state in ended]

    measure.during = run
    result = run_study(made, measure=measure)
    assert (result.failed, result.exit_code) == (["n=1"], 1)
    error = "2 of 2 levels were not measured to their end: concurrency 1, 4 interrupted"
    assert (state(made.out)["n=1"]["state"], state(made.out)["n=1"]["error"]) == ("failed", error)
    assert state(made.out)["n=2"]["state"] == "done"
    # What was cut short and measured again is measured.
    assert unfinished(SimpleNamespace(levels=measure.levels)) is None  # type: ignore[arg-type]


def test_a_teardown_that_fails_is_named_and_the_rest_of_it_runs(study, measure):
    made = study(teardown=['{python} -c "raise SystemExit(3)"', note("tidy")])
    result = run_study(made, measure=measure)
    assert log() == ["tidy"]
    assert state(result.path)["all"]["state"] == "done"
    assert "teardown ended with status 3" in state(result.path)["all"]["teardown_error"]
    assert (result.failed, result.exit_code) == (["all"], 1)


def test_a_bug_goes_through_after_the_teardown(study, measure):
    def fail(*_):
        raise ZeroDivisionError

    measure.during = fail
    made = study(teardown=note("down"))
    with pytest.raises(ZeroDivisionError):
        run_study(made, measure=measure)
    assert log() == ["down"]
    assert state(made.out)["all"]["state"] == "failed"


def test_steps_that_take_too_long(study, measure):
    sleep = '{python} -c "import time; time.sleep(60)"'
    cases = {
        "setup took longer than 0.01 s": {"setup": sleep, "setup_timeout": "10ms"},
        "it was not ready within 0.01 s": {"ready": sleep, "ready_timeout": "10ms"},
        "it was not ready within 0.02 s": {"ready": '{python} -c "raise SystemExit(1)"', "ready_timeout": "20ms"},
    }
    for number, (text, members) in enumerate(cases.items(), start=1):
        result = run_study(study(**members, out=f"s{number}", teardown=note("down")), measure=measure)
        assert text in state(result.path)["all"]["error"]
        assert log() == ["down"] * number
    assert measure.asked == []


def test_a_run_that_takes_too_long_is_stopped(study, measure):
    def wait(_options, stop):
        while not stop.asked:
            pass

    measure.during = wait
    result = run_study(study(run_timeout="10ms", teardown=note("down")), measure=measure)
    assert state(result.path)["all"]["error"] == "the run took longer than 0.01 s"
    assert result.exit_code == 1
    assert log() == ["down"]


def test_a_server_that_is_kept_running(study, measure):
    server = "import signal, time; open('up','w').close(); signal.pause()"
    made = study(
        serve=f'{{python}} -c "{server}"',
        ready="{python} -c \"import os; raise SystemExit(not os.path.exists('up'))\"",
    )
    before = children()
    alive: list[bool] = []
    measure.during = lambda *_: alive.append(bool(children() - before))
    result = run_study(made, measure=measure)
    assert alive == [True]
    assert result.exit_code == 0
    assert children() - before == set()


@pytest.mark.parametrize("deaf", [False, True])
def test_a_study_that_is_killed_leaves_no_server(study, tmp_path, deaf):
    """SIGKILL lets nobody tidy up, and a server that ignores SIGTERM ends too."""
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN); " if deaf else ""
    name = "import os, signal; open('pid.new', 'w').write(str(os.getpid())); os.rename('pid.new', 'pid')"
    made = study(
        serve=f'{{python}} -c "{ignore and "import signal; "}{ignore}{name}; signal.pause()"',
        ready='{python} -c "raise SystemExit(1)"',
    )
    script = textwrap.dedent("""
        import sys
        import gpusize.base.process_group as process
        from gpusize.studies.conduct import run_study
        from gpusize.studies.spec import read_study
        process._GRACE_S = 0.5
        run_study(read_study(sys.argv[1]))
    """)
    with subprocess.Popen([sys.executable, "-c", script, made.source], cwd=tmp_path) as killed:
        while not Path("pid").exists():
            assert killed.poll() is None
            time.sleep(0.01)
        server = os.pidfd_open(int(Path("pid").read_text()))
        try:
            killed.kill()
            ended, _, _ = select.select([server], [], [], 60)
            assert ended == [server]
        finally:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(server, signal.SIGKILL)
            os.close(server)


def children() -> set[str]:
    """Processes that this one has; other tests may keep servers."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text("utf-8").split())


def test_a_server_that_dies(study, measure):
    made = study(serve="{python} -c \"raise SystemExit('out of memory')\"", ready='{python} -c "raise SystemExit(1)"')
    result = run_study(made, measure=measure)
    error = state(result.path)["all"]["error"]
    assert "the server ended with status 1" in error
    assert "out of memory" in error
    assert measure.asked == []


def test_an_address_that_becomes_ready(study, measure, scripted_server):
    # It stays ready: an answer that came too late is asked for again.
    answers = itertools.chain(["503 Not Yet"], itertools.repeat("200 OK"))
    server = scripted_server(lambda _: [Send(answer(b"", status=next(answers)))])
    made = study(ready=f"http://127.0.0.1:{server.port}/v2/health/ready")
    assert run_study(made, measure=measure).exit_code == 0
    assert len(measure.asked) == 1


def waited(made: Study, clock: VirtualClock) -> None:
    """Set up the only combination of a study in virtual time."""
    [combination] = made.combinations
    Surroundings(made, plan_of(made, combination), clock=clock).set_up()


def test_an_address_is_asked_twice_a_second_until_it_is_ready(study, scripted_server):
    clock = VirtualClock()
    server = scripted_server(lambda _: [Send(answer(b"", status="503 No" if clock.passed_s < 4 else "200 OK"))])
    waited(study(ready=f"http://127.0.0.1:{server.port}/v2/health/ready", ready_timeout="10s"), clock)
    assert clock.passed_s == 4.0
    assert set(clock.waits) == {0.5}


def test_an_address_is_not_asked_for_ever(study, scripted_server):
    clock = VirtualClock()
    server = scripted_server(lambda _: [Send(answer(b"", status="503 No"))])
    with pytest.raises(MeasuredNo, match="it was not ready within 10 s"):
        waited(study(ready=f"http://127.0.0.1:{server.port}/v2/health/ready", ready_timeout="10s"), clock)
    assert clock.passed_s == 10.0


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_in_a_run_tears_down_and_ends_the_study(study, measure, times):
    def interrupt(_options, stop):
        # The runner's own handler is in place while it measures: it asks the switch.
        for _ in range(times):
            stop.ask()

    measure.during = interrupt
    result = run_study(study(settings={"n": [1, 2]}, teardown=note("down-{n}")), measure=measure)
    assert log() == ["down-1"]
    assert (result.cancelled, result.exit_code) == (True, 130)
    assert [entry["state"] for entry in state(result.path).values()] == ["interrupted", "pending"]


def test_ctrl_c_before_the_first_request(study, measure):
    measure.during = lambda *_: os.kill(os.getpid(), signal.SIGINT)
    before = signal.getsignal(signal.SIGINT)
    result = run_study(study(teardown=note("down")), measure=measure)
    assert log() == ["down"]
    assert result.exit_code == 130
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_twice_while_it_is_set_up_and_torn_down(study, tmp_path):
    """A real process, whose teardown sends it the second Ctrl-C itself."""
    kill = "import os, signal; os.kill(os.getppid(), signal.SIGINT); print('sent')"
    made = study(
        settings={"n": [1, 2]},
        setup=[f'{{python}} -c "{kill}"', '{python} -c "import time; time.sleep(60)"'],
        teardown=[f'{{python}} -c "{kill}"', note("down-{n}")],
    )
    script = textwrap.dedent("""
        import sys
        from gpusize.studies.conduct import run_study
        from gpusize.studies.spec import read_study
        sys.exit(run_study(read_study(sys.argv[1])).exit_code)
    """)
    done = subprocess.run([sys.executable, "-c", script, made.source], cwd=tmp_path, check=False)
    assert done.returncode == 130
    assert log() == ["down-1"]
    assert state(made.out)["n=1"]["state"] == "interrupted"


def test_resume_measures_what_is_missing_and_goes_on_with_what_was_begun(study, measure):
    members = {"settings": {"n": [1, 2, 3]}, "setup": note("setup-{n}")}

    def interrupt(options, stop):
        if options["label"]["n"] == "2":
            stop.ask()

    measure.during = interrupt
    first = run_study(study(**members), measure=measure)
    assert [entry["state"] for entry in first.entries.values()] == ["done", "interrupted", "pending"]
    with pytest.raises(UsageError, match="already holds a study"):
        run_study(study(**members), measure=measure)
    measure.during = None
    said: list[str] = []
    second = run_study(study(**members), measure=measure, resume=True, say=said.append)
    assert log() == ["setup-1", "setup-2", "setup-2", "setup-3"]
    assert [entry["state"] for entry in second.entries.values()] == ["done"] * 3
    assert measure.resumed[2] == first.path / str(first.entries["n=2"]["run"])
    assert measure.resumed[3] is None
    assert "n=1: done before" in said
    more = run_study(study(**{**members, "settings": {"n": [1, 4]}}), measure=measure, resume=True)
    assert list(more.entries) == ["n=1", "n=4"]
    assert list(state(more.path)) == ["n=1", "n=2", "n=3", "n=4"]
    with pytest.raises(UsageError, match="other steps or other options"):
        run_study(study(**members, ready=note("r")), measure=measure, resume=True)


def test_a_broken_state(study, measure):
    made = study()
    made.out.mkdir()
    for text, what in (("{", "not valid JSON"), ("[]", "not the state of a study"), ('{"combinations": {}}', "schema")):
        (made.out / "study.json").write_text(text)
        with pytest.raises(StoreError, match=what):
            run_study(made, measure=measure, resume=True)


def test_nothing_starts_when_an_option_cannot_be_meant(study, measure):
    made = study(settings={"n": [1, "two"]}, setup=note("setup"), run={"url": "http://h/v1", "count": "{n}"})
    with pytest.raises(UsageError, match="is not a whole number"):
        run_study(made, measure=measure)
    assert log() == []
    assert not made.out.exists()


def test_rows_of_a_study(study, measure):
    result = run_study(study(settings={"n": [1]}), measure=measure)
    [row] = study_rows(result)
    assert (row["name"], row["settings"], row["state"], row["error"]) == ("n=1", {"n": 1}, "done", None)
    assert row["peak_rate"] is None, "the run has no levels"


def test_commands(tmp_path):
    file = tmp_path / "log"
    words = [sys.executable, "-c", "import sys; print('first'); sys.exit('last')"]
    assert run_command(words, file, 60, step="setup") == 1
    assert log_tail(file) == "first | last" or log_tail(file) == "last | first"
    assert log_tail(tmp_path / "none") == ""
    with pytest.raises(MeasuredNo, match="setup took longer"):
        run_command([sys.executable, "-c", "import time; time.sleep(60)"], file, 0.01, step="setup")


def test_a_whole_study_of_the_simulated_cluster(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "small.yaml"
    file.write_text("settings: {gpus: [1, 2]}\nrun: {concurrencies: [1, 2], passes: 1, max_tokens: 4, plots: false}\n")
    result = run_study(read_study(file))
    assert result.exit_code == 0
    rows = study_rows(result)
    assert [row["settings"]["gpus"] for row in rows] == [1, 2]
    assert all(row["peak_rate"] > 0 and row["levels"] == 2 for row in rows)
    assert all((result.path / entry["run"] / "report.html").is_file() for entry in result.entries.values())
