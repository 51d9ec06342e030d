from __future__ import annotations

import math
import re

import pytest
from ruamel.yaml import YAML

from gpusize.containers.recommend.types import MB, MIB, Recommendation
from gpusize.report.containers.request_blocks import clara_requests, compose_deploy, kubernetes_resources, memory_text
from gpusize.report.containers.usage_text import recommendation_sentence

MADE = Recommendation(policy="default", cpu_cores=1.2, mem_bytes=512 * MIB)
GPUS = Recommendation(policy="cpost", cpu_cores=11.0, cpu_limit_cores=12.5, mem_bytes=512 * MB, gpu_count=2)
NOTHING = Recommendation(policy="default", refused="it failed:\nexit code 126")


def load(text: str):
    return YAML(typ="safe").load(text)


def test_clara_takes_whole_cores_and_decimal_megabytes():
    assert load(clara_requests(MADE)) == {"requests": {"cpu": 2, "memory": 537}}
    assert load(clara_requests(GPUS)) == {"requests": {"cpu": 11, "gpu": 2, "memory": 512}}
    assert "MB of 1,000,000 bytes" in clara_requests(MADE)


def test_kubernetes_units():
    assert load(kubernetes_resources(MADE)) == {
        "resources": {"requests": {"cpu": "1200m", "memory": "512Mi"}, "limits": {"memory": "512Mi"}}
    }
    assert load(kubernetes_resources(GPUS)) == {
        "resources": {
            "requests": {"cpu": 11, "memory": "512M"},
            "limits": {"cpu": "12500m", "memory": "512M", "nvidia.com/gpu": 2},
        }
    }
    odd = Recommendation(policy="vpa", cpu_cores=0.0251, mem_bytes=12_345_678)
    assert load(kubernetes_resources(odd))["resources"]["requests"] == {"cpu": "26m", "memory": 12_345_678}


def test_composes_m_is_a_mebibyte():
    assert load(compose_deploy(MADE)) == {
        "deploy": {
            "resources": {"limits": {"memory": "512M"}, "reservations": {"cpus": "1.2", "memory": "512M"}},
        }
    }
    made = load(compose_deploy(GPUS))["deploy"]["resources"]
    assert made["limits"] == {"cpus": "12.5", "memory": "512000000B"}
    assert made["reservations"]["devices"] == [{"driver": "nvidia", "count": 2, "capabilities": ["gpu"]}]


@pytest.mark.parametrize("block", [clara_requests, kubernetes_resources, compose_deploy])
def test_nothing_recommended_is_a_comment_on_one_line(block):
    assert block(NOTHING) == "# no recommendation: it failed: exit code 126\n"
    assert load(block(NOTHING)) is None


@pytest.mark.parametrize(
    "size, text",
    [
        (512 * MIB, "537 MB (512 MiB)"),
        (512 * MB, "512 MB (488 MiB)"),
        (1_500_000, "1.5 MB (1.43 MiB)"),
        (0, "0 MB (0 MiB)"),
    ],
)
def test_both_units_are_named(size, text):
    assert memory_text(size) == text


@pytest.mark.parametrize("block", [clara_requests, kubernetes_resources, compose_deploy])
def test_what_did_not_end_by_itself_is_said_where_it_is_pasted(block):
    made = Recommendation(policy="default", cpu_cores=1.0, mem_bytes=64 * MIB)
    cut = Recommendation(policy="default", cpu_cores=1.0, mem_bytes=64 * MIB, cut_short=True)
    assert "# it was stopped before it ended by itself: it may need more" in block(cut)
    assert "#" not in block(made).replace("  # MB of 1,000,000 bytes", "")
    assert load(block(cut)) == load(block(made))


def test_the_memory_of_the_sentence_is_that_of_the_lines_to_paste():
    for size in (192 * MIB, 512 * MIB, 64 * MB, 12_345_678):
        made = Recommendation(policy="default", cpu_cores=1.0, mem_bytes=size)
        pasted = re.search(r"memory: (\d+)  # MB", clara_requests(made))
        told = re.search(r"Request 1 core \(an estimate\), (\d+) MB \(", recommendation_sentence(made))
        assert pasted is not None
        assert told is not None
        assert int(told[1]) == int(pasted[1]) == math.ceil(size / 1e6)
