"""Clara's pipeline definitions: what of them is read, resolved and refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpusize.base.errors import ConfigError, UsageError
from gpusize.containers.pipeline import Input, Operator, Output, Requests, read_pipeline

SPLEEN = """\
api-version: 0.5.0
name: spleen-pipeline
orchestrator: Clara
pull-secrets:
  - registry-key
parameters:
  LEVEL: 2
operators:
- name: reader
  variables:
    TRACE: ${{ level }}
    VERSION: 1.10
    ON: true
  container:
    image: clara/reader
    tag: 1.10
    command: ["python", "read.py", "--level=${{LEVEL}}"]
  input:
  - path: /input
  output:
  - path: /output
- name: segment
  container:
    image: clara/segment
  requests:
    cpu: 4
    gpu: 1
    memory: 8192
  input:
  - from: READER
    path: /input
  output:
  - path: /masks
    name: masks
  - path: /log
    name: log
  models:
  - name: spleen_v1
- name: writer
  container:
    image: clara/writer
    tag: 0.8.1-2108.1
  input:
  - from: segment
    name: Masks
    path: /masks
  - path: /original
"""

WITH_SERVICE = """\
name: p
operators:
- name: infer
  container: {image: infer}
  services:
  - name: trtis
    container:
      image: triton
      tag: latest
      command: ["trtserver", "--model-store=$(NVIDIA_CLARA_SERVICE_DATA_PATH)/models"]
    requests: {gpu: 1}
    connections:
      http:
      - name: NVIDIA_CLARA_TRTISURI
        port: 8000
"""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(text: str, name: str = "pipeline.yaml") -> Path:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text, "utf-8")
        return file

    return to_file


def test_a_whole_pipeline(write: Write) -> None:
    file = write(SPLEEN)
    pipeline = read_pipeline(file)
    assert (pipeline.name, pipeline.form) == ("spleen-pipeline", "clara")
    assert pipeline.reads_input
    reader, segment, writer = pipeline.operators
    assert reader == Operator(
        name="reader",
        image="clara/reader:1.10",
        command=("python", "read.py", "--level=2"),
        variables={"TRACE": "2", "VERSION": "1.10", "ON": "true"},
        inputs=(Input("/input", where=f"{file}:19:5"),),
        outputs=(Output("/output", where=f"{file}:21:5"),),
        where=f"{file}:9:3",
    )
    assert segment.image == "clara/segment:latest"
    assert segment.command is None
    assert segment.requests == Requests(4.0, 8_192_000_000, 1)
    assert segment.models == ("spleen_v1",)
    assert [each.name for each in segment.outputs] == ["masks", "log"]
    assert [(each.upstream, each.name, each.path) for each in writer.inputs] == [
        ("segment", "Masks", "/masks"),
        (None, None, "/original"),
    ]


def test_what_cannot_be_used_is_noted(write: Write) -> None:
    [note] = read_pipeline(write(SPLEEN)).notes
    assert "pipeline.yaml:4:1: pull-secrets (registry-key)" in note


def test_arguments_replace_defaults_whatever_their_case(write: Write) -> None:
    pipeline = read_pipeline(write(SPLEEN), {"Level": "7"})
    assert pipeline.operators[0].variables["TRACE"] == "7"
    assert pipeline.operators[0].command == ("python", "read.py", "--level=7")


def test_an_argument_without_a_parameter_is_refused(write: Write) -> None:
    with pytest.raises(UsageError, match=r'no parameter "depth".*It has level'):
        read_pipeline(write(SPLEEN), {"depth": "7"})


def test_services(write: Write) -> None:
    [operator] = read_pipeline(write(WITH_SERVICE)).operators
    [service] = operator.services
    assert (service.name, service.image, service.gpus) == ("trtis", "triton:latest", "1")
    assert service.command == ("trtserver", "--model-store=/models")
    assert service.connections == (("NVIDIA_CLARA_TRTISURI", 8000),)


def test_imports_take_arguments_and_are_overridden_whole(write: Callable[..., Path]) -> None:
    write(
        """\
name: reader
parameters:
  FROM: nowhere
  DEPTH: 1
container: {image: lib/reader, tag: "3", command: ["--depth", "${{ DEPTH }}"]}
variables: {A: a, B: b}
input:
- from: ${{ FROM }}
  path: /in
""",
        "lib/reader.yaml",
    )
    file = write("""\
name: p
parameters: {N: 5}
operators:
- name: first
  container: {image: first}
  output: [{path: /out}]
- import:
    path: lib/reader.yaml
    args: {from: first, depth: "${{ N }}"}
  name: second
  variables: {B: other}
""")
    second = read_pipeline(file).operators[1]
    assert second.name == "second"
    assert second.image == "lib/reader:3"
    assert second.command == ("--depth", "5")
    assert second.variables == {"B": "other"}
    assert [each.upstream for each in second.inputs] == ["first"]


def bad(operators: str, top: str = "") -> str:
    return f"name: p\n{top}operators:\n{operators}"


TWO = "- name: b\n  container: {image: i}\n"
ONE = "- name: a\n  container: {image: i}\n"
REFUSED = {
    "an unknown key": (bad(ONE + "  volumes: []\n"), 'yaml:5:3: "volumes" is not supported in an item of operators'),
    "a key with a typing error": (bad(ONE + "  inputs: []\n"), 'yaml:5:3: .*Did you mean "input"'),
    "an unknown key of a container": (bad("- name: a\n  container: {image: i, entry: x}\n"), r'yaml:4:25: "entry" is'),
    "a missing image": (bad("- name: a\n  container: {tag: '1'}\n"), "container has no image"),
    "an empty image": (bad("- name: a\n  container: {image: ''}\n"), "yaml:3:3: the operator has no image"),
    "a missing container": (bad("- name: a\n"), "has no container"),
    "no operators": (bad(" []\n"), "the pipeline has no operators"),
    "operators as a text": ("name: p\noperators: 3\n", "yaml:2:1: operators is 3, not a list"),
    "a name twice, in another case": (bad(ONE + ONE.replace("name: a", "name: A")), "given twice"),
    "an unknown upstream": (
        bad(ONE + "  input: [{from: zz, path: /in}]\n"),
        r'yaml:5:11: there is no operator "zz".*There are a',
    ),
    "an unknown output": (
        bad(
            ONE
            + "  output: [{path: /o}]\n- name: b\n  container: {image: i}\n  input: [{from: a, name: x, path: /i}]\n"
        ),
        'a has no output "x".*Its outputs have no names',
    ),
    "no output to read": (
        bad(ONE + "- name: b\n  container: {image: i}\n  input: [{from: a, path: /i}]\n"),
        "a has no output to read",
    ),
    "itself upstream": (bad(ONE + "  output: [{path: /o}]\n  input: [{from: a, path: /i}]\n"), "a waits for itself"),
    "outputs without names": (bad(ONE + "  output: [{path: /o}, {path: /p}]\n"), "yaml:5:12: a has several outputs"),
    "a place twice": (
        bad(ONE + "  input: [{path: /o}]\n  output: [{path: /o}]\n"),
        "yaml:6:12: a has two mounts at /o",
    ),
    "a relative place": (bad(ONE + "  input: [{path: in}]\n"), 'yaml:5:12: the path "in" cannot be mounted'),
    "the root as a place": (bad(ONE + "  input: [{path: /}]\n"), "cannot be mounted"),
    "a name that leads away": (bad("- name: ../a\n  container: {image: i}\n"), "A name has letters"),
    "an output chosen of the input folder": (bad(ONE + "  input: [{path: /i, name: x}]\n"), "of use without from"),
    "a placeholder that nobody declared": (bad(ONE + "  variables: {A: '${{ X }}'}\n"), 'yaml:5:15: .* parameter "X"'),
    "shared memory": (bad(ONE + "  input: [{path: /i, type: array}]\n"), '"type" is not supported.*Shared memory'),
    "a port that is none": (
        bad(ONE + "  services: [{name: s, container: {image: t}, connections: {http: [{name: U, port: 80}]}}]\n"),
        "port is 80, not a whole number from 1024",
    ),
    "an import that is not there": (bad("- import: {path: no.yaml}\n"), "yaml:3:12: .*no.yaml: there is no such file"),
    "an import with an unknown argument": (
        bad("- import: {path: op.yaml, args: {X: 1}}\n"),
        'yaml:3:27: .*op.yaml: .*no parameter "X"',
    ),
    "an import of itself": (bad("- import: {path: loop.yaml}\n"), "leads back to itself"),
    "an absolute import": (bad("- import: {path: /op.yaml}\n"), "is absolute"),
    "broken YAML": ("name: p\noperators: [\n", "broken YAML"),
    "something else": ("hello: 1\n", "neither operators nor services"),
    "YAML that is not a table": ("- a\n", "not a table of options"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_its_line(write: Callable[..., Path], case: str) -> None:
    write("name: op\ncontainer: {image: i}\n", "op.yaml")
    write("import: {path: loop.yaml}\n", "loop.yaml")
    text, expected = REFUSED[case]
    with pytest.raises(ConfigError, match=expected) as caught:
        read_pipeline(write(text))
    assert caught.value.exit_code == 2


def test_a_circle_is_named_operator_by_operator(write: Write) -> None:
    def operator(name: str, *upstream: str) -> str:
        inputs = ", ".join(f"{{from: {each}, path: /{each}}}" for each in upstream)
        return f"- name: {name}\n  container: {{image: i}}\n  output: [{{path: /out}}]\n  input: [{inputs}]\n"

    text = operator("z", "c") + operator("a", "c") + operator("b", "a") + operator("c", "b") + operator("d")
    with pytest.raises(ConfigError, match="wait for each other") as caught:
        read_pipeline(write(bad(text)))
    names = caught.value.what.partition(": ")[2].split(" -> ")
    assert names[0] == names[-1]
    flow = "".join(names[:-1])
    assert flow in {"abc", "bca", "cab"}
