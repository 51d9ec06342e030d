"""Pods created by Kubernetes' own client, by so many threads: ``official_kube KUBECONFIG COUNT THREADS``."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import kubernetes

from gpusize.cluster.submit.template import read_template
from gpusize.cluster.submit.workloads import Maker


def main(config: str, count: int, threads: int) -> None:
    """Create them; elapsed and CPU seconds as JSON."""
    values: dict[str, Any] = {"project": "p", "gpus": 1, "workers": 1, "queue": "q"}
    maker = Maker(read_template("pod"), "bcdfghjk", "j", "default", values)
    bodies = [json.loads(maker.make(index).objects[0].body) for index in range(count)]
    with kubernetes.config.new_client_from_config(config) as api:
        api.configuration.connection_pool_maxsize = threads
        core: Any = kubernetes.client.CoreV1Api(api)
        left, lock, made = iter(bodies), threading.Lock(), [0] * threads

        def work(number: int) -> None:
            while True:
                with lock:
                    body = next(left, None)
                if body is None:
                    return
                core.create_namespaced_pod("default", body)
                made[number] += 1

        workers = [threading.Thread(target=work, args=[number]) for number in range(threads)]
        start, cpu = time.monotonic(), time.process_time()
        for each in workers:
            each.start()
        for each in workers:
            each.join()
        assert sum(made) == count
        print(json.dumps({"elapsed_s": time.monotonic() - start, "cpu_s": time.process_time() - cpu}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
