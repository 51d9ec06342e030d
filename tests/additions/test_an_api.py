"""One more API is its module and its line among the known ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.additions.conftest import House, Server

API = '''
"""{"ask": text}, answered by {"said": text}."""

from gpusize.targets.apis.base import ResponseSpec
from gpusize.targets.apis.generic import Generic


class Parrot(Generic):
    name = "parrot"
    nature = "language_model"
    default_path = "/parrot"
    member = "ask"
    spec = ResponseSpec(content=("/said",))
'''


def test_an_api_is_in_the_help_guessed_and_sent(house: House, parrot: Server):
    house.add("targets/apis/parrot.py", API)
    house.insert(
        "targets/known_apis.py",
        '        "generic": Known(',
        '        "parrot": Known("parrot", "Parrot", ("/squawk",)),\n',
    )
    assert "nat-chat, parrot or generic" in " ".join(house.run("run", "--help", "api").split())

    url = f"http://127.0.0.1:{parrot.server_port}/squawk"
    load = ("--concurrency", "1", "--count", "3", "--prompt", "hello", "--slo", "p95 llm_latency <= 5s")
    house.run("run", "--url", url, *load, "--out", "runs", "--no-plots", "--quiet")
    [folder] = (house.folder / "runs").iterdir()
    [target] = json.loads((folder / "run.json").read_text())["targets"]
    assert (target["api"], target["nature"]) == ("parrot", "language_model")
    assert parrot.asked == ["hello"] * 4  # one of them is the probe
    [level] = json.loads((folder / "summary.json").read_text())
    assert (level["errors"], level["slo_0_met"]) == (0, True)
    assert house.is_documented_as("an API")
