"""``python -m gpusize.targets.triton``: for the setup and teardown of a study."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gpusize.base.errors import GpusizeError, UsageError
from gpusize.base.units import parse_duration_s
from gpusize.targets.triton.repository import copy_repository
from gpusize.targets.triton.server import Ports, serve, stop

__all__ = ["main"]

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code is 0, or that of the error it prints."""
    words = list(sys.argv[1:] if argv is None else argv)
    extra: list[str] = []
    if "--" in words:
        extra = words[words.index("--") + 1 :]
        words = words[: words.index("--")]
    given = _parser().parse_args(words)
    try:
        if given.command == "stop":
            ended = stop(given.work, grace_s=parse_duration_s(given.grace))
            sys.stdout.write("stopped\n" if ended else "nothing was running\n")
            return 0
        url = _serve(given, extra)
        sys.stdout.write(f"{url} is ready\n")
    except GpusizeError as problem:
        sys.stderr.write(f"gpusize.targets.triton: {problem}\n")
        return problem.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _serve(given: argparse.Namespace, extra: Sequence[str]) -> str:
    gpus = _gpus(given.gpus, given.gpu_ids)
    if given.instances is None and (gpus is not None or given.kind is not None):
        raise UsageError("GPUs are named without a number of instances", "--instances", "give --instances too")
    given.work.mkdir(parents=True, exist_ok=True)
    repository = given.work / "models"
    changed = copy_repository(
        given.models, repository, count=given.instances, gpus=gpus, kind=given.kind, names=given.model or ()
    )
    for name in changed:
        sys.stdout.write(f"{name}: {given.instances} instances\n")
    ports = Ports(given.http_port, given.grpc_port, given.metrics_port, given.host)
    timeout_s = parse_duration_s(given.timeout)
    return serve(repository, given.work, program=given.tritonserver, ports=ports, timeout_s=timeout_s, extra=extra)


def _gpus(count: int | None, ids: str | None) -> list[int] | None:
    if count is not None and ids is not None:
        raise UsageError("GPUs are given by number and by name", "--gpu-ids", "give one of them")
    if ids is not None:
        try:
            return [int(each) for each in ids.split(",")]
        except ValueError:
            raise UsageError(f'"{ids}" is not a list of GPUs', "--gpu-ids", "write it as 0,2,3") from None
    if count is None:
        return None
    if count < 0:
        raise UsageError(f"GPUs must be 0 or more, not {count}", "--gpus", "0 is the CPU")
    return list(range(count))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gpusize.targets.triton", description="Start and stop a Triton server for a measurement."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("serve", help="copy a model repository, rewrite its instance groups, start a server")
    start.add_argument("--models", type=Path, required=True, help="the model repository; it is not changed")
    start.add_argument("--work", type=Path, required=True, help="folder for the copy, the log and server.json")
    start.add_argument("--instances", type=int, help="instances, on each GPU where GPUs are given")
    start.add_argument("--gpus", type=int, help="use the first so many GPUs; 0 for the CPU")
    start.add_argument("--gpu-ids", help="use these GPUs: 0,2,3")
    start.add_argument("--kind", help="KIND_GPU, KIND_CPU, …; follows from the GPUs otherwise")
    start.add_argument("--model", action="append", help="model to rewrite; all by default; repeatable")
    start.add_argument("--tritonserver", default="tritonserver", help="the server's path")
    start.add_argument("--host", default="127.0.0.1", help="address to listen on")
    start.add_argument("--http-port", type=int, default=8000)
    start.add_argument("--grpc-port", type=int, default=8001)
    start.add_argument("--metrics-port", type=int, default=8002)
    start.add_argument("--timeout", default="10m", help="longest time until it is ready")
    end = commands.add_parser("stop", help="end the server of a folder")
    end.add_argument("--work", type=Path, required=True, help="the folder that was given to serve")
    end.add_argument("--grace", default="30s", help="time between SIGTERM and SIGKILL")
    return parser


if __name__ == "__main__":
    sys.exit(main())
