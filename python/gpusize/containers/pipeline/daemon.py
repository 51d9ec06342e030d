"""The Docker daemon, or one that speaks its API: connected once, its errors as ours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import EnvironmentLacks
from gpusize.base.text import shown
from gpusize.containers.pipeline.container import Container
from gpusize.observe.usage.find_containers import daemon_address, daemon_problem, knock

if TYPE_CHECKING:
    import docker

__all__ = ["Daemon", "daemon_words", "talking"]

ANSWER_S: Final = 60
"""Longest wait for an answer, but for those to `Daemon.patient`."""

_WORDS: Final = 300


def daemon_words(problem: BaseException) -> str:
    """What the daemon said of a call that it refused."""
    said = getattr(problem, "explanation", None) or str(problem)
    return shown(str(said).strip(), _WORDS)


@contextlib.contextmanager
def talking(what: str) -> Iterator[None]:
    """Turn what the Docker SDK raises inside the block into an ``EnvironmentLacks`` that says what was tried.

    Args:
        what: what cannot be done then: ``the network cannot be made``.
    """
    import docker
    import requests

    try:
        yield
    except docker.errors.APIError as problem:
        raise EnvironmentLacks(f"{what}: {daemon_words(problem)}", None, None) from problem
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as problem:
        raise daemon_problem(problem) from problem


class Daemon:
    """A connection to the daemon.

    Args:
        client: the Docker SDK's client; made from the environment by `connect`.
        patient: one that waits for any answer as long as the connection stands, for calls that may take long: making,
            starting and waiting for containers. Whoever makes them says for how long.
        facts: what the daemon says of itself.
        cli: the program on the command line that speaks to it.
    """

    def __init__(self, client: docker.APIClient, patient: Any, facts: Mapping[str, Any], cli: str = "docker") -> None:
        self.client = client
        self.patient = patient
        self.facts = facts
        self.cli = cli

    @classmethod
    def connect(cls) -> Daemon:
        """Connect as ``DOCKER_HOST`` and its companions say.

        Raises:
            EnvironmentLacks: no daemon, or no permission.
        """
        import docker
        from docker.utils import kwargs_from_env

        with talking("the Docker daemon cannot be asked"):
            knock(daemon_address())
            client = docker.APIClient(**kwargs_from_env(), version="auto", timeout=ANSWER_S)
            try:
                facts, version = client.info(), client.version()
                parts = [str(part.get("Name", "")) for part in version.get("Components") or ()]
                # Docker's own command line loses the exit code of a container that Podman runs.
                cli = "podman" if any(part.startswith("Podman") for part in parts) else "docker"
                endless: Any = None
                patient = docker.APIClient(**kwargs_from_env(), version=client.api_version, timeout=endless)
                return cls(client, patient, facts, cli)
            except BaseException:
                client.close()
                raise

    def close(self) -> None:
        """Let the connections go."""
        self.client.close()
        self.patient.close()

    @property
    def systemd(self) -> bool:
        """Whether cgroups of containers are made through systemd."""
        return self.facts.get("CgroupDriver") == "systemd"

    @property
    def has_gpus(self) -> bool:
        """Whether NVIDIA's runtime is known to it; GPUs may be reachable without, by CDI."""
        return "nvidia" in (self.facts.get("Runtimes") or {})

    def has_image(self, image: str) -> bool:
        """Whether an image is on this machine.

        Raises:
            EnvironmentLacks: the daemon does not answer.
        """
        import docker

        client: Any = self.client
        with talking(f"the image {image} cannot be looked for"):
            try:
                client.inspect_image(image)
            except docker.errors.NotFound:
                return False
        return True

    def entrypoint_of(self, image: str) -> tuple[str, ...]:
        """The entry point of an image that is on this machine; empty where it has none.

        Raises:
            EnvironmentLacks: there is no such image, or the daemon does not answer.
        """
        client: Any = self.client
        with talking(f"the image {image} cannot be looked at"):
            told = client.inspect_image(image)
        return tuple((told.get("Config") or {}).get("Entrypoint") or ())

    def create(self, container: Container) -> str:
        """Make a container, which does not run yet, and return its id.

        Raises:
            EnvironmentLacks: the daemon refuses, or does not answer.
        """
        client: Any = self.client
        with talking("the container cannot be made"):
            return str(client.create_container_from_config(container.config())["Id"])

    def labelled(self, label: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Containers, running or not, and networks that carry a label, as the daemon lists them."""
        filters = {"label": [label]}
        with talking("containers cannot be listed"):
            containers = self.client.containers(all=True, filters=filters)
            networks = self.client.networks(filters=filters)
        return list(containers), list(networks)

    def gone(self, call: Callable[[], Any]) -> None:
        """Make a call that removes something; what is gone already is no error.

        Raises:
            EnvironmentLacks: the daemon refuses, or does not answer.
        """
        import docker

        with talking("it cannot be removed"), contextlib.suppress(docker.errors.NotFound):
            try:
                call()
            except docker.errors.APIError as problem:
                # A removal that another client, or an earlier call of ours, has begun.
                if problem.status_code != 409 or "in progress" not in daemon_words(problem):
                    raise

    def remove_container(self, container_id: str) -> None:
        """Remove a container with its anonymous volumes, running or not."""
        self.gone(lambda: self.client.remove_container(container_id, v=True, force=True))

    def remove_network(self, network_id: str) -> None:
        """Remove a network."""
        self.gone(lambda: self.client.remove_network(network_id))
