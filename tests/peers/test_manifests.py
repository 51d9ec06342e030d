"""The manifests that the how-tos hand out, as a real API server takes them: every field known, nothing refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.servers.kube import ControlPlane

DOCS = Path(__file__).parents[2] / "docs" / "how-to"
MANIFESTS = sorted(DOCS.glob("*/*.yaml"))
WHERE = {
    kind: f"/{group}/namespaces/default/{plural}"
    for kind, group, plural in (
        ("Job", "apis/batch/v1", "jobs"),
        ("Service", "api/v1", "services"),
        ("ConfigMap", "api/v1", "configmaps"),
        ("PersistentVolumeClaim", "api/v1", "persistentvolumeclaims"),
    )
}


@pytest.mark.peers
@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_manifest_is_taken_as_it_stands(file: Path, control_plane: ControlPlane) -> None:
    objects: list[dict[str, Any]] = [each for each in YAML(typ="safe").load_all(file) if each]
    assert objects
    with control_plane.client() as client:
        for each in objects:
            asked = {"dryRun": "All", "fieldValidation": "Strict"}
            answer = client.post(WHERE[each["kind"]], json=each, params=asked)
            assert answer.status_code == 201, answer.text
