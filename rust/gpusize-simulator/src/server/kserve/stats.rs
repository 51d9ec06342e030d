//! What the server counts of each tensor model, as Triton counts it: every request of a batch is charged the batch's whole time.

use std::collections::BTreeMap;

use super::super::super::{Execution, TensorModel};
use super::inference::VERSION;
use gpusize_kserve::messages::{InferBatchStatistics, InferStatistics, ModelStatistics, StatisticDuration};

/// Counts of one model.
#[derive(Debug, Default)]
pub(crate) struct ModelStats {
    last_inference_ms: u64,
    pub inferences: u64,
    pub executions: u64,
    pub success: Sum,
    fail: Sum,
    pub queue: Sum,
    pub input: Sum,
    pub infer: Sum,
    pub output: Sum,
    batches: BTreeMap<u32, [Sum; 3]>,
    /// Requests without an answer, by Triton's reasons.
    pub failures: BTreeMap<&'static str, u64>,
}

/// How often, and how long in all.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sum {
    pub count: u64,
    pub ns: u64,
}

impl Sum {
    fn add(&mut self, ns: i64) {
        self.count += 1;
        self.ns += ns.max(0) as u64;
    }

    #[allow(clippy::unnecessary_wraps, reason = "the messages' fields are optional")]
    fn message(self) -> Option<StatisticDuration> {
        Some(StatisticDuration { count: self.count, ns: self.ns })
    }
}

impl ModelStats {
    /// An execution is over.
    pub(crate) fn note<P>(&mut self, execution: &Execution<P>, wall_ms: u64) {
        self.last_inference_ms = wall_ms;
        self.executions += 1;
        self.inferences += u64::from(execution.items);
        let parts = [execution.input_ns, execution.infer_ns, execution.output_ns];
        for (sum, ns) in self.batches.entry(execution.items).or_default().iter_mut().zip(parts) {
            sum.add(ns);
        }
        for job in &execution.jobs {
            self.queue.add(execution.start_ns - job.arrived_ns);
            self.input.add(execution.input_ns);
            self.infer.add(execution.infer_ns);
            self.output.add(execution.output_ns);
            self.success.add(execution.end_ns() - job.arrived_ns);
        }
    }

    /// A request got an error instead of an answer.
    pub(crate) fn note_failure(&mut self, reason: &'static str) {
        self.fail.add(0);
        *self.failures.entry(reason).or_default() += 1;
    }

    pub(super) fn message(&self, model: &TensorModel) -> ModelStatistics {
        let none = Sum::default().message();
        ModelStatistics {
            name: model.name.clone(),
            version: VERSION.to_owned(),
            last_inference: self.last_inference_ms,
            inference_count: self.inferences,
            execution_count: self.executions,
            inference_stats: Some(InferStatistics {
                success: self.success.message(),
                fail: self.fail.message(),
                queue: self.queue.message(),
                compute_input: self.input.message(),
                compute_infer: self.infer.message(),
                compute_output: self.output.message(),
                cache_hit: none,
                cache_miss: none,
            }),
            batch_stats: self.batches.iter().map(|(&size, sums)| batch(size, sums)).collect(),
            ..ModelStatistics::default()
        }
    }
}

fn batch(size: u32, [input, infer, output]: &[Sum; 3]) -> InferBatchStatistics {
    InferBatchStatistics {
        batch_size: size.into(),
        compute_input: input.message(),
        compute_infer: infer.message(),
        compute_output: output.message(),
    }
}
