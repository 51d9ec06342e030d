//! The server's two reports: the metrics page and the statistics document.

use serde_json::{Value, json};

use super::super::{Cluster, seconds};
use super::exposition::{Buckets, Page, escape};
use super::kserve;
use super::metrics::GpuMetrics;
use super::state::Shared;

type Counter = (&'static str, &'static str, fn(&GpuMetrics) -> u64);
type Distribution = (&'static str, &'static str, fn(&GpuMetrics) -> &Buckets);

const COUNTERS: &[Counter] = &[
    ("vllm:prompt_tokens_total", "Number of prefill tokens processed.", |gpu| gpu.prompt_tokens),
    ("vllm:generation_tokens_total", "Number of generation tokens processed.", |gpu| gpu.generation_tokens),
    ("vllm:prefix_cache_queries_total", "Prefix cache queries, in tokens.", |gpu| gpu.prompt_tokens),
    ("vllm:prefix_cache_hits_total", "Prefix cache hits, in tokens.", |gpu| gpu.cached_tokens),
    ("vllm:num_preemptions_total", "Cumulative number of preemptions; the simulated cluster has none.", |_| 0),
];

const DISTRIBUTIONS: &[Distribution] = &[
    ("vllm:time_to_first_token_seconds", "Time to first token.", |gpu| &gpu.ttft),
    ("vllm:inter_token_latency_seconds", "Time between tokens of a sequence.", |gpu| &gpu.gap),
    ("vllm:request_time_per_output_token_seconds", "Mean time per output token after the first.", |gpu| &gpu.per_token),
    ("vllm:e2e_request_latency_seconds", "End to end request latency.", |gpu| &gpu.runtime),
    ("vllm:request_queue_time_seconds", "Time in the waiting phase.", |gpu| &gpu.queue),
    ("vllm:request_prefill_time_seconds", "Time in the prefill phase.", |gpu| &gpu.prefill),
    ("vllm:request_decode_time_seconds", "Time in the decode phase.", |gpu| &gpu.decode),
    ("vllm:request_prompt_tokens", "Number of prefill tokens of a request.", |gpu| &gpu.prompt),
    ("vllm:request_generation_tokens", "Number of generation tokens of a request.", |gpu| &gpu.generation),
    ("vllm:iteration_tokens_total", "Number of tokens per engine step.", |gpu| &gpu.iteration),
];

/// The page of `GET /metrics`. One engine per GPU that is up.
pub(super) fn metrics_page(shared: &Shared) -> String {
    let mut page = Page::default();
    let model = escape(&shared.config.model);
    let engines: Vec<(usize, String)> =
        shared.gpus_up().into_iter().map(|gpu| (gpu, format!("engine=\"{gpu}\",model_name=\"{model}\""))).collect();
    gauges(&mut page, shared, &engines);
    let metrics = shared.metrics.borrow();
    for (name, help, value) in COUNTERS {
        page.family(name, "counter", help);
        for (gpu, labels) in &engines {
            page.sample(name, labels, value(&metrics.gpus[*gpu]) as f64);
        }
    }
    let name = "vllm:request_success_total";
    page.family(name, "counter", "Count of processed requests by how they ended.");
    for (gpu, labels) in &engines {
        let gpu = &metrics.gpus[*gpu];
        for (reason, count) in [("stop", gpu.stopped), ("length", gpu.cut), ("abort", gpu.aborted)] {
            page.sample(name, &format!("{labels},finished_reason=\"{reason}\""), count as f64);
        }
    }
    for (name, help, buckets) in DISTRIBUTIONS {
        page.family(name, "histogram", help);
        for (gpu, labels) in &engines {
            page.histogram(name, labels, buckets(&metrics.gpus[*gpu]));
        }
    }
    drop(metrics);
    kserve::series::put(&mut page, shared);
    own_series(&mut page, shared, &format!("model_name=\"{model}\""));
    page.into_text()
}

fn gauges(page: &mut Page, shared: &Shared, engines: &[(usize, String)]) {
    let config = &shared.config;
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(usize) -> f64| {
        page.family(name, "gauge", help);
        for (gpu, labels) in engines {
            page.sample(name, labels, value(*gpu));
        }
    };
    shared.with_cluster(|cluster| {
        gauge("vllm:num_requests_running", "Number of requests in execution batches.", &|gpu| {
            cluster.running(gpu) as f64
        });
        gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", &|gpu| {
            cluster.waiting(gpu) as f64
        });
        gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", &|gpu| {
            f64::from(cluster.used_blocks(gpu)) / f64::from(config.kv_blocks)
        });
    });
    let name = "vllm:cache_config_info";
    page.family(name, "gauge", "Information of the cache configuration.");
    for (_, labels) in engines {
        let (block, blocks) = (config.kv_block_tokens, config.kv_blocks);
        page.sample(name, &format!("{labels},block_size=\"{block}\",num_gpu_blocks=\"{blocks}\""), 1.0);
    }
}

fn own_series(page: &mut Page, shared: &Shared, labels: &str) {
    let metrics = shared.metrics.borrow();
    let (desired, ready) = shared.replicas();
    for (name, help, count) in [
        ("gpusize_sim_replicas", "Replicas that take requests.", ready),
        ("gpusize_sim_replicas_desired", "Replicas that are asked for.", desired),
    ] {
        page.family(name, "gauge", help);
        page.sample(name, labels, count as f64);
    }
    kubernetes(page, shared, desired, ready);
    let name = "gpusize_sim_queued";
    page.family(name, "gauge", "Requests that wait in the queue that all GPUs share.");
    page.sample(name, labels, shared.with_cluster(Cluster::queued) as f64);
    let name = "gpusize_sim_answers_total";
    page.family(name, "counter", "Answers by what became of them.");
    for (kind, &count) in &metrics.answers {
        page.sample(name, &format!("{labels},kind=\"{kind}\""), count as f64);
    }
    let name = "gpusize_sim_iterations_total";
    page.family(name, "counter", "Iterations of all GPUs.");
    page.sample(name, labels, iterations(shared) as f64);
    let name = "gpusize_sim_lateness_seconds";
    page.family(name, "histogram", "From when the model made a token to when it was handed to the writer.");
    page.histogram(name, labels, &metrics.lateness);
}

/// What kube-state-metrics says of a deployment, and of its `HorizontalPodAutoscaler` where there is one, by the same names.
fn kubernetes(page: &mut Page, shared: &Shared, desired: usize, ready: usize) {
    let name = escape(&shared.config.model);
    let labels = format!("namespace=\"default\",deployment=\"{name}\"");
    for (name, help, count) in [
        ("kube_deployment_spec_replicas", "Number of desired pods for a deployment.", desired),
        ("kube_deployment_status_replicas", "The number of replicas per deployment.", desired),
        ("kube_deployment_status_replicas_ready", "The number of ready replicas per deployment.", ready),
        ("kube_deployment_status_replicas_available", "The number of available replicas per deployment.", ready),
        (
            "kube_deployment_status_replicas_unavailable",
            "The number of unavailable replicas per deployment.",
            desired - ready,
        ),
    ] {
        page.family(name, "gauge", help);
        page.sample(name, &labels, count as f64);
    }
    let Some((least, most)) = shared.autoscaler_bounds() else { return };
    let labels = format!("namespace=\"default\",horizontalpodautoscaler=\"{name}\"");
    for (name, help, count) in [
        ("kube_horizontalpodautoscaler_spec_min_replicas", "Lower limit of the autoscaler.", f64::from(least)),
        ("kube_horizontalpodautoscaler_spec_max_replicas", "Upper limit of the autoscaler.", f64::from(most)),
        ("kube_horizontalpodautoscaler_status_current_replicas", "Replicas that there are.", desired as f64),
        ("kube_horizontalpodautoscaler_status_desired_replicas", "Replicas that it asks for.", desired as f64),
    ] {
        page.family(name, "gauge", help);
        page.sample(name, &labels, count);
    }
}

fn iterations(shared: &Shared) -> u64 {
    shared.with_cluster(|cluster| (0..cluster.gpus()).map(|gpu| cluster.iterations(gpu)).sum())
}

/// The document of `GET /stats` and of `SimServer::stats_json`.
pub(super) fn stats(shared: &Shared) -> Value {
    let now_ns = shared.now_ns().max(1);
    let (running, waiting, busy): (usize, usize, Vec<f64>) = shared.with_cluster(|cluster| {
        let gpus = 0..cluster.gpus();
        (
            gpus.clone().map(|gpu| cluster.running(gpu)).sum(),
            gpus.clone().map(|gpu| cluster.waiting(gpu)).sum::<usize>() + cluster.queued(),
            gpus.map(|gpu| cluster.busy_ns(gpu) as f64 / now_ns as f64).collect(),
        )
    });
    let (desired, ready) = shared.replicas();
    let changes: Vec<Value> = shared
        .replica_changes()
        .into_iter()
        .map(|change| {
            let world_ns = shared.stalls.borrow().to_world_ns(change.at_ns);
            let (at_s, wall_s) = (seconds(world_ns), shared.wall_s(world_ns));
            json!({"at_s": at_s, "wall_s": wall_s, "desired": change.desired, "ready": change.ready})
        })
        .collect();
    let metrics = shared.metrics.borrow();
    let quantile = |share: f64| seconds(metrics.lateness_ns.value_at_quantile(share) as i64);
    let tokens: u64 = metrics.gpus.iter().map(|gpu| gpu.generation_tokens).sum();
    json!({
        "uptime_s": seconds(now_ns),
        "replicas": {"desired": desired, "ready": ready},
        "replica_changes": changes,
        "connections": metrics.connections,
        "requests": shared.requests(),
        "answers": metrics.answers,
        "abandoned": metrics.abandoned + metrics.gpus.iter().map(|gpu| gpu.aborted).sum::<u64>(),
        "running": running,
        "waiting": waiting,
        "tokens_out": tokens,
        "iterations": iterations(shared),
        "busy_share": busy,
        "lateness_s": {
            "count": metrics.lateness_ns.len(),
            "mean": metrics.lateness_ns.mean() / 1e9,
            "p50": quantile(0.5),
            "p90": quantile(0.9),
            "p99": quantile(0.99),
            "max": seconds(metrics.lateness_ns.max() as i64),
        },
        "lateness_buckets": metrics.lateness.cumulated().map(|(bound_s, count)| json!([bound_s.is_finite().then_some(bound_s), count])).collect::<Vec<_>>(),
    })
}
