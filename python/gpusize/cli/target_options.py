"""Options of the target and of what is sent to it."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "ApiKeyEnv",
    "ApiName",
    "Balance",
    "BodyTemplate",
    "Cacert",
    "CommandLine",
    "ConnectTimeout",
    "ContentType",
    "ExtraBody",
    "Gpus",
    "Headers",
    "History",
    "Http2",
    "HttpMethod",
    "HttpStreams",
    "Insecure",
    "LlmProxyOf",
    "MaxTokens",
    "Model",
    "OutputLength",
    "Replicas",
    "ResolveEvery",
    "Responses",
    "StartDelay",
    "Streamed",
    "Success",
    "Temperature",
    "Timeout",
    "Urls",
    "WorkflowName",
]

TARGET = "Target"
REQUEST = "Requests"

Urls = Annotated[
    list[str] | None,
    typer.Option(
        help="Address of the target, one per replica, or @FILE; without it a simulated cluster is started.",
        rich_help_panel=TARGET,
    ),
]
ApiName = Annotated[
    str | None,
    typer.Option(
        help="openai-chat, -completions, -embeddings, -responses; kserve, kserve-json, kserve-grpc, "
        "kserve-grpc-stream; generic; nat, nat-chat; else guessed.",
        rich_help_panel=TARGET,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(help="Name of the model to ask for; of several, a mix as a=3,b=1.", rich_help_panel=TARGET),
]
WorkflowName = Annotated[
    str | None,
    typer.Option(help="A Python function as target: package.module:function.", rich_help_panel=TARGET),
]
CommandLine = Annotated[
    str | None,
    typer.Option("--command", help="A program as target: 'prog {question}'.", rich_help_panel=TARGET),
]
LlmProxyOf = Annotated[
    str | None,
    typer.Option(help="Server whose LLM calls are timed on their way through.", rich_help_panel=TARGET),
]
Gpus = Annotated[int | None, typer.Option(help="GPUs that stand behind the target.", rich_help_panel=TARGET)]
Headers = Annotated[
    list[str] | None,
    typer.Option(help="'Name: value'; secrets as env:VARIABLE or file:PATH; repeatable.", rich_help_panel=TARGET),
]
ApiKeyEnv = Annotated[str | None, typer.Option(help="Variable that holds the API key.", rich_help_panel=TARGET)]
Cacert = Annotated[str | None, typer.Option(help="PEM file of authorities to trust.", rich_help_panel=TARGET)]
Insecure = Annotated[
    bool | None,
    typer.Option("--insecure", help="Accept any certificate; the report says so.", rich_help_panel=TARGET),
]
Balance = Annotated[
    str | None,
    typer.Option(help="Over several addresses: round_robin or least_outstanding.", rich_help_panel=TARGET),
]
Http2 = Annotated[bool | None, typer.Option("--http2", help="Speak HTTP/2.", rich_help_panel=TARGET)]
HttpStreams = Annotated[
    int | None, typer.Option(help="Requests that share an HTTP/2 connection; 1.", rich_help_panel=TARGET)
]
Replicas = Annotated[
    str | None,
    typer.Option(help="Of the simulated cluster, over time: '1@0s,2@30s'.", rich_help_panel=TARGET),
]
StartDelay = Annotated[str | None, typer.Option(help="Until a new one of them serves; 0s.", rich_help_panel=TARGET)]
Timeout = Annotated[str | None, typer.Option(help="Bound on one request; 5m.", rich_help_panel=TARGET)]
ConnectTimeout = Annotated[str | None, typer.Option(help="Bound on connecting; 5s.", rich_help_panel=TARGET)]
ResolveEvery = Annotated[
    str | None, typer.Option(help="Look host names up again, for new connections; 30s.", rich_help_panel=TARGET)
]

HttpMethod = Annotated[str | None, typer.Option(help="HTTP method; POST.", rich_help_panel=REQUEST)]
Streamed = Annotated[
    bool | None, typer.Option("--stream/--no-stream", help="Ask for a stream of events.", rich_help_panel=REQUEST)
]
MaxTokens = Annotated[int | None, typer.Option(help="Bound on generated tokens.", rich_help_panel=REQUEST)]
OutputLength = Annotated[
    str | None,
    typer.Option(help="A row's output_tokens are at most (max) or just (exact) so many.", rich_help_panel=REQUEST),
]
History = Annotated[
    str | None,
    typer.Option(help="What later turns repeat: recorded, or the server's own answers.", rich_help_panel=REQUEST),
]
Temperature = Annotated[float | None, typer.Option(help="Sampling temperature.", rich_help_panel=REQUEST)]
ExtraBody = Annotated[str | None, typer.Option(help="More members of the body, as JSON.", rich_help_panel=REQUEST)]
BodyTemplate = Annotated[
    str | None, typer.Option(help="Body with placeholders, as text or a file.", rich_help_panel=REQUEST)
]
ContentType = Annotated[str | None, typer.Option(help="Of the body; application/json.", rich_help_panel=REQUEST)]
Responses = Annotated[
    list[str] | None,
    typer.Option(help="How to read answers, as content=/text; repeatable.", rich_help_panel=REQUEST),
]
Success = Annotated[
    str | None,
    typer.Option(help="any: an answer need not hold what its API always has.", rich_help_panel=REQUEST),
]
