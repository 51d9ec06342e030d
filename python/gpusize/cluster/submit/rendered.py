"""What a submission would send, as YAML: the template, what was set in it and the labels, without a cluster."""

from __future__ import annotations

import io
import json

from gpusize.cluster.submit.names import new_run
from gpusize.cluster.submit.options import SubmitOptions
from gpusize.cluster.submit.template import read_template
from gpusize.cluster.submit.workloads import Maker, Workload

__all__ = ["first_workload", "manifest"]


def first_workload(options: SubmitOptions, context_namespace: str = "default") -> Workload:
    """The first of the workloads that a submission would create, under a run's id that no other has.

    Args:
        options: what is submitted.
        context_namespace: where workloads go whose kind and options name no namespace.

    Raises:
        UsageError, ConfigError: as `gpusize.cluster.submit.submit_workloads`, before it asks the server.
    """
    template = read_template(options.workload_type, pvc=options.pvc, overrides=options.overrides)
    options.check_template(template)
    namespace = options.namespace_of(template, context_namespace)
    return Maker(template, new_run(), options.prefix, namespace, options.values()).make(0)


def manifest(workload: Workload) -> str:
    """Its objects as a YAML file that `kubectl create -f` takes."""
    from ruamel.yaml import YAML

    yaml, out = YAML(), io.StringIO()
    yaml.default_flow_style = False
    yaml.dump_all([json.loads(each.body) for each in workload.objects], out)
    return out.getvalue()
