"""Compose files and the short form, and the order in which operators run."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusize.base.errors import ConfigError
from gpusize.containers.pipeline import Bind, Input, Operator, Output, Pipeline, Requests, in_order, read_pipeline
from gpusize.containers.pipeline.fields import as_bytes

COMPOSE = """\
name: nightly
x-common: &common
  environment:
    LEVEL: 2
services:
  load:
    <<: *common
    image: ${REGISTRY:-local}/load:1
    command: load --from "/in dir"
    volumes:
      - input:/in dir:ro
      - work:/work
      - ./cfg:/cfg:ro
      - {type: bind, source: /srv/ref, target: /ref, read_only: true}
  train:
    image: train@sha256:00
    entrypoint: [python, -u]
    command: [train.py, "$$HOME"]
    user: "1000:1000"
    working_dir: /work
    shm_size: 2gb
    network_mode: none
    init: true
    tmpfs: /scratch
    environment: [A=1, B=x=y, PASSED]
    volumes: [work:/work]
    depends_on:
      load: {condition: service_completed_successfully}
    deploy:
      resources:
        limits: {cpus: "1.5", memory: 512M}
        reservations:
          cpus: 0.5
          memory: 1g
          devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]
  report:
    image: report
    depends_on: [train, load]
volumes:
  work:
"""

OWN = """\
pipeline: own
operators:
  reader:
    image: local/reader
    command: read /in
    input: /in
    output: /out
  both:
    image: local/both
    input: {reader: /a, input: /b, split/left: /c}
    output: {x: /x, y: /y}
    env: {K: "${KEY}", N: 1.50}
    after: reader
    models: [m]
    gpus: device=0,2
    shm_size: 64m
    network: host
    cpus: 0.5
    memory: 64m
  split:
    image: s
    output: {left: /l}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "pipeline.yaml"
    file.write_text(text, "utf-8")
    return file


def test_a_compose_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSED", "on")
    monkeypatch.delenv("REGISTRY", raising=False)
    pipeline = read_pipeline(written(tmp_path, COMPOSE))
    assert (pipeline.name, pipeline.form, pipeline.reads_input) == ("nightly", "compose", True)
    load, train, report = pipeline.operators
    assert load.image == "local/load:1"
    assert load.command == ("load", "--from", "/in dir")
    assert load.variables == {"LEVEL": "2"}
    assert [(bind.source, bind.path, bind.read_only, bind.volume) for bind in load.binds] == [
        ("input", "/in dir", True, True),
        ("work", "/work", False, True),
        (str(tmp_path / "cfg"), "/cfg", True, False),
        ("/srv/ref", "/ref", True, False),
    ]
    assert (train.entrypoint, train.command) == (("python", "-u"), ("train.py", "$HOME"))
    assert (train.user, train.workdir, train.network, train.init) == ("1000:1000", "/work", "none", True)
    assert (train.shm_bytes, train.tmpfs, train.gpus) == (2 << 30, ("/scratch",), "2")
    assert train.variables == {"A": "1", "B": "x=y", "PASSED": "on"}
    assert train.limits == Requests(1.5, 512 << 20)
    assert train.requests == Requests(0.5, 1 << 30)
    assert report.upstream == ("train", "load")


def test_variables_of_the_command_line_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY", "mine")
    file = written(tmp_path, COMPOSE)
    assert read_pipeline(file).operators[0].image == "mine/load:1"
    assert read_pipeline(file, {"REGISTRY": "other"}).operators[0].image == "other/load:1"


def service(*lines: str, top: str = "") -> str:
    return top + "services:\n  a:\n    image: i\n" + "".join(f"    {line}\n" for line in lines)


REFUSED = {
    "build": (service("build: ."), 'yaml:4:5: "build" is not supported.*Build the image first'),
    "a typing error": (service("comand: x"), 'yaml:4:5: .*Did you mean "command"'),
    "networks": (service(top="networks: {}\n"), 'yaml:1:1: "networks" is not supported'),
    "an undeclared volume": (service("volumes: [data:/d]"), 'yaml:4:15: there is no volume "data"'),
    "a volume with options": (service(top="volumes: {w: {external: true}}\n"), 'yaml:1:11: the volume "w" has options'),
    "an odd volume": (service("volumes: [/d]"), "is not understood"),
    "a volume inside that is relative": (service("volumes: ['./a:b']"), "cannot be mounted"),
    "a server to wait for": (
        service("depends_on: {b: {condition: service_healthy}}"),
        "yaml:4:22: the condition service_healthy is not supported",
    ),
    "an unknown upstream": (service("depends_on: [b]"), 'there is no operator "b"'),
    "a placeholder in a default": (service("command: ${A:-${B}}"), "yaml:4:5: this placeholder is not supported"),
    "another form of placeholder": (service("command: '${A:+b}'"), "yaml:4:5: this placeholder is not supported"),
    "a variable that is not set": (service("command: $NOT_SET_ANYWHERE"), 'yaml:4:5: the variable "NOT_SET_ANYWHERE"'),
    "a variable with a message": (service("command: '${NOT_SET_ANYWHERE:?say which}'"), "Say which"),
    "a volume that leads away": (service(top="volumes: {../w: }\n"), 'yaml:1:11: "../w" is not a valid volume name'),
    "a service that leads away": ("services: {../a: {image: i}}\n", "is not a valid service name"),
    "replicas": (service("deploy: {replicas: 2}"), '"replicas" is not supported'),
    "another container's network": (service("network_mode: service:b"), "network"),
    "a device that is no GPU": (
        service("deploy: {resources: {reservations: {devices: [{capabilities: [tpu]}]}}}"),
        "is not a GPU",
    ),
    "a size that is none": (service("shm_size: big"), "shm_size is big, not a size"),
    "no words": (service("command: 'a \"b'"), "cannot be split"),
    "own: an unknown key": ("pipeline: p\noperators: {a: {image: i, inputs: /x}}\n", 'yaml:2:27: "inputs"'),
    "own: the name of the input folder": ("pipeline: p\noperators: {input: {image: i}}\n", "input is taken"),
    "own: a name that leads away": ("pipeline: p\noperators: {../a: {image: i}}\n", "is not a valid operator name"),
    "own: GPUs that are none": ("pipeline: p\noperators: {a: {image: i, gpus: some}}\n", "gpus is some, not all"),
    "own: no name": ("operators: {a: {image: i}}\n", "has no pipeline"),
    "own: an output of the input folder": (
        "pipeline: p\noperators: {a: {image: i, input: {input/x: /i}}}\n",
        "no outputs to choose from",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_its_line(tmp_path: Path, case: str) -> None:
    text, expected = REFUSED[case]
    with pytest.raises(ConfigError, match=expected):
        read_pipeline(written(tmp_path, text))


def test_the_short_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "k")
    file = written(tmp_path, OWN)
    pipeline = read_pipeline(file)
    reader, both, _ = pipeline.operators
    assert reader.inputs == (Input("/in", where=f"{file}:6:5"),)
    assert reader.outputs == (Output("/out", where=f"{file}:7:5"),)
    assert [(each.upstream, each.name, each.path) for each in both.inputs] == [
        ("reader", None, "/a"),
        (None, None, "/b"),
        ("split", "left", "/c"),
    ]
    assert both.variables == {"K": "k", "N": "1.50"}
    assert (both.gpus, both.shm_bytes, both.network, both.models) == ("device=0,2", 64 << 20, "host", ("m",))
    assert both.limits == Requests(0.5, 64 << 20)
    assert [each.name for each in in_order(pipeline)] == ["reader", "split", "both"]


def pipeline_of(edges: dict[str, tuple[str, ...]]) -> Pipeline:
    operators = tuple(Operator(name, "i", after=after) for name, after in edges.items())
    return Pipeline("p", operators, "own")


def test_operators_without_edges_run_too() -> None:
    ordered = in_order(pipeline_of({"late": ("early",), "lone": (), "early": ()}))
    assert [each.name for each in ordered] == ["lone", "early", "late"]


def test_the_order_of_the_file_is_kept_where_it_can_be() -> None:
    ordered = in_order(pipeline_of({"d": ("b", "c"), "b": ("a",), "c": ("a",), "a": ()}))
    assert [each.name for each in ordered] == ["a", "b", "c", "d"]


def test_a_volume_that_is_the_input_folder_is_read_only(tmp_path: Path) -> None:
    text = service("volumes: [input:/in]")
    [operator] = read_pipeline(written(tmp_path, text)).operators
    assert operator.reads_input
    assert operator.binds == (Bind("input", "/in", read_only=True, volume=True, where=operator.binds[0].where),)


@pytest.mark.parametrize(
    "text, size",
    [
        ("64m", 64 << 20),
        ("1.5G", 3 << 29),
        ("512MiB", 512 << 20),
        ("10", 10),
        ("2 kb", 2048),
        ("x", None),
        ("1p", None),
    ],
)
def test_sizes(text: str, size: int | None) -> None:
    assert as_bytes(text) == size
