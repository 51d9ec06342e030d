"""Any HTTP service: a body from the row or from a template; the answer is read by its content type."""

from __future__ import annotations

from typing import Any, Final

from gpusize.base.errors import UsageError
from gpusize.targets.apis.base import ApiOptions, ResponseSpec, Segment, encode_json, row_error
from gpusize.targets.apis.message_forms import BOUNDARY, FORM, MULTIPART, encode_form, encode_multipart
from gpusize.targets.apis.template import BodyTemplate, Quoting
from gpusize.workload.dataset import Row

__all__ = ["BODILESS", "Generic"]

_RESPONSE: Final = ResponseSpec(content=("/text", "/response", "/output", "/generated_text", "/value"), json="by_type")
BODILESS: Final = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})
"""Methods that send no body unless a template gives one."""


class Generic:
    """Plain HTTP.

    Without a template the body is the row's value when that is an object, else ``{"<key>": value}``; the options that
    are set (model, max_tokens, temperature, extra body) are members beside it. It is written as JSON, or as a form
    where the content type says so (`targets.apis.message_forms`). GET, HEAD, DELETE and OPTIONS have no body unless a
    template gives one.
    """

    name = "generic"
    default_path = "/"
    member: str | None = None
    """Name under which a row's value is sent; None: the dataset's key."""
    spec = _RESPONSE

    def __init__(self, options: ApiOptions) -> None:
        self._options = options
        self._response = self.spec.changed(options.response).to_dict()
        self._kind = options.content_type.split(";", 1)[0].strip().lower()
        template = options.body_template
        self._template = BodyTemplate.read(template, quoting=_quoting(self._kind)) if template else None
        self._has_body = template is not None or options.method not in BODILESS
        if self._kind == MULTIPART and template is not None:
            raise UsageError(
                f"a body of type {MULTIPART} is made from the row's fields", "body template", "leave the template out"
            )
        if self._has_body and self._template is None and not _is_known(self._kind):
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
            DatasetError: the row's value cannot be written in the content type, or the template does not fit.
        """
        if self._template:
            return self._template.fields(row)
        if not self._has_body:
            return []
        value = row.value
        body = value if isinstance(value, dict) else {self.member or row.key: value}
        if self._options.row_models:
            body = {**body, "model": row.fields["model"]}
        encode = {FORM: encode_form, MULTIPART: encode_multipart}.get(self._kind, encode_json)
        try:
            return [encode({**body, **self._options.members()})]
        except UsageError as problem:
            raise row_error(row, f"cannot be sent: {problem.what}: {problem.where}", problem.todo or "") from None
        except (TypeError, ValueError) as problem:
            what = "is not JSON" if encode is encode_json else "is not a form"
            raise row_error(row, f"{what}: {problem}", "use texts, numbers, lists and objects") from None

    def response(self) -> dict[str, Any]:
        """How to read an answer."""
        return self._response

    def headers(self) -> list[tuple[str, str]]:
        """What is accepted, and the content type of a body."""
        accept = ("Accept", "*/*")
        kind = f"{MULTIPART}; boundary={BOUNDARY}" if self._kind == MULTIPART else self._options.content_type
        return [("Content-Type", kind), accept] if self._has_body else [accept]


def _is_known(kind: str) -> bool:
    return kind in {FORM, MULTIPART} or "json" in kind


def _quoting(kind: str) -> Quoting:
    return "json" if "json" in kind else "form" if kind == FORM else "plain"
