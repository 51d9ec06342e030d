//! The KServe v2 protocol with Triton's additions, over HTTP and over gRPC.

mod error;
pub(super) mod grpc;
mod grpc_frames;
mod grpc_stream;
pub(super) mod http;
mod http_body;
pub(super) mod inference;
mod model;
pub(super) mod series;
pub(super) mod stats;
mod tensor;

use std::rc::Rc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::super::{
    Execution, Fault, KserveConfig, Payload, Stalls, TensorModel, TensorObserver, TensorQueue, seconds,
};
use super::state::Shared;
pub(super) use error::{Code, Refused};
use gpusize_kserve::messages::{ModelInferRequest, ModelInferResponse};
use inference::Prepared;
use stats::ModelStats;

/// A reply of the model is ready.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ready {
    /// When, since the server's start, as the world sees it.
    pub at_ns: i64,
    /// No other follows.
    pub last: bool,
}

/// One request between its queue and the task that answers it.
#[derive(Debug)]
pub(super) struct TensorTicket(pub UnboundedSender<Ready>);

impl Payload for TensorTicket {
    fn cancelled(&self) -> bool {
        // The task that answers is gone, and with it the connection or the stream.
        self.0.is_closed()
    }
}

/// All models' queues and counts.
pub(super) struct Tensors {
    pub queues: Vec<TensorQueue<TensorTicket>>,
    pub stats: Vec<ModelStats>,
}

impl Tensors {
    pub(super) fn new(models: &[TensorModel], gpus: u32) -> Self {
        Self {
            queues: models.iter().map(|model| TensorQueue::new(model, gpus)).collect(),
            stats: models.iter().map(|_| ModelStats::default()).collect(),
        }
    }

    pub(super) fn next_event_ns(&self) -> Option<i64> {
        self.queues.iter().filter_map(TensorQueue::next_event_ns).min()
    }

    /// From `model_ns` on, instances on the first `ready` GPUs take requests.
    pub(super) fn set_ready(&mut self, model_ns: i64, ready: usize) {
        for queue in &mut self.queues {
            queue.set_ready(model_ns, ready);
        }
    }

    /// Let everything happen that is due at `model_ns`; `epoch_wall_s` is the wall clock at the server's start.
    pub(super) fn advance(&mut self, model_ns: i64, stalls: &Stalls, epoch_wall_s: f64) {
        for (queue, stats) in self.queues.iter_mut().zip(&mut self.stats) {
            queue.advance(model_ns, &mut Delivery { stalls, epoch_wall_s, stats });
        }
    }
}

/// Takes what a model makes to the tickets and the counts.
struct Delivery<'a> {
    stalls: &'a Stalls,
    epoch_wall_s: f64,
    stats: &'a mut ModelStats,
}

impl Delivery<'_> {
    fn tell(&self, execution: &Execution<TensorTicket>, model_ns: i64, last: bool) {
        let ready = Ready { at_ns: self.stalls.to_world_ns(model_ns), last };
        for job in &execution.jobs {
            // Whoever has left is not told.
            let _ = job.payload.0.send(ready);
        }
    }
}

impl TensorObserver<TensorTicket> for Delivery<'_> {
    fn reply(&mut self, execution: &Execution<TensorTicket>, _: u32, at_ns: i64) {
        self.tell(execution, at_ns, false);
    }

    fn finished(&mut self, execution: Execution<TensorTicket>) {
        let end_ns = execution.end_ns();
        let wall_ms = (self.epoch_wall_s + seconds(self.stalls.to_world_ns(end_ns))) * 1e3;
        self.stats.note(&execution, wall_ms as u64);
        self.tell(&execution, end_ns, true);
    }
}

/// A request that its model has taken.
pub(super) struct Taken {
    shared: Rc<Shared>,
    prepared: Prepared,
    pub replies: UnboundedReceiver<Ready>,
    pub fault: Option<Fault>,
}

impl Taken {
    pub(super) fn wants_final(&self) -> bool {
        self.prepared.wants_final
    }

    pub(super) fn is_decoupled(&self) -> bool {
        self.shared.config.tensor_models[self.prepared.model].decoupled_replies.is_some()
    }

    pub(super) fn response(&self) -> ModelInferResponse {
        self.prepared.response(&self.shared.config.tensor_models[self.prepared.model])
    }

    /// Wait for the next reply.
    pub(super) async fn next(&mut self) -> Option<Ready> {
        self.replies.recv().await
    }
}

/// Check a request and hand it to its model, now.
pub(super) fn take(shared: &Rc<Shared>, request: &ModelInferRequest, raw: Vec<bytes::Bytes>) -> Result<Taken, Refused> {
    let models = &shared.config.tensor_models;
    let prepared = inference::prepare(models, request, raw)?;
    let shape = prepared.shape_key(&models[prepared.model]);
    let (fault, replies) = shared.submit_tensor(prepared.model, prepared.items, shape)?;
    Ok(Taken { shared: Rc::clone(shared), prepared, replies, fault })
}

/// Wait for the only reply.
pub(super) async fn finish(shared: &Shared, taken: &mut Taken) -> Result<ModelInferResponse, Refused> {
    let response = taken.response();
    while let Some(ready) = taken.next().await {
        if ready.last {
            shared.note_write(ready.at_ns);
            return Ok(response);
        }
    }
    Err(Refused::new(Code::Unavailable, "the server is going down"))
}

/// Whether an API wants a header that the request has not got; `header` looks it up.
pub(super) fn is_restricted<'a>(config: &KserveConfig, api: &str, header: impl Fn(&str) -> Option<&'a [u8]>) -> bool {
    config.restricted.iter().any(|restricted| restricted == api)
        && header(&config.restricted_key) != Some(config.restricted_value.as_bytes())
}
