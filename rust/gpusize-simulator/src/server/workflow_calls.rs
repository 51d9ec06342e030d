//! A workflow of several LLM calls, one after the other or overlapping, each with its two intermediate steps.

use std::io;
use std::rc::Rc;

use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::super::{Fault, ns};
use super::body::Answer;
use super::connection::Fate;
use super::error::ApiError;
use super::routes::admitted;
use super::state::{Shared, Submitted};
use super::ticket::Ticket;
use super::workflow::{Call, Wishes, answer_line, submit_again};

type Out = UnboundedSender<io::Result<Bytes>>;

/// Answer with the steps of all calls; the first has been submitted, and its fault is that of the workflow.
pub(super) fn answer(
    shared: &Rc<Shared>,
    fate: &Rc<Fate>,
    wishes: Wishes,
    first: Submitted,
    ticket: Rc<Ticket>,
) -> Answer {
    let (out, steps) = unbounded_channel();
    let (shared, fate) = (Rc::clone(shared), Rc::clone(fate));
    tokio::task::spawn_local(async move {
        let fault = first.service.fault;
        tokio::select! {
            outcome = work(&shared, &wishes, first, ticket, &out) => end(&fate, fault, outcome, &out),
            // The client has left, and the calls end with it.
            () = out.closed() => {}
        }
    });
    Answer::Coming { lines: steps, broken: false, flushed: false }
}

fn end(fate: &Fate, fault: Option<Fault>, outcome: Result<u32, ApiError>, out: &Out) {
    let line = match outcome {
        Ok(tokens) => answer_line(tokens),
        Err(error) => format!("data: {}\n\n", String::from_utf8_lossy(&error.to_bytes())),
    };
    let cut = match fault {
        Some(Fault::Reset) => {
            fate.reset.set(true);
            // A client that has left sees no reset.
            let _ = out.send(Err(io::Error::other("reset on request")));
            return;
        }
        Some(Fault::MalformedFraming) => {
            fate.garbage.set(true);
            line.len()
        }
        Some(Fault::MalformedJson) => line.len() / 2,
        _ => line.len(),
    };
    // A client that has left needs no answer.
    let _ = out.send(Ok(Bytes::copy_from_slice(&line.as_bytes()[..cut])));
}

/// Run all calls; the tokens of the last.
async fn work(
    shared: &Rc<Shared>,
    wishes: &Wishes,
    first: Submitted,
    ticket: Rc<Ticket>,
    out: &Out,
) -> Result<u32, ApiError> {
    let config = shared.config.workflow;
    let begun_ns = first.arrived_ns;
    let mut calls = JoinSet::new();
    let mut tokens = 0;
    let mut next = Some((first, ticket));
    for number in 1..=config.llm_calls {
        let (submitted, ticket) = match next.take() {
            Some(first) => first,
            None => again(shared, wishes)?,
        };
        let call = Call::new(shared, &submitted, wishes.input_message.clone().unwrap_or_default());
        // A client that has left needs no steps.
        let _ = out.send(Ok(Bytes::from(call.start())));
        calls.spawn_local(finish(Rc::clone(shared), call, ticket, out.clone()));
        match config.stagger_s {
            Some(stagger_s) if number < config.llm_calls => {
                shared.wait_until(begun_ns + ns(stagger_s) * i64::from(number)).await?;
                shared.thaw().await;
            }
            Some(_) => {}
            None => tokens = joined(&mut calls).await?,
        }
    }
    while !calls.is_empty() {
        tokens = joined(&mut calls).await?;
    }
    Ok(tokens)
}

fn again(shared: &Shared, wishes: &Wishes) -> Result<(Submitted, Rc<Ticket>), ApiError> {
    let submitted = submit_again(shared, wishes)?;
    let ticket = admitted(&submitted)?;
    Ok((submitted, ticket))
}

async fn joined(calls: &mut JoinSet<u32>) -> Result<u32, ApiError> {
    match calls.join_next().await {
        Some(tokens) => Ok(tokens.map_err(io::Error::other)?),
        None => Ok(0),
    }
}

/// Wait for a call's end and say so.
async fn finish(shared: Rc<Shared>, call: Call, ticket: Rc<Ticket>, out: Out) -> u32 {
    ticket.finished().await;
    shared.note_write(ticket.end_ns());
    // A client that has left needs no steps.
    let _ = out.send(Ok(Bytes::from(call.end_step(ticket.end_ns(), ticket.made()))));
    ticket.made()
}
