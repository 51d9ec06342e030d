"""Chat completions through the ``openai`` package, streamed: ``openai_latency PORT COUNT`` prints seconds as JSON."""

from __future__ import annotations

import json
import sys
import time

from openai import OpenAI


def latency_s(client: OpenAI) -> float:
    """From the call to the end of its stream."""
    start_s = time.perf_counter()
    messages = [{"role": "user", "content": "How many GPUs does it take?"}]
    with client.chat.completions.create(model="simulated", messages=messages, stream=True) as stream:
        texts = [chunk.choices[0].delta.content for chunk in stream if chunk.choices]
    if not any(texts):
        raise SystemExit("an answer without content")
    return time.perf_counter() - start_s


def main(port: str, count: str) -> None:
    """One call to connect, which does not count, then the others."""
    client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
    latency_s(client)
    print(json.dumps([latency_s(client) for _ in range(int(count))]))


if __name__ == "__main__":
    main(*sys.argv[1:])
