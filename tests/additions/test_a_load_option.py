"""One more option of the load is its line in the table of options, the field it sets, and the code that uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.additions.conftest import House, Server

LOAD = "workload/load/load.py"


def requests(folder: Path) -> int:
    return int(json.loads((folder / "levels" / "0000" / "level.json").read_text())["rows"])


def test_a_load_option_works_on_the_command_line_in_files_and_again(house: House, parrot: Server):
    house.insert(
        "options/table.py",
        '            Option("duration", "duration", "End a level after this time."',
        '            Option("rounds", "whole", "Send the count this many times.", "N", "1"),\n',
    )
    house.insert(LOAD, "    names_way: bool = field(", "    rounds: int = 1\n")
    house.insert(
        LOAD, "            return self.count\n", "            return self.count and self.count * self.rounds\n"
    )
    assert "--rounds N" in house.run("run", "--help", "load")

    url = f"http://127.0.0.1:{parrot.server_port}/squawk"
    target = f"url = '{url}'\napi = 'generic'\nbody_template = '{{\"ask\": \"hi\"}}'\n"
    (house.folder / "run.toml").write_text(f"{target}prompt = 'hi'\nconcurrencies = [2]\ncount = 5\nrounds = 3\n")
    quiet = ("--out", "runs", "--no-plots", "--quiet")

    def sent(*options: str) -> Path:
        before = set((house.folder / "runs").glob("*"))
        house.run("run", *options, *quiet)
        [folder] = set((house.folder / "runs").glob("*")) - before
        return folder

    by_file = sent("--config", "run.toml")
    assert requests(by_file) == 15
    by_flag = sent("--config", "run.toml", "--rounds", "2")
    assert requests(by_flag) == 10
    assert json.loads((by_flag / "run.json").read_text())["options"]["rounds"] == 2
    assert requests(sent("--config", str(by_flag))) == 10  # a run folder's options make the run again
    assert len(parrot.asked) == 15 + 10 + 10 + 3  # a probe each
    assert "rounds" in house.run("run", "--config", "run.toml", "--rounds", "two", exits=2)
    assert house.is_documented_as("a load option")
