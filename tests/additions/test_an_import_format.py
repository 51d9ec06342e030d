"""One more format to import is the module that reads it and its command."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.additions.conftest import House

READER = '''
"""Lines of users and seconds."""

from gpusize.analysis.level import LevelData
from gpusize.studies.imports.run_folder import write_run


def import_lines(file, out):
    levels = []
    for visit, line in enumerate(file.read_text().splitlines()):
        users, p95_s = line.split()
        setting = {"kind": "closed", "concurrency": int(users)}
        percentiles = {"runtime_p95_s": float(p95_s)}
        meta = {"schema": 1, "visit": visit, "imported": True, "setting": setting, "state": "done", "gpus": 1,
                "percentiles": percentiles, "items": {}, "alerts": []}
        levels.append(LevelData(visit, setting, "done", (), 1, file.stem, meta, percentiles=percentiles))
    about = {"schema": 1, "run": file.stem, "targets": [], "models": [], "dataset": {}, "labels": {}, "options": {}}
    return write_run(out, about, levels)
'''

COMMAND = '''
@app.command("lines", cls=Command)
def lines(file: Annotated[Path, typer.Argument(help="A line for each level: users, seconds.")]) -> None:
    """Import lines of users and seconds."""
    from gpusize.studies.imports.lines import import_lines

    typer.echo(import_lines(file, Path("runs")))


'''


def test_an_import_format_is_a_command_and_its_levels_are_shown(house: House):
    house.add("studies/imports/lines.py", READER)
    house.insert("cli/importing.py", '@app.command("perf_analyzer", cls=Command)', COMMAND.lstrip())
    assert "Import lines of users and seconds." in house.run("import", "--help")
    (house.folder / "other.txt").write_text("1 0.5\n8 1.25\n")
    assert house.run("import", "lines", "other.txt").strip() == "runs/other"
    house.run("report", "runs/other", "--no-plots")
    rows = json.loads((house.folder / "runs" / "other" / "summary.json").read_text())
    assert [(row["concurrency"], row["runtime_p95_s"]) for row in rows] == [(1, 0.5), (8, 1.25)]
    assert house.is_documented_as("an import format")
