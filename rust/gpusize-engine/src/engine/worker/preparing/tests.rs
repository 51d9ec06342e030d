//! A worker without its tasks: what its pieces do to each other in an order that a test chooses.

use std::sync::mpsc::{Receiver, channel};

use tokio::runtime;
use tokio::task::LocalSet;

use super::*;
use crate::engine::context::Context;
use crate::engine::job::Job;
use crate::engine::mailbox::Assignment;
use crate::engine::messages::Handed;
use crate::engine::peers::Peers;
use crate::engine::worker_level::WorkerLevel;
use crate::outcome::Outcome;
use crate::record::Row;
use gpusize_base::draw::Draw;
use gpusize_load::stop::Reason;

/// More slots than connects that are under way at once.
const SLOTS: usize = AT_ONCE + 4;

struct Bench {
    worker: Rc<Worker>,
    events: Receiver<Event>,
}

impl Bench {
    fn new() -> Self {
        // A port that nobody listens on: connects and requests end at once.
        let target =
            serde_json::from_str(r#"{"host":"127.0.0.1","port":1,"method":"GET","path":"/"}"#).expect("a target");
        let context = Context::new(target, vec![], vec![vec![]], None).expect("a context");
        let (sender, events) = channel();
        let (commands, _) = tokio::sync::mpsc::unbounded_channel();
        Self {
            worker: Worker::new(0, Arc::new(context), Arc::new(Peers::new(&[commands])), sender).expect("a worker"),
            events,
        }
    }

    /// A level of an open loop with one connection for each slot, which has begun unless its connections are awaited.
    fn level(&self, has_begun: bool) -> (Arc<LevelShared>, Rc<WorkerLevel>) {
        let load = format!(
            r#"{{"open":{{"streams":[{{"arrivals":{{"rate":{{"phases":[{{"from":1,"to":1}}],"process":"constant"}}}}}}],"connections":{SLOTS}}}}}"#
        );
        let plan = format!(r#"{{"visit":0,"load":{load},"stop":{{"count":1000}}}}"#);
        let plan = serde_json::from_str(&plan).expect("a plan");
        let level = Arc::new(LevelShared::new(plan, 1, 1).expect("a level"));
        let mine = self.worker.part_of(&level);
        if has_begun {
            level.set_start(1);
            self.worker.levels.begin(Some(&mine));
        }
        (level, mine)
    }

    /// A request is due.
    fn request(&self, level: &Rc<WorkerLevel>, seq: u64) {
        level.admit_item(1);
        self.worker.dispatch(level, Job::of_loop(seq, 0, 1, 1), SLOTS, 1000);
    }

    fn is_ready(&self) -> bool {
        self.events.try_iter().any(|event| matches!(event, Event::Ready { .. }))
    }

    /// What a slot's task does when it looks for something to do.
    fn take_up(&self, index: usize) -> Option<Assignment> {
        let slot = self.worker.slot(index);
        let work = slot.mailbox.take().or_else(|| self.worker.queued(index));
        if work.is_none() {
            self.worker.park(&slot);
        }
        work
    }

    /// What it does when that is done.
    fn end(&self, work: Assignment) {
        match work {
            Assignment::Connect(level) => self.worker.prepared(&level, false),
            Assignment::Request(level, job) => {
                let mut row = Row::due(job.due);
                row.outcome = Outcome::Ok;
                (row.sent_ns, row.end_ns) = (1, 2);
                level.finish(&mut row, None);
            }
        }
    }
}

/// Run something where tasks may be spawned, none of which gets a turn.
fn on_a_thread_of_a_worker(act: impl FnOnce()) {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async { act() });
}

#[test]
fn a_request_on_a_new_slot_survives_the_connect_that_comes_to_it() {
    on_a_thread_of_a_worker(|| {
        let bench = Bench::new();
        let (level, mine) = bench.level(true);
        bench.worker.open_ahead(&level, 0, SLOTS, false);
        // The pacer comes first, and takes the slot whose turn to connect is next.
        bench.request(&mine, 7);
        let opened = bench.take_up(0).expect("a connect");
        bench.end(opened);
        let job = bench.worker.slot(AT_ONCE).withdraw(&mine);
        assert_eq!(job.map(|job| job.due.seq), Some(7), "the request is where the pacer put it");
    });
}

#[test]
fn what_another_worker_hands_over_waits_in_its_order_before_the_others() {
    on_a_thread_of_a_worker(|| {
        let bench = Bench::new();
        let (level, mine) = bench.level(true);
        // One for each slot, and one that waits.
        (0..=SLOTS as u64).for_each(|seq| bench.request(&mine, seq));
        let jobs = [101, 102, 103].map(|seq| Job::of_loop(seq, 0, 1, 1)).into();
        level.queues.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        bench.worker.take(Handed { level, jobs, from: 0 });
        let queued = std::iter::from_fn(|| match bench.worker.queued(0)? {
            Assignment::Request(_, job) => Some(job.due.seq),
            Assignment::Connect(_) => None,
        });
        assert_eq!(queued.collect::<Vec<_>>(), [101, 102, 103, SLOTS as u64]);
    });
}

#[test]
fn a_slow_opener_of_an_ended_level_leaves_the_next_levels_connects_alone() {
    on_a_thread_of_a_worker(|| {
        let bench = Bench::new();
        let (first, mine) = bench.level(true);
        bench.worker.open_ahead(&first, 0, SLOTS, false);
        let slow: Vec<Assignment> = (0..AT_ONCE).filter_map(|slot| bench.take_up(slot)).collect();
        mine.close(Reason::Count, 2);
        let (next, _) = bench.level(false);
        bench.worker.open_ahead(&next, 0, SLOTS, true);
        // One slot after the other: the next level's connect, and then what a slow one had begun for the first.
        for (slot, late) in slow.into_iter().enumerate() {
            let quick = bench.take_up(slot).expect("the next level's connect");
            bench.end(quick);
            bench.end(late);
        }
        (AT_ONCE..SLOTS).filter_map(|slot| bench.take_up(slot)).for_each(|work| bench.end(work));
        assert!(bench.is_ready(), "the next level waits for a connect that nobody does any more");
    });
}

#[test]
fn in_whatever_order_requests_and_connects_come_each_has_its_end() {
    on_a_thread_of_a_worker(|| {
        for case in 0..60 {
            let draw = Draw::new(16, case, 0);
            let bench = Bench::new();
            let (level, mine) = bench.level(true);
            bench.worker.open_ahead(&level, 0, SLOTS, false);
            let mut doing: Vec<Option<Assignment>> = (0..SLOTS).map(|_| None).collect();
            let mut requests = 0;
            let mut awaited = None;
            for step in 0.. {
                let (what, slot) = (draw.u64(2 * step) % 5, draw.u64(2 * step + 1) as usize % SLOTS);
                match what {
                    0 if requests < 150 && awaited.is_none() => {
                        bench.request(&mine, requests);
                        requests += 1;
                    }
                    1 if requests >= 100 && awaited.is_none() => {
                        mine.close(Reason::Count, 2);
                        let (next, _) = bench.level(false);
                        bench.worker.open_ahead(&next, 0, SLOTS, true);
                        awaited = Some(next);
                    }
                    2 | 3 if doing[slot].is_none() && slot < bench.worker.slots.len() => {
                        doing[slot] = bench.take_up(slot);
                    }
                    4 => doing[slot].take().into_iter().for_each(|work| bench.end(work)),
                    _ => {}
                }
                if awaited.is_some() && mine.is_drained() && bench.is_ready() {
                    break;
                }
                assert!(step < 100_000, "case {case}: a request or a connect is lost");
            }
            assert_eq!(level.sum(|share| &share.outcomes[Outcome::Ok as usize]), requests, "case {case}");
        }
    });
}
