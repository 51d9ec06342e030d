"""Kinds that Kubernetes does not have itself: Run:ai's, KAI's, Kubeflow's, JobSet (tests/fixtures/kube)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from ruamel.yaml import YAML

from tests.servers.kube.objects import condition, until

__all__ = ["FIXTURES", "JOBS", "KAI", "RUNAI", "install"]

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kube"
RUNAI, JOBS = FIXTURES / "runai_workloads.yaml", FIXTURES / "jobs.yaml"
KAI = tuple(FIXTURES / f"kai_scheduling.run.ai_{kind}.yaml" for kind in ("podgroups", "queues", "bindrequests"))
"""Not beside ``RUNAI``: both define ``podgroups.scheduling.run.ai``, with other versions."""

_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def install(
    client: httpx.Client, *files: Path, change: Callable[[dict[str, Any]], dict[str, Any]] = lambda each: each
) -> list[str]:
    """Create the definitions of these files, and wait until each is served; their names. Those there already stay.

    Args:
        client: with the right to.
        files: in YAML, of one or several documents or lists.
        change: made to each definition before it is created.
    """
    found = [change(definition) for file in files for definition in _definitions(file)]
    names: list[str] = [each["metadata"]["name"] for each in found]
    for each in found:
        answer = client.post(_PATH, json=each)
        assert answer.status_code in {httpx.codes.CREATED, httpx.codes.CONFLICT}, answer.text
    for name in names:
        made = until(partial(_definition, client, name), _is_decided)
        assert condition(made, "NamesAccepted")["status"] == "True", made["status"]
    return names


def _definition(client: httpx.Client, name: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"{_PATH}/{name}").json()
    return found


def _is_decided(definition: dict[str, Any]) -> bool:
    states = {kind: condition(definition, kind).get("status") for kind in ("Established", "NamesAccepted")}
    return states["Established"] == "True" or states["NamesAccepted"] == "False"


def _definitions(file: Path) -> list[dict[str, Any]]:
    documents = [each for each in YAML(typ="safe").load_all(file) if each]
    return [one for each in documents for one in (each["items"] if each["kind"] == "List" else [each])]
