"""What passes through is looked at: which model answered, when content began, how many tokens the server counted."""

from __future__ import annotations

import json
from typing import Any, Final

__all__ = ["ResponseReader"]

MAX_BYTES: Final = 8 << 20
"""A whole answer, or a line of a stream, beyond this is passed on and not looked at."""
NAME_CHARS: Final = 200


class ResponseReader:
    """Reads along an answer of an OpenAI-like API; what it cannot read it leaves unknown.

    Args:
        content_type: of the answer.

    Attributes:
        model: as the server names it, or None.
        first_token_ns: when the first piece of content came, of a stream.
        tokens_in: as the server counted, or None.
        tokens_out: likewise.
        failed: whether the answer carries an error.
    """

    def __init__(self, content_type: str) -> None:
        self.model: str | None = None
        self.first_token_ns: int | None = None
        self.tokens_in: int | None = None
        self.tokens_out: int | None = None
        self.failed = False
        self._stream = content_type.lower().startswith("text/event-stream")
        self._json = "json" in content_type.lower()
        self._kept = b""
        self._lost = False

    def feed(self, piece: bytes, now_ns: int) -> None:
        """The next piece, and when it came."""
        if not (self._stream or self._json) or self._lost:
            return
        self._kept += piece
        if self._stream:
            *lines, self._kept = self._kept.split(b"\n")
            for line in lines:
                self._line(line, now_ns)
        if len(self._kept) > MAX_BYTES:
            self._kept, self._lost = b"", True

    def end(self) -> None:
        """That was all."""
        if self._json and not self._stream and self._kept:
            self._facts(_object(self._kept))

    def _line(self, line: bytes, now_ns: int) -> None:
        if not line.startswith(b"data:"):
            return
        # Once content has begun only a count of tokens or an error is worth the parsing.
        wanted = self.first_token_ns is None or b'"usage":{' in line or b'"usage": {' in line or b'"error"' in line
        if not wanted:
            return
        event = _object(line[5:])
        self._facts(event)
        if self.first_token_ns is None and _has_content(event):
            self.first_token_ns = now_ns

    def _facts(self, event: dict[str, Any]) -> None:
        inner = event.get("response")
        for each in (event, inner if isinstance(inner, dict) else {}):
            model, usage = each.get("model"), each.get("usage")
            if isinstance(model, str) and self.model is None:
                self.model = model[:NAME_CHARS]
            if isinstance(usage, dict):
                self.tokens_in = _count(usage, "prompt_tokens", "input_tokens") or self.tokens_in
                self.tokens_out = _count(usage, "completion_tokens", "output_tokens") or self.tokens_out
            self.failed = self.failed or each.get("error") not in (None, False)


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _count(usage: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value = usage.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32:
            return value
    return None


def _has_content(event: dict[str, Any]) -> bool:
    """Whether an event of chat, completions, responses or messages brings something of the answer."""
    choices = event.get("choices")
    for choice in choices if isinstance(choices, list) else []:
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if isinstance(delta, dict) and any(
            delta.get(name) for name in ("content", "reasoning_content", "reasoning", "tool_calls")
        ):
            return True
        if isinstance(choice, dict) and choice.get("text"):
            return True
    kind = event.get("type")
    return isinstance(kind, str) and kind.endswith(("delta", ".delta")) and bool(event.get("delta"))
