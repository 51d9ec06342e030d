//! What a level tells while it runs and when it is over.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use serde::Serialize;

use super::errors::ErrorKind;
use super::level::{LevelShared, Seen, lock};
use super::names::AddressUse;
use super::outside::now_ns;
use crate::outcome::Outcome;
use crate::record::feed::Recent;
use crate::record::histogram::Bucket;
use crate::record::writer::Written;
use gpusize_load::stop::Reason;

/// A level while it runs.
#[derive(Clone, Debug, Serialize)]
pub struct Progress {
    /// `queued`, `held`, `running`, `draining` or `done`.
    pub state: &'static str,
    /// When the level begins or began; 0 as long as that is not settled.
    pub start_ns: i64,
    /// Since the start; stands still once the level is done.
    pub elapsed_ns: i64,
    /// Requests that were due.
    pub due: u64,
    /// Requests whose first byte was written.
    pub sent: u64,
    /// Requests with an outcome.
    pub done: u64,
    /// Of these, ok.
    pub ok: u64,
    /// The others by outcome.
    pub failed: BTreeMap<&'static str, u64>,
    /// Due and not done.
    pub in_flight: u64,
    /// Due and waiting for a connection.
    pub waiting: u64,
    /// Never sent, because too many waited.
    pub shed: u64,
    /// Median runtime so far.
    pub p50_ns: Option<i64>,
    /// 95th percentile of the runtime so far.
    pub p95_ns: Option<i64>,
    /// 99th percentile of the lateness so far.
    pub lateness_p99_ns: Option<i64>,
    /// The last full second.
    pub recent: Recent,
    /// Completions per second over the last second.
    pub rate: f64,
    /// Requests that became due per second over the last second.
    pub offered_rate: f64,
    /// First writes per second over the last second.
    pub sent_rate: f64,
    /// CPU of the workers over the elapsed time, in cores.
    pub cpu_share: f64,
    /// Connections opened.
    pub connects: u64,
    /// Connections that are open.
    pub connections: u64,
    /// Time after which the level asks for no more, if it has one.
    pub close_after_ns: Option<i64>,
    /// Time since the start; stands still once no new request is due.
    pub schedule_ns: i64,
}

/// A level that is over.
#[derive(Clone, Debug, Serialize)]
pub struct LevelOutcome {
    /// The visit's number.
    pub visit: u32,
    /// Why no further request was sent.
    pub stop_reason: &'static str,
    /// When the level began; 0 when it never did.
    pub start_ns: i64,
    /// When the last request could have been due.
    pub close_ns: i64,
    /// When the last request ended.
    pub end_ns: i64,
    /// Requests that were due.
    pub due: u64,
    /// Requests whose first byte was written.
    pub sent: u64,
    /// Of these, sent a second time: the server had done nothing about them.
    pub asked_again: u64,
    /// Records by outcome.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Records that are kept.
    pub rows: u64,
    /// One of so many requests is kept as a record.
    pub sampled: u64,
    /// Connections opened.
    pub connects: u64,
    /// Of these, in place of one that had been closed.
    pub reconnects: u64,
    /// Connections by address.
    pub addresses: Vec<AddressUse>,
    /// CPU time of workers and writer.
    pub cpu_ns: i64,
    /// Number of workers.
    pub workers: usize,
    /// Of these, how many took part.
    pub members: usize,
    /// How long the workers that took part stood still, on average.
    pub stalled_ns: i64,
    /// The longest that one of them did.
    pub longest_stall_ns: i64,
    /// Mean time from write to end of the requests that ended ok.
    pub residence_ns: Option<i64>,
    /// These times added up.
    pub residence_sum_ns: u64,
    /// File names of the Parquet parts.
    pub parts: Vec<String>,
    /// Calls inside the requests.
    pub spans: u64,
    /// File names of their Parquet parts.
    pub span_parts: Vec<String>,
    /// File names of the parts of the table of seconds.
    pub second_parts: Vec<String>,
    /// File names of the parts of the table of histograms.
    pub histogram_parts: Vec<String>,
    /// Why rows are missing on disk.
    pub write_error: Option<String>,
    /// The distinct failures.
    pub errors: Vec<ErrorKind>,
    /// Counts of times per metric.
    pub histograms: BTreeMap<&'static str, Vec<Bucket>>,
}

fn outcomes(level: &LevelShared) -> BTreeMap<&'static str, u64> {
    let count = |o: Outcome| level.sum(|s| &s.outcomes[o as usize]);
    Outcome::ALL.into_iter().map(|o| (o.name(), count(o))).filter(|(_, n)| *n > 0).collect()
}

pub fn progress(level: &LevelShared) -> Progress {
    let (start, now) = (level.start_ns(), now_ns());
    let is_closed = level.is_closed();
    let state = match (level.is_finished(), start, is_closed) {
        (true, ..) => "done",
        (false, 0, _) if level.is_prepared() => "held",
        (false, 0, _) => "queued",
        (false, _, false) => "running",
        (false, _, true) => "draining",
    };
    let last = if state == "done" { level.shares.iter().map(|s| s.last_end_ns.load(Relaxed)).max() } else { Some(now) };
    let elapsed_ns = if start == 0 { 0 } else { (last.unwrap_or(now) - start).max(0) };
    let mut failed = outcomes(level);
    let ok = failed.remove(Outcome::Ok.name()).unwrap_or(0);
    let done = ok + failed.values().sum::<u64>();
    let due = level.sum(|s| &s.due);
    let sent = level.sum(|s| &s.sent);
    let shed = failed.get(Outcome::Shed.name()).copied().unwrap_or(0);
    let ([p50_ns, p95_ns], lateness_p99_ns, recent) = level.feed.watch();
    let rates = level.rates(Seen { at_ns: now, due, sent, done });
    let closed_ns = if is_closed { level.close_ns() } else { now };
    let cpu_ns: i64 = level.shares.iter().map(|s| s.cpu_ns.load(Relaxed)).sum();
    Progress {
        state,
        start_ns: start,
        elapsed_ns,
        due,
        sent,
        done,
        ok,
        failed,
        in_flight: due.saturating_sub(done),
        waiting: level.sum(|s| &s.waiting),
        shed,
        p50_ns,
        p95_ns,
        lateness_p99_ns,
        recent,
        rate: rates.done,
        offered_rate: rates.due,
        sent_rate: rates.sent,
        cpu_share: if elapsed_ns > 0 { cpu_ns as f64 / elapsed_ns as f64 } else { 0.0 },
        connects: level.sum(|s| &s.connects),
        connections: level.sum(|s| &s.connections),
        close_after_ns: level.plan.stop.duration_ns,
        schedule_ns: if start == 0 { 0 } else { (closed_ns.min(now) - start).max(0) },
    }
}

pub fn outcome(level: &LevelShared, written: &Written) -> LevelOutcome {
    let outcomes = outcomes(level);
    let stop_reason = match level.reason() {
        Some(Reason::Count) => "count",
        Some(Reason::Duration) => "duration",
        Some(Reason::Slo) => "slo",
        Some(Reason::Saturation) => "saturation",
        Some(Reason::Errors) => "errors",
        Some(Reason::Failed) => "failed",
        Some(Reason::Stopped) if outcomes.contains_key(Outcome::Cancelled.name()) => "cancelled",
        Some(Reason::Stopped) | None => "stopped",
    };
    LevelOutcome {
        visit: level.plan.visit,
        stop_reason,
        start_ns: level.start_ns(),
        // One that was stopped between its start was told and came has not closed before it began.
        close_ns: level.close_ns().max(level.start_ns()),
        end_ns: level
            .shares
            .iter()
            .map(|s| s.last_end_ns.load(Relaxed))
            .max()
            .unwrap_or(0)
            .max(level.close_ns())
            .max(level.start_ns()),
        due: level.sum(|s| &s.due),
        sent: level.sum(|s| &s.sent),
        asked_again: level.sum(|s| &s.asked_again),
        rows: written.rows,
        sampled: level.plan.sample.max(1),
        outcomes,
        connects: level.sum(|s| &s.connects),
        reconnects: level.sum(|s| &s.reconnects),
        addresses: level.used(),
        cpu_ns: level.shares.iter().map(|s| s.cpu_ns.load(Relaxed)).sum::<i64>() + written.cpu_ns,
        workers: level.shares.len(),
        members: level.members,
        stalled_ns: level.shares.iter().map(|s| s.stalls.sum_ns()).sum::<i64>() / level.members.max(1) as i64,
        longest_stall_ns: level.shares.iter().map(|s| s.stalls.longest_ns()).max().unwrap_or(0),
        residence_ns: level.residence_ns(),
        residence_sum_ns: level.sum(|s| &s.service_sum_ns),
        parts: written.parts.clone(),
        spans: written.spans,
        span_parts: written.span_parts.clone(),
        second_parts: written.second_parts.clone(),
        histogram_parts: written.histogram_parts.clone(),
        write_error: written.error.clone(),
        errors: lock(&level.errors).kinds(),
        histograms: level.feed.totals().buckets(),
    }
}
