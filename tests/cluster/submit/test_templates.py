"""Templates: placeholders in the tree, overrides by path, labels, claims, those of the seed's tool, our own."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from gpusize.base.errors import ConfigError, UsageError
from gpusize.cluster.submit.names import workload_name
from gpusize.cluster.submit.placeholders import NAMES, Quoted, fill, placeholders
from gpusize.cluster.submit.template import Template, read_template
from gpusize.cluster.submit.templates import PARTS, template_names, template_text
from gpusize.cluster.submit.workloads import Maker

VALUES: dict[str, Any] = {"project": "p-1", "gpus": 2, "workers": 3, "queue": "q"}
LABELS = {"gpusize.dev/run": "rrrr", "gpusize.dev/workload": "j-rrrr-4", "gpusize.dev/index": "4"}


def made(template: Template, index: int = 4) -> list[dict[str, Any]]:
    workload = Maker(template, "rrrr", "j", "ns", VALUES).make(index)
    objects = [json.loads(each.body) for each in workload.objects]
    assert [each["metadata"]["name"] for each in objects] == [each.name for each in workload.objects]
    return objects


def of_text(tmp_path: Path, text: str, **more: Any) -> Template:
    file = tmp_path / "own.yaml"
    file.write_text(text)
    return read_template(str(file), **more)


def find(tree: Any, key: str) -> list[Any]:
    """Every value of a key, at any depth."""
    if isinstance(tree, dict):
        return [value for name, value in tree.items() if name == key] + [x for v in tree.values() for x in find(v, key)]
    return [x for item in tree for x in find(item, key)] if isinstance(tree, list) else []


@pytest.mark.parametrize("pvc", [False, True])
@pytest.mark.parametrize("name", template_names())
def test_every_template_makes_objects_with_name_labels_and_gpus(name: str, pvc: bool) -> None:
    objects = made(read_template(name, pvc=pvc))
    for each in objects:
        assert each["metadata"]["namespace"] == "ns"
        assert each["metadata"]["name"].startswith("j-rrrr-4")
        assert each["metadata"]["labels"].items() >= LABELS.items()
    text = json.dumps(objects)
    assert "${" not in text
    assert "gpusize.dev/repeat" not in text
    workload = objects[-1]
    pods = [each for each in find(objects, "spec") if isinstance(each, dict) and "containers" in each]
    if workload["apiVersion"].startswith("run.ai/"):
        assert workload["spec"]["gpu"] == {"value": "2"}
        assert ("pvcs" in workload["spec"]) == pvc
    else:
        assert pods
        for pod in pods:
            assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}
            assert ("volumes" in pod) == pvc
    # Labels are on each template of pods: what they make is found by them.
    for template in find(objects, "template"):
        assert template["metadata"]["labels"].items() >= LABELS.items()
    claims = [each for each in objects if each["kind"] == "PersistentVolumeClaim"]
    assert len(claims) == (pvc and not workload["apiVersion"].startswith("run.ai/"))
    assert objects[: len(claims)] == claims
    for claim in claims:
        assert find(objects, "claimName") == [claim["metadata"]["name"]] * len(pods)


@pytest.mark.parametrize("name, kind", [("training", "TrainingWorkload"), ("interactive", "InteractiveWorkload")])
def test_run_ai_workloads_have_the_shape_of_the_seed(name: str, kind: str) -> None:
    workload = made(read_template(name))[0]
    assert (workload["apiVersion"], workload["kind"]) == ("run.ai/v2alpha1", kind)
    assert workload["metadata"]["labels"]["PreviousJob"] == "true"
    # The sampler joins by spec.name.value.
    assert workload["spec"]["name"] == {"value": workload["metadata"]["name"]}
    assert all(set(value) == {"value"} for value in workload["spec"].values())
    assert workload["spec"]["cpu"] == {"value": "0.05"}
    assert workload["spec"]["memory"] == {"value": "1Mi"}


def test_a_distributed_workload_has_its_workers_as_a_number() -> None:
    spec = made(read_template("distributed"))[0]["spec"]
    assert spec["workers"] == {"value": 3}
    assert spec["jobType"] == "PyTorchJob"
    assert spec["runPolicy"]["values"]["cleanPodPolicy"] == {"value": "None"}


def test_a_gang_has_its_group_first_and_a_pod_for_each_worker() -> None:
    group, *pods = made(read_template("kai-podgroup"))
    assert (group["kind"], group["spec"]) == ("PodGroup", {"minMember": 3, "queue": "q"})
    assert [pod["metadata"]["name"] for pod in pods] == ["j-rrrr-4-0", "j-rrrr-4-1", "j-rrrr-4-2"]
    assert {pod["metadata"]["annotations"]["pod-group-name"] for pod in pods} == {group["metadata"]["name"]}


def test_a_job_of_kueue_is_created_suspended_in_its_queue() -> None:
    job = made(read_template("kueue-job"))[0]
    assert job["spec"]["suspend"] is True
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"


def test_selectors_of_a_deployment_select_its_pods() -> None:
    spec = made(read_template("deployment"))[0]["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


def test_the_first_line_of_each_template_says_what_it_is_for() -> None:
    for name in (*template_names(), *PARTS):
        assert template_text(name).startswith("# "), name


OLD = """apiVersion: run.ai/v2alpha1
kind: DistributedWorkload
metadata:
  creationTimestamp: null
  labels: {PreviousJob: "true"}
  name: JOB_NAME_PLACEHOLDER
  namespace: runai-PROJECT_PLACEHOLDER
spec:
  gpu: {value: "NUM_GPUS"}
  name: {value: JOB_NAME_PLACEHOLDER}
  workers: {value: NUM_WORKERS_PLACEHOLDER}
  command: {value: "echo ${HOME}"}
status: {}
"""


def test_an_old_template_works_as_it_is(tmp_path: Path) -> None:
    """The seed's own replacement of text, and ours in the tree, make the same object."""
    template = of_text(tmp_path, OLD)
    assert template.runai
    text = OLD
    for old, new in (("JOB_NAME", "j-rrrr-4"), ("PROJECT", "p-1"), ("NUM_WORKERS", "3")):
        text = text.replace(f"{old}_PLACEHOLDER", new)
    theirs = YAML(typ="safe").load(text.replace("NUM_GPUS", "2"))
    ours = json.loads(Maker(template, "rrrr", "j", "runai-p-1", VALUES).make(4).objects[0].body)
    for name in LABELS:
        del ours["metadata"]["labels"][name]
    assert ours == theirs


def test_words_of_the_seed_are_left_alone_in_other_templates(tmp_path: Path) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '${name}'}\ndata: {NUM_GPUS: NUM_GPUS}\n"
    assert made(of_text(tmp_path, text))[0]["data"] == {"NUM_GPUS": "NUM_GPUS"}


HOSTILE = st.text(alphabet=string.printable + "\u2028é{}[]:#'\"\\\n\t&*!|>%@`$", max_size=30)


@given(value=HOSTILE, number=st.integers(-(10**9), 10**9))
def test_a_value_brings_no_yaml_with_it(value: str, number: int) -> None:
    tree = {"a": "${queue}", "b": ["x-${queue}-y", Quoted("${gpus}"), "${gpus}"], "k-${gpus}": {"c": "$${queue}"}}
    found = fill(tree, {"queue": value, "gpus": number}, "t")
    assert found == {"a": value, "b": [f"x-{value}-y", str(number), number], f"k-{number}": {"c": "${queue}"}}
    assert json.loads(json.dumps(found)) == found


def test_a_placeholder_that_there_is_not_is_named(tmp_path: Path) -> None:
    template = of_text(tmp_path, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '${name}'}\ndata: {a: '${nmae}'}\n")
    assert placeholders(list(template.documents)) == {"name", "nmae"}
    with pytest.raises(UsageError, match=r'no placeholder \$\{nmae\}\. Did you mean "name"\?'):
        made(template)


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "empty"),
        ("a: 1\n", "no object of Kubernetes"),
        ("[]\n", "no object of Kubernetes"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: fixed}\n", "every workload would be called fixed"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {generateName: x-}\n", "generateName"),
        ("apiVersion: v1\nkind: Pod\nmetadata: 5\n", "metadata is 5"),
        ("apiVersion: v1\nkind: Pod\ndata: {day: 2026-01-01}\n", r"data\.day: date 2026-01-01 is no value of JSON"),
        ("apiVersion: v1\nkind: Pod\nx: [\n", "own.yaml:"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: '${name}', annotations: {gpusize.dev/repeat: 3}}\n",
            r"write \$\{name\}-\$\{rank\}",
        ),
    ],
)
def test_what_is_no_template_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"(?i){says}"):
        of_text(tmp_path, text)


def test_a_template_for_another_namespace_is_refused(tmp_path: Path) -> None:
    template = of_text(tmp_path, "apiVersion: v1\nkind: Pod\nmetadata: {name: '${name}', namespace: other}\n")
    with pytest.raises(ConfigError, match="for namespace other, and the workloads go to ns"):
        made(template)


def test_an_unknown_template_names_those_that_there_are() -> None:
    with pytest.raises(UsageError, match='Did you mean "training"'):
        read_template("trainning")


@pytest.mark.parametrize(
    "override, path, value",
    [
        ("spec.template.spec.priorityClassName=high", ["spec", "template", "spec", "priorityClassName"], "high"),
        ("spec.backoffLimit=7", ["spec", "backoffLimit"], 7),
        ("spec.backoffLimit='7'", ["spec", "backoffLimit"], "7"),
        (
            "spec.template.spec.containers.0.image=a:1=2",
            ["spec", "template", "spec", "containers", 0, "image"],
            "a:1=2",
        ),
        (
            "spec.template.spec.containers[0].args=[a, b]",
            ["spec", "template", "spec", "containers", 0, "args"],
            ["a", "b"],
        ),
        (
            "spec.template.spec.containers.1={name: side}",
            ["spec", "template", "spec", "containers", 1],
            {"name": "side"},
        ),
        (r"metadata.labels.a\.b/c=x", ["metadata", "labels", "a.b/c"], "x"),
        ("metadata.annotations.n=${index}", ["metadata", "annotations", "n"], 4),
        ("metadata.annotations.n='${index}'", ["metadata", "annotations", "n"], "4"),
        ("spec.new[0].deep=true", ["spec", "new", 0, "deep"], True),
        ("spec.suspend=", ["spec", "suspend"], None),
        ("Job:spec.suspend=true", ["spec", "suspend"], True),
    ],
)
def test_an_override_lands_at_its_path_and_nowhere_else(override: str, path: list[Any], value: Any) -> None:
    plain, changed = made(read_template("job", pvc=True)), made(read_template("job", pvc=True, overrides=[override]))
    here = changed[-1]
    for part in path:
        here = here[part]
    assert here == value
    assert changed[:-1] == plain[:-1]


def test_an_override_of_a_kind_changes_that_document() -> None:
    template = read_template("pod", pvc=True, overrides=["PersistentVolumeClaim:spec.resources.requests.storage=5Gi"])
    assert made(template)[0]["spec"]["resources"] == {"requests": {"storage": "5Gi"}}


@pytest.mark.parametrize(
    "override, says",
    [
        ("spec.backoffLimit.x=1", "spec.backoffLimit is 0, which has no parts"),
        ("spec.template.spec.restartPolicy.a.b=1", "spec.template.spec.restartPolicy is Never, which has no parts"),
        ("spec.template.spec.containers.first=1", 'spec.template.spec.containers is a list, and has no "first"'),
        ("spec.template.spec.containers.3.image=x", "has 1 items, and none of number 3"),
        ("spec[0]=1", "spec is a table, and has no item 0"),
        ("spec.suspend", "has no value"),
        ("=1", '"" is no path'),
        ("a..b=1", "is no path"),
        ("a.=1", "is no path"),
        ("spec.x=[1", "broken YAML"),
        ("Pod:spec.x=1", "the template has no Pod"),
        ("metadata.name=fixed", "every workload would be called fixed"),
    ],
)
def test_an_override_that_does_not_fit_names_the_part(override: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_template("job", overrides=[override])
    assert says in str(refused.value)


def test_a_key_that_is_a_number_is_a_key_in_a_table(tmp_path: Path) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '${name}'}\ndata: {}\n"
    assert made(of_text(tmp_path, text, overrides=["data.0=x"]))[0]["data"] == {"0": "x"}


def test_names_of_a_million_workloads_are_all_different_and_short() -> None:
    names = {workload_name("j", "bcdfghjk", index) for index in range(10**6)}
    assert len(names) == 10**6
    assert max(map(len, names)) <= 63 - len("-worker-9999") - len("-xxxxx")


def test_every_placeholder_of_the_documentation_has_a_value() -> None:
    text = "\n".join(f"  {name}: '${{{name}}}'" for name in NAMES if name != "rank")
    maker_values = {**VALUES}
    documents = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "${name}"}, "data": {"x": text}}]
    data = made(Template("t", tuple(documents), ""))[0]["data"]["x"]
    assert "${" not in data
    assert str(maker_values["queue"]) in data


PODS = {"jobset": 3, "job": 3, "kueue-job": 3, "deployment": 3, "pytorchjob": 4, "distributed": 4, "kai-podgroup": 3}


@pytest.mark.parametrize("name", template_names())
def test_the_pods_of_a_workload_are_counted(name: str) -> None:
    assert Maker(read_template(name, pvc=True), "rrrr", "j", "ns", VALUES).make(0).pods == PODS.get(name, 1)


@pytest.mark.parametrize(
    "template, override, pods",
    [
        ("job", "spec.completions=2", 2),
        ("job", "spec.parallelism=", 1),
        ("jobset", "spec.replicatedJobs[0].replicas=5", 15),
        ("deployment", "spec.replicas=", 1),
        ("pytorchjob", "spec.pytorchReplicaSpecs=5", None),
    ],
)
def test_pods_follow_overrides(template: str, override: str, pods: int | None) -> None:
    maker = Maker(read_template(template, overrides=[override]), "rrrr", "j", "ns", VALUES)
    assert maker.make(0).pods == pods


def test_the_pods_of_an_unknown_kind_are_not_known(tmp_path: Path) -> None:
    template = of_text(tmp_path, "apiVersion: x/v1\nkind: Thing\nspec: {replicas: 3}\n")
    assert Maker(template, "rrrr", "j", "ns", VALUES).make(0).pods is None
