//! `ModelStreamInfer`: any number of requests in, any number of replies to each out, in the order in which they are made.

use std::io;
use std::rc::Rc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::super::super::Fault;
use super::super::routes::kind;
use super::super::state::Shared;
use super::error::{Code, Refused};
use super::grpc::parse;
use super::grpc_frames::{Replies, Unframer, framed, trailers};
use super::{Taken, inference, take};
use gpusize_kserve::messages::infer_parameter::ParameterChoice;
use gpusize_kserve::messages::{InferParameter, ModelInferRequest, ModelInferResponse, ModelStreamInferResponse};

/// Says of each reply whether it is the last one to its request.
const FINAL: &str = "triton_final_response";

type Out = UnboundedSender<io::Result<Frame<Bytes>>>;

/// Serve one stream.
pub(super) fn serve(shared: &Rc<Shared>, body: Incoming) -> Replies {
    let (out, frames) = unbounded_channel();
    let shared = Rc::clone(shared);
    tokio::task::spawn_local(async move {
        tokio::select! {
            outcome = converse(&shared, body, &out) => {
                // A client that has left needs no trailers.
                let _ = out.send(Ok(Frame::trailers(trailers(outcome.as_ref().copied()))));
            }
            () = out.closed() => {}
        }
    });
    Replies::coming(frames)
}

async fn converse(shared: &Rc<Shared>, mut body: Incoming, out: &Out) -> Result<(), Refused> {
    let mut unframer = Unframer::default();
    // Dropped with the stream, and the requests in it with them.
    let mut answers = JoinSet::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Refused::new(Code::Internal, error.to_string()))?;
        let Some(data) = frame.data_ref() else { continue };
        unframer.push(data);
        while let Some(message) = unframer.next()? {
            let request: ModelInferRequest = parse(&message)?;
            // Taken here, so that requests reach their queue in the order of the stream.
            let taken = inference::raw_inputs(&shared.config.tensor_models, &request)
                .and_then(|raw| take(shared, &request, raw));
            answers.spawn_local(answer(Rc::clone(shared), request.id, taken, out.clone()));
        }
    }
    if unframer.is_amid() {
        return Err(Refused::new(Code::Internal, "the stream ended within a message"));
    }
    while answers.join_next().await.is_some() {}
    Ok(())
}

async fn answer(shared: Rc<Shared>, id: String, taken: Result<Taken, Refused>, out: Out) {
    shared.thaw().await;
    let outcome = match taken {
        Ok(taken) => reply(&shared, taken, &out).await,
        Err(refused) => Err(refused),
    };
    let kind = outcome.as_ref().map_or_else(Refused::kind, |fault| kind(*fault));
    shared.metrics.borrow_mut().note_answer(kind);
    if let Err(refused) = outcome {
        // The request's id is in a response, as Triton sends it beside the error.
        let response = ModelInferResponse { id, ..ModelInferResponse::default() };
        send(&out, refused.message, response, true);
    }
}

/// Send the replies of one request as they are made; the fault that it met.
async fn reply(shared: &Shared, mut taken: Taken, out: &Out) -> Result<Option<Fault>, Refused> {
    let response = taken.response();
    let fault = taken.fault;
    while let Some(ready) = taken.next().await {
        shared.note_write(ready.at_ns);
        if ready.last
            && let Some(fault) = fault
        {
            let broken = match fault {
                Fault::Reset => Err(io::Error::other("reset on request")),
                _ => Ok(Frame::data(Bytes::from_static(b"\0\0\0\0\x02\xff\xff"))),
            };
            // A client that has left sees no fault.
            let _ = out.send(broken);
            return Ok(Some(fault));
        }
        // With an empty reply behind it, no reply with contents is the last.
        send(out, String::new(), response.clone(), ready.last && !taken.is_decoupled());
        if ready.last && taken.is_decoupled() && taken.wants_final() {
            let empty = ModelInferResponse { outputs: Vec::new(), raw_output_contents: Vec::new(), ..response.clone() };
            send(out, String::new(), empty, true);
        }
        if ready.last {
            return Ok(None);
        }
    }
    Err(Refused::new(Code::Unavailable, "the server is going down"))
}

fn send(out: &Out, error_message: String, mut response: ModelInferResponse, is_final: bool) {
    let parameter = InferParameter { parameter_choice: Some(ParameterChoice::BoolParam(is_final)) };
    response.parameters.insert(FINAL.to_owned(), parameter);
    let message = ModelStreamInferResponse { error_message, infer_response: Some(response) };
    // A client that has left needs no reply.
    let _ = out.send(Ok(Frame::data(framed(&message))));
}
