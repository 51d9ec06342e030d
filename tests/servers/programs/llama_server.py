"""llama.cpp's OpenAI server on a free loopback port. Run by the interpreter of the peer ``llama``."""

from __future__ import annotations

import argparse
import json
import os
import socket

import uvicorn  # type: ignore[import-not-found]
from llama_cpp.server.app import create_app
from llama_cpp.server.settings import ModelSettings, ServerSettings

BACKLOG = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--alias", required=True, help="name of the model in the API")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--ready-fd", type=int, required=True)
    options = parser.parse_args()
    model = ModelSettings(
        model=options.model,
        model_alias=options.alias,
        n_ctx=options.context,
        n_threads=options.threads,
        n_threads_batch=options.threads,
        chat_format="chatml",
        verbose=False,
    )
    # By default a new request cuts off the one that is being answered.
    app = create_app(server_settings=ServerSettings(interrupt_requests=False), model_settings=[model])
    listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    with os.fdopen(options.ready_fd, "w") as ready:
        print(json.dumps({"port": listener.getsockname()[1]}), file=ready)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
