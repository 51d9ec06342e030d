//! What must hold of every case: no request lost, doubled or overtaken, every level ended, counts in balance.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};

use super::case::Ended;
use super::scenario::MOST_TURNS;
use crate::engine::level::LevelShared;
use crate::engine::progress::LevelOutcome;
use crate::outcome::Outcome;
use crate::spec::LevelPlan;
use gpusize_load::schedule::Schedule;
use gpusize_load::spec::{LoadSpec, Start, Unit};

/// One record.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub stream: u16,
    pub seq: u64,
    pub row: u32,
    pub host: u16,
    pub worker: u16,
    conn: u32,
    pub due_ns: i64,
    pub fired_ns: i64,
    pub sent_ns: Option<i64>,
    pub end_ns: i64,
    pub outcome: u8,
}

impl Request {
    pub fn read(rows: &[RecordBatch]) -> Vec<Self> {
        let mut all = Vec::new();
        for batch in rows {
            let at = |name: &str| batch.column_by_name(name).expect("a column");
            let (due, fired) = (at("due_ns").as_primitive::<Int64Type>(), at("fired_ns").as_primitive::<Int64Type>());
            let (sent, end) = (at("sent_ns").as_primitive::<Int64Type>(), at("end_ns").as_primitive::<Int64Type>());
            for k in 0..batch.num_rows() {
                all.push(Self {
                    stream: at("stream").as_primitive::<UInt16Type>().value(k),
                    seq: at("seq").as_primitive::<UInt64Type>().value(k),
                    row: at("row").as_primitive::<UInt32Type>().value(k),
                    host: at("host").as_primitive::<UInt16Type>().value(k),
                    worker: at("worker").as_primitive::<UInt16Type>().value(k),
                    conn: at("conn").as_primitive::<UInt32Type>().value(k),
                    due_ns: due.value(k),
                    fired_ns: fired.value(k),
                    sent_ns: sent.is_valid(k).then(|| sent.value(k)),
                    end_ns: end.value(k),
                    outcome: at("outcome").as_primitive::<UInt8Type>().value(k),
                });
            }
        }
        all
    }

    /// When a connection carried it.
    fn carried(&self) -> Option<(i64, i64)> {
        Some((self.sent_ns?, self.end_ns))
    }
}

/// Say what is wrong, where something is.
macro_rules! hold {
    ($holds:expr, $($what:tt)*) => {
        if !$holds {
            return Err(format!($($what)*));
        }
    };
}

/// Whether all that must hold does.
pub fn check(case: &Ended) -> Result<(), String> {
    let all: Vec<Vec<Request>> = case.levels.iter().map(|(_, rows)| Request::read(rows)).collect();
    for ((level, (outcome, _)), requests) in case.shared.iter().zip(&case.levels).zip(&all) {
        let plan = &level.plan;
        let about = |what: String| format!("level {}: {what}\n  {plan:?}\n  {outcome:?}", plan.visit);
        ended(level, outcome).map_err(about)?;
        began_as_told(case, plan, outcome, requests).map_err(about)?;
        balanced(level, outcome, requests).map_err(about)?;
        sent_once(case, plan, outcome, requests).map_err(about)?;
        match &plan.load {
            LoadSpec::Open(_) => whole_strides(case, plan, outcome, requests).map_err(about)?,
            LoadSpec::Closed(_) => whole_count(case, plan, outcome, requests).map_err(about)?,
        }
        if unit(plan) == Unit::Session {
            turns_in_order(requests).map_err(about)?;
        }
        if case.scenario.is_orderly() && case.scenario.workers == 1 {
            not_overtaken(plan, requests).map_err(about)?;
        }
    }
    one_at_a_time(&all)?;
    follow_on_the_nanosecond(case)
}

fn unit(plan: &LevelPlan) -> Unit {
    match &plan.load {
        LoadSpec::Open(open) => open.unit,
        LoadSpec::Closed(closed) => closed.unit,
    }
}

fn ended(level: &LevelShared, outcome: &LevelOutcome) -> Result<(), String> {
    hold!(outcome.write_error.is_none(), "it did not end by itself: {:?}", outcome.write_error);
    let reasons = ["count", "duration", "errors", "stopped", "cancelled"];
    hold!(reasons.contains(&outcome.stop_reason), "it ended as {}", outcome.stop_reason);
    let queues = level.queues.load(std::sync::atomic::Ordering::Relaxed);
    hold!(queues == 0, "{queues} queues are left");
    let waiting = level.sum(|share| &share.waiting);
    hold!(waiting == 0, "{waiting} requests still wait");
    Ok(())
}

/// A level that is held begins at the time that was told it in time, and at no other.
fn began_as_told(case: &Ended, plan: &LevelPlan, outcome: &LevelOutcome, requests: &[Request]) -> Result<(), String> {
    let early = requests.iter().find(|r| r.due_ns < outcome.start_ns);
    hold!(early.is_none(), "{early:?} was due before the start at {}", outcome.start_ns);
    if !plan.held {
        let asked_ns = plan.start_ns.filter(|_| outcome.start_ns > 0);
        hold!(asked_ns.is_none_or(|ns| outcome.start_ns >= ns), "it began before {asked_ns:?}");
        return Ok(());
    }
    let told = case.told.get(&plan.visit).map_or(&[][..], Vec::as_slice);
    let taken: Vec<i64> = told.iter().filter(|told| told.2).map(|told| told.1).collect();
    let began: Vec<i64> = Some(outcome.start_ns).filter(|ns| *ns > 0).into_iter().collect();
    hold!(began == taken, "it began at {began:?}, and was told {told:?}");
    let near = told.iter().find(|(lead_ns, _, is_taken)| *lead_ns < 2_000_000 && *is_taken);
    hold!(near.is_none(), "a start that was too late was taken: {near:?}");
    Ok(())
}

/// No request lost or doubled: each that was due has one outcome and one record.
fn balanced(level: &LevelShared, outcome: &LevelOutcome, requests: &[Request]) -> Result<(), String> {
    let (outcomes, rows) = (outcome.outcomes.values().sum::<u64>(), requests.len() as u64);
    hold!(outcomes == outcome.due, "{} were due, {outcomes} have an outcome", outcome.due);
    hold!(rows == outcome.due, "{} were due, {rows} have a record", outcome.due);
    let numbers: BTreeSet<_> = requests.iter().map(|r| (r.stream, r.seq)).collect();
    hold!(numbers.len() == requests.len(), "a number came twice: {requests:?}");
    let sent = requests.iter().filter(|r| r.sent_ns.is_some()).count() as u64;
    hold!(sent == outcome.sent, "{} were sent, {sent} by their records", outcome.sent);
    let connections = level.sum(|share| &share.connects);
    hold!(connections >= level.sum(|share| &share.reconnects), "more reconnects than connects");
    Ok(())
}

/// By the server's own log: nothing came twice that we had not asked twice, nothing came that was not sent.
fn sent_once(case: &Ended, plan: &LevelPlan, outcome: &LevelOutcome, requests: &[Request]) -> Result<(), String> {
    let mut came = BTreeMap::<(u16, u64), u64>::new();
    for (_, stream, seq) in case.server.log.borrow().iter().filter(|(visit, ..)| *visit == plan.visit) {
        *came.entry((*stream, *seq)).or_default() += 1;
    }
    let again: u64 = came.values().map(|n| n - 1).sum();
    hold!(again <= outcome.asked_again, "{again} came again, of which we know {}", outcome.asked_again);
    let ok: BTreeSet<_> = requests.iter().filter(|r| r.sent_ns.is_some()).map(|r| (r.stream, r.seq)).collect();
    let stranger = came.keys().find(|key| !ok.contains(key));
    hold!(stranger.is_none(), "the server got {stranger:?}, which was not sent");
    let is_ok = |r: &&Request| r.outcome == Outcome::Ok as u8;
    let unheard = requests.iter().filter(is_ok).find(|r| !came.contains_key(&(r.stream, r.seq)));
    hold!(unheard.is_none(), "the server never got {unheard:?}, which was answered");
    Ok(())
}

/// Each worker has let all of its stride go, or what was due before it was stopped, each at its time.
fn whole_strides(case: &Ended, plan: &LevelPlan, outcome: &LevelOutcome, requests: &[Request]) -> Result<(), String> {
    let LoadSpec::Open(open) = &plan.load else { return Ok(()) };
    let (count, until_ns) = (plan.stop.count.unwrap_or(u64::MAX), due_until_ns(plan, outcome.start_ns));
    let factor = if open.unit == Unit::Session { MOST_TURNS } else { 1 };
    let found: BTreeMap<_, _> = requests.iter().map(|r| ((r.stream, r.seq), r)).collect();
    let (first, all) = plan.partition.map_or((0, case.scenario.workers), |p| (p.first as usize, p.stride as usize));
    for worker in first..first + case.scenario.workers {
        let planned = case.scenario.planned.clone();
        let items =
            Schedule::by_unit(open, plan.seed, plan.order, &case.sessions, planned).map_err(|e| e.to_string())?;
        let stride = items
            .take_while(|i| i.index < count && outcome.start_ns + i.offset_ns < until_ns)
            .skip(worker)
            .step_by(all);
        let mut is_over = false;
        // A schedule without an end: nothing is found of what comes after the level was stopped.
        for item in stride.take(requests.len() + 2) {
            let request = found.get(&(item.stream, item.seq * factor));
            hold!(request.is_none() || !is_over, "worker {worker} let {item:?} go, and not all before it");
            is_over |= request.is_none();
            let is_whole = matches!(outcome.stop_reason, "count" | "duration");
            hold!(!is_over || !is_whole, "worker {worker} never let {item:?} go");
            let Some(request) = request else { continue };
            let due_ns = outcome.start_ns + item.offset_ns;
            hold!(request.due_ns == due_ns, "{request:?} was due at {due_ns}");
            let is_exact = case.scenario.is_told_in_time();
            hold!(request.fired_ns >= due_ns, "{request:?} came before its time");
            hold!(!is_exact || request.fired_ns == due_ns, "{request:?} came late, and nothing had held it up");
        }
    }
    Ok(())
}

/// By its duration, unless its end is set much earlier: then it was late, and is cut.
fn due_until_ns(plan: &LevelPlan, start_ns: i64) -> i64 {
    let Some(duration_ns) = plan.stop.duration_ns else { return i64::MAX };
    let cut_ns = plan.close_at_ns.filter(|ns| ns - start_ns < duration_ns / 1000 * 999);
    cut_ns.unwrap_or(start_ns + duration_ns)
}

/// A closed loop that says that it ended by its count has begun so many, whoever left; none has begun more.
fn whole_count(case: &Ended, plan: &LevelPlan, outcome: &LevelOutcome, requests: &[Request]) -> Result<(), String> {
    let Some(count) = plan.stop.count.map(|count| share_of_count(case, plan, count)) else { return Ok(()) };
    let is_first = |r: &&Request| unit(plan) == Unit::Request || r.seq.is_multiple_of(MOST_TURNS);
    let begun = requests.iter().filter(is_first).count() as u64;
    hold!(begun <= count, "{begun} have begun of {count}");
    hold!(outcome.stop_reason != "count" || begun == count, "it ended by its count with {begun} of {count}");
    Ok(())
}

/// How many of so many numbers are those of the workers that are here.
fn share_of_count(case: &Ended, plan: &LevelPlan, count: u64) -> u64 {
    let (Some(partition), LoadSpec::Closed(closed)) = (plan.partition, &plan.load) else { return count };
    let (first, users) = (u64::from(partition.first), u64::from(partition.stride.min(closed.most())));
    (0..count).filter(|n| (first..first + case.scenario.workers as u64).contains(&(n % users))).count() as u64
}

/// No turn is missing, and each waits for the one before.
fn turns_in_order(requests: &[Request]) -> Result<(), String> {
    let mut talks = BTreeMap::<(u16, u64), Vec<&Request>>::new();
    for request in requests {
        talks.entry((request.stream, request.seq / MOST_TURNS)).or_default().push(request);
    }
    for talk in talks.values_mut() {
        talk.sort_by_key(|r| r.seq);
        for (turn, request) in talk.iter().enumerate() {
            hold!(request.seq % MOST_TURNS == turn as u64, "a turn is missing: {talk:?}");
            hold!(turn == 0 || talk[turn - 1].end_ns <= request.due_ns, "a turn came too early: {talk:?}");
        }
    }
    Ok(())
}

/// Where nothing of the target's can make one overtake another: of one priority, what was due first went first.
fn not_overtaken(plan: &LevelPlan, requests: &[Request]) -> Result<(), String> {
    let LoadSpec::Open(open) = &plan.load else { return Ok(()) };
    let priority = |stream: u16| open.streams.iter().find(|s| s.id == stream).map(|s| s.priority);
    let mut sent: Vec<&Request> = requests.iter().filter(|r| r.sent_ns.is_some()).collect();
    sent.sort_by_key(|r| (priority(r.stream), r.due_ns));
    for pair in sent.windows(2).filter(|pair| priority(pair[0].stream) == priority(pair[1].stream)) {
        let is_overtaken = pair[0].due_ns < pair[1].due_ns && pair[0].sent_ns > pair[1].sent_ns;
        hold!(!is_overtaken, "{:?} was overtaken by {:?}", pair[0], pair[1]);
    }
    Ok(())
}

/// A connection of HTTP/1.1 carries one request at a time, whatever level it is of.
fn one_at_a_time(levels: &[Vec<Request>]) -> Result<(), String> {
    let mut carried = BTreeMap::<(u16, u32), Vec<(i64, i64)>>::new();
    for request in levels.iter().flatten() {
        carried.entry((request.worker, request.conn)).or_default().extend(request.carried());
    }
    for (conn, mut times) in carried {
        times.sort_unstable();
        let overlap = times.windows(2).find(|pair| pair[0].1 > pair[1].0);
        hold!(overlap.is_none(), "connection {conn:?} carried two requests at once: {overlap:?}");
    }
    Ok(())
}

/// A level that was there in time begins on the nanosecond at which the time of the one before was over.
fn follow_on_the_nanosecond(case: &Ended) -> Result<(), String> {
    for (k, pair) in case.levels.windows(2).enumerate() {
        let (plan, before, after) = (&case.scenario.plans[k + 1], &pair[0].0, &pair[1].0);
        let bursts = matches!(&plan.load, LoadSpec::Closed(closed) if closed.start == Start::Burst);
        let was_there = case.scenario.asked_after_ns[..=k + 1].iter().all(|ns| *ns == 0);
        let over = &case.scenario.plans[k];
        let by_clock_ns = case.moved.get(&over.visit).copied().or(over.close_at_ns);
        let after_ns = over.stop.duration_ns.map(|ns| before.start_ns + ns);
        // One that began after its end was over as it began.
        let over_ns = by_clock_ns.or(after_ns).map(|ns| ns.max(before.start_ns)).max(plan.start_ns);
        if before.stop_reason == "duration" && was_there && !bursts && !plan.held && after.start_ns > 0 {
            let began = (after.start_ns, over_ns);
            hold!(began.1 == Some(began.0), "level {} began at {began:?}, when the one before was over", after.visit);
        }
    }
    Ok(())
}
