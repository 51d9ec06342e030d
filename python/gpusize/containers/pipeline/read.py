"""Reads a pipeline definition, of whatever form, and refuses what cannot run before anything has been started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gpusize.base.errors import ConfigError
from gpusize.base.text import shown
from gpusize.containers.pipeline.fields import read_root
from gpusize.containers.pipeline.format_clara import read_clara
from gpusize.containers.pipeline.format_compose import read_compose
from gpusize.containers.pipeline.format_own import read_own
from gpusize.containers.pipeline.model import Operator, Pipeline, same_name
from gpusize.containers.pipeline.order import in_order

__all__ = ["check", "read_pipeline"]


def read_pipeline(path: str | Path, arguments: Mapping[str, str] | None = None) -> Pipeline:
    """Read a pipeline definition: Clara's, a Compose file, or the short form; which one is told by its keys.

    Args:
        path: the YAML file.
        arguments: values of Clara's ``parameters``, or of variables ``${NAME}`` in the other two forms.

    Raises:
        ConfigError: unreadable, broken, a key or value that is not supported, names that do not fit together, a circle;
            with file, line and column.
        UsageError: an argument that the definition has no parameter for.
    """
    root = read_root(path)
    given = dict(arguments or {})
    if "services" in root.value:
        pipeline = read_compose(root, given)
    elif isinstance(root.value.get("operators"), dict):
        pipeline = read_own(root, given)
    elif "operators" in root.value:
        pipeline = read_clara(root, given)
    else:
        raise ConfigError(
            "this is not a pipeline: it has neither operators nor services",
            root.document.source,
            "give a pipeline of Clara, a Compose file, or the short form",
        )
    check(pipeline)
    return pipeline


def check(pipeline: Pipeline) -> None:
    """Refuse what cannot run.

    Raises:
        ConfigError: no operators, a name twice, an upstream or output that is not there, a place mounted twice, outputs
            that cannot be told apart, a circle.
    """
    if not pipeline.operators:
        raise ConfigError("the pipeline has no operators", pipeline.source, "add one")
    seen: dict[str, Operator] = {}
    for operator in pipeline.operators:
        first = seen.setdefault(same_name(operator.name), operator)
        if first is not operator:
            raise ConfigError(
                f'the name "{operator.name}" is given twice', operator.where, f"the other one is at {first.where}"
            )
    for operator in pipeline.operators:
        _check_image(operator)
        _check_outputs(operator)
        _check_edges(pipeline, operator)
        _check_places(operator)
    in_order(pipeline)


def _check_image(operator: Operator) -> None:
    for what, image, where in (
        ("the operator", operator.image, operator.where),
        *((f"the service {each.name}", each.image, each.where) for each in operator.services),
    ):
        if not image or image.startswith((":", "-")) or any(character.isspace() for character in image):
            raise ConfigError(f'{what} has no image: "{shown(image)}"', where, "name one, such as name:tag")


def _check_outputs(operator: Operator) -> None:
    names: set[str] = set()
    for output in operator.outputs:
        if output.name is None and len(operator.outputs) > 1:
            raise ConfigError(
                f"{operator.name} has several outputs, and this one has no name", output.where, "give each a name"
            )
        if output.name is not None and same_name(output.name) in names:
            raise ConfigError(f'{operator.name} has two outputs "{output.name}"', output.where, "rename one of them")
        names.add(same_name(output.name or ""))


def _check_edges(pipeline: Pipeline, operator: Operator) -> None:
    edges = [(each.upstream, each.name, each.where, True) for each in operator.inputs if each.upstream is not None]
    edges += [(name, None, operator.where, False) for name in operator.after]
    for upstream, output, where, reads in edges:
        try:
            source = pipeline.operator(upstream)
        except KeyError:
            known = ", ".join(each.name for each in pipeline.operators)
            raise ConfigError(f'there is no operator "{upstream}"', where, f"there are {known}") from None
        if source is operator:
            raise ConfigError(f"{operator.name} waits for itself", where, "name another operator")
        known_outputs = [each.name for each in source.outputs if each.name is not None]
        if output is not None and same_name(output) not in map(same_name, known_outputs):
            todo = f"it has {', '.join(known_outputs)}" if known_outputs else "its outputs have no names"
            raise ConfigError(f'{source.name} has no output "{output}"', where, todo)
        if reads and not source.outputs:
            raise ConfigError(f"{source.name} has no output to read", where, f"add one to {source.name}")


def _check_places(operator: Operator) -> None:
    seen: dict[str, str] = {}
    for place, where in operator.mount_points():
        if place in seen:
            raise ConfigError(f"{operator.name} has two mounts at {place}", where, f"the other one is at {seen[place]}")
        seen[place] = where
