"""Which servers a pipeline needs, and what is wrong with that, before any of them is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpusize.base.errors import ConfigError, UsageError
from gpusize.base.text import read_text, shown
from gpusize.base.urls import Address, parse_url
from gpusize.containers.pipeline.container import Container, Mount
from gpusize.containers.pipeline.container_spec import RunOptions
from gpusize.containers.pipeline.model import Operator, Pipeline, Service
from gpusize.targets.triton.config_text import top_level_text

__all__ = ["TRITON_IMAGE", "TRITON_PORTS", "ServerOptions", "models_of", "triton_addresses", "triton_container"]

TRITON_IMAGE: Final = "nvcr.io/nvidia/tritonserver:24.12-py3"

TRITON_PORTS: Final = (8000, 8001, 8002)
"""HTTP, gRPC and metrics inside the container."""

MODELS: Final = "/models"
"""Where the model repository is inside."""

_CONFIG: Final = "config.pbtxt"


def models_of(pipeline: Pipeline) -> list[str]:
    """Models that some operator needs, each once."""
    return list(dict.fromkeys(model for operator in pipeline.operators for model in operator.models))


def triton_addresses(http: str, grpc: str) -> dict[str, str]:
    """The variables by which operators find Triton, as the Clara sizing tool names them; values are ``host:port``."""
    names = ("NVIDIA_TRITON_HTTPURI", "CLARA_TRITON_URI", "NVIDIA_CLARA_TRTISURI")
    return {**dict.fromkeys(names, http), "NVIDIA_TRITON_GRPCURI": grpc}


@dataclass(frozen=True)
class ServerOptions:
    """Where models are served.

    Args:
        models_dir: the model repository; ``/models`` inside.
        image: of Triton.
        gpus: of Triton: a number, ``all``, ids, or ``none``; None for one where the daemon knows of any.
        url: a Triton that runs already, in place of ours.
        grpc: its gRPC address as ``host:port``; port 8001 of the same host by default.
        timeout_s: longest time until a server is ready.
    """

    models_dir: Path | None = None
    image: str = TRITON_IMAGE
    gpus: str | None = None
    url: str | None = None
    grpc: str | None = None
    timeout_s: float = 600.0

    @property
    def address(self) -> Address | None:
        """Where the running Triton is.

        Raises:
            UsageError: the URL is none.
        """
        if self.url is None:
            return None
        return parse_url(self.url if "://" in self.url else f"http://{self.url}")

    @property
    def grpc_address(self) -> str:
        """The running Triton's gRPC address."""
        found = self.address
        return self.grpc or (f"{found.host}:{TRITON_PORTS[1]}" if found else "")

    def starts_triton(self, pipeline: Pipeline) -> bool:
        """Whether a run has to start Triton."""
        return self.url is None and bool(models_of(pipeline))

    def images(self, pipeline: Pipeline) -> list[tuple[str, str]]:
        """Images of the servers that a run starts, each with who needs it."""
        found = [(self.image, "triton")] if self.starts_triton(pipeline) else []
        return found + [(each.image, each.name) for operator in pipeline.operators for each in operator.services]

    def check(self, pipeline: Pipeline, options: RunOptions) -> None:
        """Refuse what cannot work.

        Raises:
            UsageError: models are needed and there is neither a repository nor a running server; or containers cannot
                reach that.
            ConfigError: a model that is not in the repository; models and services in one pipeline; an operator that
                needs a server and has no network.
        """
        models = models_of(pipeline)
        serving = [operator for operator in pipeline.operators if operator.services]
        if models and serving:
            raise ConfigError(
                f"{serving[0].name} has services, and other operators models; one pipeline has one of them",
                serving[0].where,
                "serve all of them by models",
            )
        for operator in pipeline.operators:
            if (operator.models or operator.services) and (operator.network or options.network) == "none":
                raise ConfigError(
                    f"{operator.name} needs a server and has no network", operator.where, "give it another network"
                )
        if models and self.url is not None:
            self._check_reachable(pipeline, options)
        elif models:
            self._check_repository(pipeline, models)
        if self.models_dir is not None and not self.models_dir.is_dir():
            raise UsageError("there is no such folder", f"models_dir {self.models_dir}", "name a model repository")

    def _check_reachable(self, pipeline: Pipeline, options: RunOptions) -> None:
        found = self.address
        for operator in pipeline.operators:
            alone = operator.models and (operator.network or options.network) != "host"
            if alone and found is not None and found.is_loopback:
                raise UsageError(
                    f"{operator.name} cannot reach {found.host} of this machine from inside its container",
                    f"triton_url {self.url}",
                    "give an address that containers reach, or --network host",
                )

    def _check_repository(self, pipeline: Pipeline, models: list[str]) -> None:
        if self.models_dir is None:
            who = next(each.name for each in pipeline.operators if each.models)
            raise UsageError(
                f"{who} needs the model {models[0]}, and there is no model repository",
                "models_dir",
                "name one by --models-dir, or a running server by --triton-url",
            )
        for model in models:
            folder = self.models_dir / model
            where = next(each.where for each in pipeline.operators if model in each.models)
            if "/" in model or not folder.is_dir():
                raise ConfigError(
                    f'there is no model "{shown(model)}" in {self.models_dir}', where, "check --models-dir and the name"
                )
            config = folder / _CONFIG
            if config.is_file():
                named = top_level_text(read_text(config, error=ConfigError), "name", source=str(config))
                if named not in {None, model}:
                    raise ConfigError(
                        f'the model is named "{shown(named)}" there, and its folder {model}',
                        str(config),
                        "name it alike",
                    )


def triton_container(
    serving: ServerOptions, models: list[str], *, has_gpus: bool, network: str | None, labels: Mapping[str, str]
) -> Container:
    """Triton with the models of a pipeline, on free ports of this machine.

    Args:
        serving: where models are served.
        models: their names.
        has_gpus: whether the daemon knows of GPUs.
        network: the network of the run.
        labels: by which leftovers are found.
    """
    gpus = serving.gpus or ("1" if has_gpus else "none")
    return Container(
        serving.image,
        command=(
            "tritonserver",
            f"--model-repository={MODELS}",
            "--model-control-mode=explicit",
            *(f"--load-model={model}" for model in models),
        ),
        mounts=(Mount(str((serving.models_dir or Path()).resolve()), MODELS, read_only=True),),
        network=network,
        gpus=None if gpus in {"none", "0"} else gpus,
        ports=TRITON_PORTS,
        labels=labels,
    )


def service_container(
    service: Service, serving: ServerOptions, *, network: str | None, labels: Mapping[str, str]
) -> Container:
    """A service of a pipeline, its connections on free ports of this machine."""
    models = serving.models_dir
    return Container(
        service.image,
        command=service.command,
        environment=service.variables,
        mounts=() if models is None else (Mount(str(models.resolve()), MODELS, read_only=True),),
        network=network,
        gpus=service.gpus,
        ports=tuple(port for _, port in service.connections),
        labels=labels,
    )


def uses_servers(operator: Operator) -> bool:
    """Whether an operator needs a server."""
    return bool(operator.models or operator.services)
