"""Files of options that would take all memory, run other people's code, or hold what nothing takes: one line each."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gpusize.base.documents import read_document
from gpusize.base.errors import ConfigError
from tests.cli.conftest import Gpusize

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{high}: &{high} [{', '.join([f'*{low}'] * 10)}]\n" for low, high in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {k: v}\n" + "".join(
    f"{high}: &{high} {{x: *{low}, y: *{low}}}\n"
    for low, high in zip("abcdefghijklmnopqrstuvw", "bcdefghijklmnopqrstuvwx", strict=True)
)
FILES = {
    "aliases that multiply": ("x.yaml", BOMB, "x.yaml:6:", "expand to more than 200,000 values"),
    "aliases in merges": ("x.yaml", MERGES, "x.yaml:", "expand to more than 200,000 values"),
    "an alias inside its anchor": ("x.yaml", "a: &a\n  b: [*a]\n", "x.yaml:2:7", "inside its own anchor"),
    "a tag of Python": ("x.yaml", "seed: !!python/object/apply:os.system ['true']\n", "x.yaml:1:7", "is not taken"),
    "a tag of nobody": ("x.yaml", "seed: !mine 3\n", "x.yaml:1:7", "the tag !mine is not taken"),
    "nesting in YAML": ("x.yaml", "a: " + "[" * 500 + "]" * 500, "x.yaml:1:", "nested deeper than 64 levels"),
    "nesting in JSON": ("x.json", '{"a": ' + "[" * 500 + "]" * 500 + "}", "x.json", "nested deeper than 64 levels"),
    "nesting in TOML": ("x.toml", "a = " + "[" * 200 + "]" * 200, "x.toml:1:1", "nested deeper than 64 levels"),
    "digits in TOML": ("x.toml", f"b = 1\nseed = {'9' * 5000}", "x.toml:2:8", "too many digits"),
    "digits in YAML": ("x.yaml", f"seed: {'9' * 5000}", "x.yaml", "broken YAML"),
    "digits in JSON": ("x.json", f'{{"seed": {"9" * 5000}}}', "x.json", "broken JSON"),
    "bits in TOML": ("x.toml", f"b = 1\nseed = {2**70}", "x.toml:2:1", "more than 64 bits"),
    "half a character": ("x.json", '{"prompt": "\\ud800"}', "x.json:1:2", "half a character"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_refused_with_its_place(gpusize: Gpusize, name: str) -> None:
    file, text, where, what = FILES[name]
    Path(file).write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_document(file, Path(file).suffix)
    assert caught.value.where is not None
    assert caught.value.where.startswith(where)
    assert what in caught.value.what
    done = gpusize("run", "--config", file)
    assert done.code == 2
    assert where in done.complaint


@pytest.mark.parametrize("command", ["run --load x.yaml --url http://h", "study x.yaml", "pipeline run x.yaml ."])
def test_every_reader_of_yaml_has_the_bound(gpusize: Gpusize, command: str) -> None:
    Path("x.yaml").write_text(BOMB)
    done = gpusize(*command.split())
    assert done.code == 2, done.err
    assert "expand to more than" in done.complaint


def test_memory_stays_small(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(BOMB)
    program = "from gpusize.base.documents import read_document; read_document('x.yaml', '.yaml')"

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, preexec_fn=bounded, capture_output=True, text=True, check=False
    )
    assert "ConfigError" in done.stderr
    assert "MemoryError" not in done.stderr


def test_aliases_that_repeat_a_little_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("base: &base {a: 1, b: !!str 2}\none: {<<: *base, c: 3}\ntwo: *base\n")
    values = read_document(str(file), ".yaml").values
    assert values["one"] == {"a": 1, "b": "2", "c": 3}
    assert values["two"] == values["base"]
