"""Options of what watches a run and of what is measured beside its load."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "GpuSample",
    "MetricsAddress",
    "MetricsKeep",
    "MetricsPort",
    "MetricsUrl",
    "Prometheus",
    "PrometheusCacert",
    "PrometheusHeader",
    "PrometheusInsecure",
    "PrometheusMatch",
    "PrometheusTokenEnv",
    "PushEvery",
    "PushGateway",
    "RecordEvents",
    "SampleCgroup",
    "SampleContainer",
    "SampleInterval",
    "SamplePid",
    "StopWhen",
]

END = "Load: its end"
MEASURE = "Measured beside it"
WATCH = "Watching the run"

StopWhen = Annotated[
    list[str] | None,
    typer.Option(help="End the run on 'p99 ttft > 2s for 30s', saturation, ...; repeatable.", rich_help_panel=END),
]
MetricsPort = Annotated[
    int | None, typer.Option(help="Serve the run's own metrics for Prometheus here.", rich_help_panel=WATCH)
]
MetricsAddress = Annotated[
    str | None, typer.Option(help="Address that they are served on; 127.0.0.1.", rich_help_panel=WATCH)
]
PushGateway = Annotated[str | None, typer.Option(help="Pushgateway that they are pushed to.", rich_help_panel=WATCH)]
PushEvery = Annotated[str | None, typer.Option(help="How often; 15s.", rich_help_panel=WATCH)]
MetricsUrl = Annotated[
    list[str] | None,
    typer.Option(help="Prometheus text of the server, read each second; repeatable; none.", rich_help_panel=MEASURE),
]
MetricsKeep = Annotated[
    str | None, typer.Option(help="Regular expression of the series to keep.", rich_help_panel=MEASURE)
]
Prometheus = Annotated[
    str | None, typer.Option(help="Prometheus server to ask for the run's time range.", rich_help_panel=MEASURE)
]
PrometheusMatch = Annotated[
    str | None, typer.Option(help='Label matchers for it, as namespace="llm".', rich_help_panel=MEASURE)
]
PrometheusHeader = Annotated[
    list[str] | None, typer.Option(help="'Name: value' for it; repeatable.", rich_help_panel=MEASURE)
]
PrometheusTokenEnv = Annotated[
    str | None, typer.Option(help="Variable that holds the token for it.", rich_help_panel=MEASURE)
]
PrometheusCacert = Annotated[
    str | None, typer.Option(help="PEM file of authorities to trust for it.", rich_help_panel=MEASURE)
]
PrometheusInsecure = Annotated[
    bool | None,
    typer.Option("--prometheus-insecure", help="Accept any certificate of it.", rich_help_panel=MEASURE),
]
GpuSample = Annotated[
    bool | None,
    typer.Option("--gpu-sample/--no-gpu-sample", help="Sample this machine's GPUs.", rich_help_panel=MEASURE),
]
SampleContainer = Annotated[
    list[str] | None,
    typer.Option(help="Container to sample CPU and memory of; repeatable.", rich_help_panel=MEASURE),
]
SamplePid = Annotated[
    list[str] | None,
    typer.Option(help="Process, with its descendants, to sample; repeatable.", rich_help_panel=MEASURE),
]
SampleCgroup = Annotated[list[str] | None, typer.Option(help="Cgroup to sample; repeatable.", rich_help_panel=MEASURE)]
SampleInterval = Annotated[
    str | None, typer.Option(help="Time between readings of these; 20ms.", rich_help_panel=MEASURE)
]
RecordEvents = Annotated[
    bool | None,
    typer.Option("--record-events", help="Keep the time of every event of a stream.", rich_help_panel=MEASURE),
]
