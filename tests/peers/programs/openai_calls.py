"""Calls through the ``openai`` package, exactly as a user writes them. A line of JSON in, one out.

In: ``{"base_url", "calls": [{"kind": "chat" | "completions" | "embeddings" | "responses", "body": {...}}]}``.
Out: per call the texts of all content events (one, when it does not stream), usage, finish reason, or the error.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import httpx
from openai import APIConnectionError, APIStatusError, OpenAI


def chat(client: OpenAI, body: dict[str, Any]) -> dict[str, Any]:
    if not body.get("stream"):
        answer = client.chat.completions.create(**body)
        choice = answer.choices[0]
        return _told([choice.message.content], answer.usage, choice.finish_reason)
    with client.chat.completions.create(**body) as stream:
        return _gathered((chunk, chunk.choices[0].delta.content if chunk.choices else None) for chunk in stream)


def completions(client: OpenAI, body: dict[str, Any]) -> dict[str, Any]:
    if not body.get("stream"):
        answer = client.completions.create(**body)
        return _told([answer.choices[0].text], answer.usage, answer.choices[0].finish_reason)
    with client.completions.create(**body) as stream:
        return _gathered((chunk, chunk.choices[0].text if chunk.choices else None) for chunk in stream)


def embeddings(client: OpenAI, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.embeddings.create(**body)
    return {"vectors": [each.embedding for each in answer.data], "usage": answer.usage.model_dump()}


def responses(client: OpenAI, body: dict[str, Any]) -> dict[str, Any]:
    if not body.get("stream"):
        answer = client.responses.create(**body)
        return _told([answer.output_text], answer.usage, answer.status)
    texts, last = [], None
    with client.responses.create(**body) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                texts.append(event.delta)
            if event.type in {"response.completed", "response.incomplete"}:
                last = event.response
    return _told(texts, last.usage if last else None, last.status if last else None)


def _gathered(chunks: Any) -> dict[str, Any]:
    texts, usage, finish = [], None, None
    for chunk, text in chunks:
        if text:
            texts.append(text)
        if chunk.choices and chunk.choices[0].finish_reason:
            finish = chunk.choices[0].finish_reason
        usage = getattr(chunk, "usage", None) or usage
    return _told(texts, usage, finish)


def _told(texts: list[Any], usage: Any, finish: Any) -> dict[str, Any]:
    return {"texts": texts, "usage": usage.model_dump() if usage else None, "finish": finish}


KINDS = {"chat": chat, "completions": completions, "embeddings": embeddings, "responses": responses}


def answered(wanted: dict[str, Any]) -> list[dict[str, Any]]:
    client = OpenAI(base_url=wanted["base_url"], api_key="none", max_retries=0)
    answers = []
    for call in wanted["calls"]:
        try:
            answers.append(KINDS[call["kind"]](client, call["body"]))
        except APIStatusError as error:
            answers.append({"error": type(error).__name__, "status": error.status_code, "message": str(error)})
        except (APIConnectionError, httpx.HTTPError) as error:  # the latter where a stream breaks
            answers.append({"error": type(error).__name__, "status": None, "message": str(error)})
    return answers


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answered(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
