//! Triton's series: of the models, and of the GPUs as its DCGM exporter shows them.

use super::super::super::seconds;
use super::super::exposition::Page;
use super::super::state::Shared;
use super::inference::VERSION;
use super::stats::ModelStats;

const IDLE_W: f64 = 60.0;
const LIMIT_W: f64 = 300.0;
const MEMORY_BYTES: f64 = (80_u64 << 30) as f64;
const WEIGHTS_BYTES: f64 = (8_u64 << 30) as f64;
const KV_BYTES: f64 = (56_u64 << 30) as f64;

type Counter = (&'static str, &'static str, fn(&ModelStats) -> u64);

const COUNTERS: &[Counter] = &[
    ("nv_inference_request_success", "Number of successful inference requests, all batch sizes", |s| s.success.count),
    ("nv_inference_count", "Number of inferences performed (does not include cached requests)", |s| s.inferences),
    ("nv_inference_exec_count", "Number of model executions performed (does not include cached requests)", |s| {
        s.executions
    }),
    (
        "nv_inference_request_duration_us",
        "Cumulative inference request duration in microseconds (includes cached requests)",
        |s| s.success.ns / 1000,
    ),
    (
        "nv_inference_queue_duration_us",
        "Cumulative inference queuing duration in microseconds (includes cached requests)",
        |s| s.queue.ns / 1000,
    ),
    (
        "nv_inference_compute_input_duration_us",
        "Cumulative compute input duration in microseconds (does not include cached requests)",
        |s| s.input.ns / 1000,
    ),
    (
        "nv_inference_compute_infer_duration_us",
        "Cumulative compute inference duration in microseconds (does not include cached requests)",
        |s| s.infer.ns / 1000,
    ),
    (
        "nv_inference_compute_output_duration_us",
        "Cumulative inference compute output duration in microseconds (does not include cached requests)",
        |s| s.output.ns / 1000,
    ),
];

/// Put all of them on the page.
pub(crate) fn put(page: &mut Page, shared: &Shared) {
    put_models(page, shared);
    put_gpus(page, shared);
}

fn put_models(page: &mut Page, shared: &Shared) {
    let tensors = shared.tensors.borrow();
    let labels: Vec<String> = shared
        .config
        .tensor_models
        .iter()
        .map(|model| format!("model=\"{}\",version=\"{VERSION}\"", model.name))
        .collect();
    for (name, help, value) in COUNTERS {
        page.family(name, "counter", help);
        for (stats, labels) in tensors.stats.iter().zip(&labels) {
            page.sample(name, labels, value(stats) as f64);
        }
    }
    let name = "nv_inference_request_failure";
    page.family(name, "counter", "Number of failed inference requests, all batch sizes");
    for (stats, model) in tensors.stats.iter().zip(&shared.config.tensor_models) {
        for reason in ["OTHER", "BACKEND", "CANCELED", "REJECTED"] {
            let labels = format!("model=\"{}\",reason=\"{reason}\",version=\"{VERSION}\"", model.name);
            page.sample(name, &labels, stats.failures.get(reason).copied().unwrap_or(0) as f64);
        }
    }
    let name = "nv_inference_pending_request_count";
    page.family(name, "gauge", "Instantaneous number of pending requests awaiting execution per-model.");
    for (queue, labels) in tensors.queues.iter().zip(&labels) {
        page.sample(name, labels, queue.waiting() as f64);
    }
}

fn put_gpus(page: &mut Page, shared: &Shared) {
    let now_s = seconds(shared.now_ns());
    let shares = shared.busy_shares();
    let up = shared.gpus_up();
    let kv = |gpu: usize| {
        shared.with_cluster(|cluster| f64::from(cluster.used_blocks(gpu))) / f64::from(shared.config.kv_blocks)
    };
    let busy_s = |gpu: usize| seconds(shared.busy_ns(gpu)).min(now_s);
    let power_w = |share: f64| IDLE_W + (LIMIT_W - IDLE_W) * share;
    let mut family = |name: &str, kind: &str, help: &str, value: &dyn Fn(usize) -> f64| {
        page.family(name, kind, help);
        for &gpu in &up {
            page.sample(name, &format!("gpu_uuid=\"GPU-00000000-0000-4000-8000-{gpu:012x}\""), value(gpu));
        }
    };
    family("nv_gpu_utilization", "gauge", "GPU utilization rate [0.0 - 1.0)", &|gpu| shares[gpu]);
    family("nv_gpu_memory_total_bytes", "gauge", "GPU total memory, in bytes", &|_| MEMORY_BYTES);
    family("nv_gpu_memory_used_bytes", "gauge", "GPU used memory, in bytes", &|gpu| WEIGHTS_BYTES + KV_BYTES * kv(gpu));
    family("nv_gpu_power_usage", "gauge", "GPU power usage in watts", &|gpu| power_w(shares[gpu]));
    family("nv_gpu_power_limit", "gauge", "GPU power management limit in watts", &|_| LIMIT_W);
    family(
        "nv_energy_consumption",
        "counter",
        "GPU energy consumption in joules since the Triton Server started",
        &|gpu| IDLE_W * (now_s - seconds(shared.down_ns(gpu))) + (LIMIT_W - IDLE_W) * busy_s(gpu),
    );
}
