//! One request between the cluster, which makes its tokens, and the task that answers it.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use serde_json::{Value, json};

use super::super::Payload;

/// Shared by the cluster and by whoever answers; the cluster's share ends with the service. Times are nanoseconds from the server's
/// start, in the world's time.
pub(super) struct Ticket {
    /// Whether every token wakes the answering task, or only the last.
    streams: bool,
    /// Whether the request's own limit ends the answer.
    cut: bool,
    made: Cell<u32>,
    done: Cell<bool>,
    /// When the first token that has not been taken was made; -1 when all were taken.
    pending_since_ns: Cell<i64>,
    end_ns: Cell<i64>,
    /// When it joined a batch, and when it had its first token.
    turn_ns: Cell<(i64, i64)>,
    waker: Cell<Option<Waker>>,
}

impl Payload for Rc<Ticket> {
    fn cancelled(&self) -> bool {
        // The task that answers is gone, and with it the connection.
        Rc::strong_count(self) == 1
    }
}

impl Ticket {
    pub(super) fn new(streams: bool, cut: bool) -> Rc<Self> {
        Rc::new(Self {
            streams,
            cut,
            made: Cell::new(0),
            done: Cell::new(false),
            pending_since_ns: Cell::new(-1),
            end_ns: Cell::new(-1),
            turn_ns: Cell::new((-1, -1)),
            waker: Cell::new(None),
        })
    }

    /// The cluster made so many tokens at `end_ns`.
    pub(super) fn deliver(&self, tokens: u32, end_ns: i64) {
        self.made.set(self.made.get() + tokens);
        if self.streams {
            if self.pending_since_ns.get() < 0 {
                self.pending_since_ns.set(end_ns);
            }
            self.wake();
        }
    }

    /// It joined a batch at `admitted_ns`, and had its first token at `first_token_ns`.
    pub(super) fn begin(&self, admitted_ns: i64, first_token_ns: i64) {
        self.turn_ns.set((admitted_ns, first_token_ns));
    }

    /// The cluster has made the last token, at `end_ns`.
    pub(super) fn finish(&self, end_ns: i64) {
        self.done.set(true);
        self.end_ns.set(end_ns);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }

    /// Tokens made so far.
    pub(super) fn made(&self) -> u32 {
        self.made.get()
    }

    pub(super) fn is_done(&self) -> bool {
        self.done.get()
    }

    /// When the last token was made.
    pub(super) fn end_ns(&self) -> i64 {
        self.end_ns.get()
    }

    /// What vLLM says of a request that arrived at `arrived_ns` and has ended.
    pub(super) fn metrics(&self, arrived_ns: i64) -> Value {
        let ((admitted_ns, first_ns), end_ns, tokens) = (self.turn_ns.get(), self.end_ns.get(), self.made.get());
        let ms = |from_ns: i64, to_ns: i64| (to_ns - from_ns) as f64 / 1e6;
        let gaps = tokens.saturating_sub(1);
        json!({
            "time_to_first_token_ms": ms(admitted_ns, first_ns),
            "generation_time_ms": ms(first_ns, end_ns),
            "queue_time_ms": ms(arrived_ns, admitted_ns),
            "mean_itl_ms": (gaps > 0).then(|| ms(first_ns, end_ns) / f64::from(gaps)),
            "tokens_per_second": f64::from(tokens) / (ms(admitted_ns, end_ns) / 1e3).max(1e-9),
        })
    }

    /// When the first token that nobody had taken yet was made; all are taken now.
    pub(super) fn take_pending_since_ns(&self) -> Option<i64> {
        let since_ns = self.pending_since_ns.replace(-1);
        (since_ns >= 0).then_some(since_ns)
    }

    /// Be woken by the next token, or by the last.
    pub(super) fn watch(&self, context: &Context<'_>) {
        self.waker.set(Some(context.waker().clone()));
    }

    /// Wait for the last token.
    pub(super) async fn finished(&self) {
        poll_fn(|context| {
            if self.is_done() {
                return Poll::Ready(());
            }
            self.watch(context);
            Poll::Pending
        })
        .await;
    }
}
