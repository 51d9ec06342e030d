"""Clara's templates and imports: placeholders with defaults, and operators that stand in files of their own.

Source: the Clara Deploy SDK's pipeline definition language, sections Template and Import.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpusize.base.errors import ConfigError, UsageError
from gpusize.base.text import shown
from gpusize.containers.pipeline.fields import Fields, Node, Resolve, read_root
from gpusize.containers.pipeline.model import same_name

__all__ = ["imported", "resolver"]

_PLACEHOLDER: Final = re.compile(r"\$\{\{\s*([A-Za-z0-9_-]+)\s*\}\}")
_DEEPEST: Final = 16
"""Imports inside imports; more are a circle."""


def resolver(parameters: Node | None, arguments: Mapping[str, str], where: str | None) -> Resolve:
    """What fills the placeholders ``${{ name }}`` of a document in.

    Args:
        parameters: the document's ``parameters``: names and their defaults.
        arguments: values in place of the defaults.
        where: where the arguments stand, for errors.

    Raises:
        UsageError: an argument that the document has no parameter for.
    """
    values = {} if parameters is None else {same_name(name): text for name, text in parameters.variables().items()}
    for name, value in arguments.items():
        if same_name(name) not in values:
            known = f"it has {', '.join(sorted(values))}" if values else "it has none"
            raise UsageError(f'the definition has no parameter "{shown(name)}"', where, known)
        values[same_name(name)] = value

    def resolve(text: str, place: str) -> str:
        def value(match: re.Match[str]) -> str:
            found = values.get(same_name(match[1]))
            if found is None:
                raise ConfigError(
                    f'there is no parameter "{match[1]}"', place, f"add it to parameters, with a default: {match[1]}: …"
                )
            return found

        return _PLACEHOLDER.sub(value, text)

    return resolve


def imported(fields: Fields, depth: int = 0, *, template: bool = True) -> Fields:
    """A declaration with what it imports: its own keys replace those of the imported file whole.

    Args:
        fields: an operator or a service.
        depth: imports around this one.
        template: whether what is imported may have parameters: operators do, services do not.

    Raises:
        ConfigError: the file cannot be read, imports itself, or gets arguments that it has no parameters for.
    """
    node = fields.get("import")
    if node is None:
        return fields
    importing = node.fields()
    importing.only({"path", "args"})
    if depth >= _DEEPEST:
        raise ConfigError("this import leads back to itself", node.where, "break the circle")
    path_node = importing.need("path")
    path = path_node.text()
    if Path(path).is_absolute():
        raise ConfigError(f'the path "{shown(path)}" is absolute', path_node.where, "give one from this file's folder")
    file = Path(node.document.source).parent / path
    try:
        root = read_root(file)
    except ConfigError as problem:
        # A file that is not there is the importing file's mistake; a broken one has a place of its own.
        if file.is_file():
            raise
        raise ConfigError(f"{file}: {problem.what}", path_node.where, problem.todo) from None
    args = importing.get("args")
    if args is not None and not template:
        raise ConfigError("a service takes no arguments", args.where, "override its keys beside import")
    parameters = root.fields().get("parameters") if template else None
    given = {} if args is None else args.variables()
    try:
        resolve = resolver(parameters, given, None if args is None else args.where)
    except UsageError as problem:
        raise ConfigError(f"{file}: {problem.what}", problem.where, problem.todo) from None
    inner = root.resolved_by(resolve).fields().without(*(("parameters",) if template else ()))
    return fields.without("import").over(imported(inner, depth + 1, template=template))
