"""Any HTTP service: a body from the row or from a template; the answer is read by its content type."""

from __future__ import annotations

from typing import Any, Final

from gpusize.apis.base import ApiOptions, ResponseSpec, Segment, encode_json, row_error
from gpusize.apis.template import BodyTemplate
from gpusize.dataset import Row
from gpusize.errors import UsageError

__all__ = ["BODILESS", "Generic", "NatGenerate"]

_RESPONSE: Final = ResponseSpec(content=("/text", "/response", "/output", "/generated_text", "/value"), json="by_type")
BODILESS: Final = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})
"""Methods that send no body unless a template gives one."""


class Generic:
    """Plain HTTP.

    Without a template the body is the row's value when that is an object, else ``{"<key>": value}``; the options that
    are set (model, max_tokens, temperature, extra body) are members beside it. GET, HEAD, DELETE and OPTIONS have no
    body unless a template gives one.
    """

    name = "generic"
    default_path = "/"
    member: str | None = None
    """Name under which a row's value is sent; None: the dataset's key."""
    spec = _RESPONSE

    def __init__(self, options: ApiOptions) -> None:
        self._options = options
        self._response = self.spec.changed(options.response).to_dict()
        self._is_json = "json" in options.content_type.lower()
        template = options.body_template
        self._template = BodyTemplate.read(template, is_json=self._is_json) if template else None
        self._has_body = template is not None or options.method not in BODILESS
        if self._has_body and not self._is_json and self._template is None:
            raise UsageError(
                f"a body of type {options.content_type} needs a template",
                "content type",
                "give one with --body-template FILE",
            )

    def segments(self) -> list[Segment]:
        """The pieces of every body; none for a method without a body."""
        if self._template:
            return self._template.segments()
        return [{"field": 0}] if self._has_body else []

    def fields(self, row: Row) -> list[bytes]:
        """The row's body, or its bytes for each placeholder of the template.

        Raises:
            DatasetError: the row's value is not JSON, or the template does not fit.
        """
        if self._template:
            return self._template.fields(row)
        if not self._has_body:
            return []
        value = row.value
        body = value if isinstance(value, dict) else {self.member or row.key: value}
        try:
            return [encode_json({**body, **self._options.members()})]
        except (TypeError, ValueError) as problem:
            raise row_error(row, f"is not JSON: {problem}", "use texts, numbers, lists and objects") from None

    def response(self) -> dict[str, Any]:
        """How to read an answer."""
        return self._response

    def headers(self) -> list[tuple[str, str]]:
        """What is accepted, and the content type of a body."""
        accept = ("Accept", "*/*")
        return [("Content-Type", self._options.content_type), accept] if self._has_body else [accept]


class NatGenerate(Generic):
    """A workflow behind the NeMo Agent Toolkit: ``/generate/full`` with ``input_message``, answered as a stream."""

    name = "nat"
    default_path = "/generate/full"
    member = "input_message"
    spec = ResponseSpec(content=("/value",))
