"""Images: looked for on this machine, and pulled where they are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gpusize.base.errors import EnvironmentLacks
from gpusize.base.interrupt import StopSwitch
from gpusize.base.text import shown
from gpusize.containers.pipeline.daemon import Daemon, daemon_words, talking
from gpusize.containers.pipeline.wait import Call, wait_for

__all__ = ["PullState", "get_images"]


class PullState:
    """How far the pull of one image is, from the events that the daemon sends."""

    def __init__(self) -> None:
        self._layers: dict[str, tuple[int, int]] = {}
        self.problem: str | None = None

    def take(self, event: dict[str, Any]) -> None:
        """Take one event in."""
        if "error" in event:
            self.problem = str((event.get("errorDetail") or {}).get("message") or event["error"])
            return
        layer, detail = str(event.get("id", "")), event.get("progressDetail") or {}
        if event.get("status") == "Downloading" and detail.get("total"):
            self._layers[layer] = (int(detail.get("current", 0)), int(detail["total"]))
        elif event.get("status") in {"Download complete", "Pull complete"} and layer in self._layers:
            self._layers[layer] = (self._layers[layer][1], self._layers[layer][1])

    def text(self) -> str:
        """How much of the layers that are known so far has come."""
        current, total = (sum(each[index] for each in self._layers.values()) for index in (0, 1))
        return f"{current / 1e6:.0f} of {total / 1e6:.0f} MB" if total else "asking the registry"


def get_images(
    daemon: Daemon,
    images: Iterable[tuple[str, str]],
    stop: StopSwitch,
    progress: Callable[[str, str], None],
) -> None:
    """Make sure that images are on this machine.

    Args:
        daemon: the daemon.
        images: names of images, each with who needs it.
        stop: ends a pull.
        progress: told the image and how far its pull is.

    Raises:
        EnvironmentLacks: some cannot be had; all of them are named.
        Interrupted: the user asked for an end.
    """
    needed: dict[str, list[str]] = {}
    for image, who in images:
        needed.setdefault(image, []).append(who)
    missing = [image for image in needed if not daemon.has_image(image)]
    refused = {}
    for image in missing:
        problem = _pull(daemon, image, stop, progress)
        if problem is not None:
            refused[image] = problem
    if refused:
        told = "; ".join(f"{image} (of {', '.join(needed[image])}): {why}" for image, why in refused.items())
        raise EnvironmentLacks(
            f"not on this machine, and cannot be pulled: {told}",
            None,
            "docker login to the right registry, or correct the image's name in the definition",
        )


def _pull(daemon: Daemon, image: str, stop: StopSwitch, progress: Callable[[str, str], None]) -> str | None:
    """Pull one image; why it cannot be, or None."""
    import docker

    state = PullState()

    def pull() -> None:
        # A digest stands after @ and is no tag; the SDK splits both off.
        for event in daemon.client.pull(image, stream=True, decode=True):
            state.take(event)

    call = Call(pull)
    while True:
        progress(image, state.text())
        if wait_for(call.ended, stop, timeout_s=0.5):
            break
    with talking(f"the image {image} cannot be pulled"):
        try:
            call.result()
        except docker.errors.APIError as problem:
            return daemon_words(problem)
    return None if state.problem is None else shown(state.problem, 300)
