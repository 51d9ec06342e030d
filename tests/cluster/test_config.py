"""``--config`` of the cluster's commands: one file for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.folders import save
from tests.cluster.synthetic import World
from tests.cluster.test_report_commands import run

WORDS = {
    "c.toml": 'output-dir = "{out}"\nslo = "p99 scheduled <= 1ms"\nnum_workloads = 5\nproject = "project-1"\n',
    "c.yaml": "output_dir: '{out}'\nslo: ['p99 scheduled <= 1ms']\nnum-workloads: 5\ndelay: 2\n",
    "c.json": '{{"output_dir": "{out}", "slo": ["p99 scheduled <= 1ms"], "pvc": true, "num_gpus": null}}',
}


@pytest.mark.parametrize("name", WORDS)
def test_each_command_takes_the_options_that_it_has(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save(World(n=12), tmp_path / "out")
    file = tmp_path / name
    file.write_text(WORDS[name].format(out=tmp_path / "out"))
    code, out, _ = run(capsys, "report", "--config", str(file))
    assert (code, "12 workloads" in out) == (1, True), "the file's folder, and its threshold"
    code, out, _ = run(capsys, "report", "--config", str(file), "--slo", "p50 scheduled <= 1h")
    assert (code, "1ms" in out) == (0, False), "what is typed goes before the file"
    code, _, _ = run(capsys, "plot", "--config", str(file))
    assert code == 0
    assert (tmp_path / "out/general.png").is_file()


@pytest.mark.parametrize(
    "text, said",
    [
        ("num_workload = 3", 'c.toml:1:1: there is no option "num_workload". Did you mean "num_workloads"?'),
        ("\njson = true", 'c.toml:2:1: there is no option "json"'),
        ('pvc = "yes"', '"pvc" is not true or false'),
        ('skip_errors = "yes"', '"skip_errors" is not true or false'),
        ("output_dir = [1]", '"output_dir" is not a text or a number'),
        ("head = -3", "--head"),
    ],
)
def test_what_is_wrong_in_a_file(tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.toml").write_text(text)
    code, _, err = run(capsys, "plot", "--config", str(tmp_path / "c.toml"))
    assert code == 2
    assert said in err
