//! Workers without their tasks: what one of them tells the others, command by command.

use tokio::runtime;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::LocalSet;

use super::*;
use crate::engine::context::Context;
use crate::engine::peers::Peers;

const SLOTS: usize = 4;

/// Three workers, of which the first does something, and a level that is current on all of them.
struct Bench {
    workers: Vec<Rc<Worker>>,
    inboxes: Vec<UnboundedReceiver<Command>>,
    peers: Arc<Peers>,
    level: Arc<LevelShared>,
    mine: Rc<WorkerLevel>,
}

impl Bench {
    fn new() -> Self {
        let target =
            serde_json::from_str(r#"{"host":"127.0.0.1","port":1,"method":"GET","path":"/"}"#).expect("a target");
        let context = Arc::new(Context::new(target, vec![], vec![vec![]], None).expect("a context"));
        let (commands, inboxes): (Vec<_>, Vec<_>) = (0..3).map(|_| unbounded_channel()).unzip();
        let peers = Arc::new(Peers::new(&commands));
        // The coordinator's ends, which a worker does not keep open.
        std::mem::forget(commands);
        let events = std::sync::mpsc::channel().0;
        let workers: Vec<_> = (0..3)
            .map(|index| Worker::new(index, context.clone(), peers.clone(), events.clone()).expect("a worker"))
            .collect();
        let level = level();
        let parts: Vec<_> = workers.iter().map(|worker| worker.part_of(&level)).collect();
        for (worker, part) in workers.iter().zip(&parts) {
            worker.levels.begin(Some(part));
            worker.levels.take_over(Some(part), 1);
            worker.slots.free_all(SLOTS);
        }
        let mine = parts[0].clone();
        Self { workers, inboxes, peers, level, mine }
    }

    fn first(&self) -> &Rc<Worker> {
        &self.workers[0]
    }

    /// Requests that are due and wait on the first worker.
    fn waiting(&self, seqs: impl IntoIterator<Item = u64>) {
        for seq in seqs {
            self.mine.admit_item(1);
            self.first().enqueue(&self.mine, job(seq), false);
        }
    }

    /// A slot of the first worker has nothing to do.
    fn idle_slot(&self) {
        let slot = self.first().slots.get(0, |_| ());
        self.first().slots.park(&slot);
    }

    fn told(&mut self, worker: usize) -> Vec<Command> {
        std::iter::from_fn(|| self.inboxes[worker].try_recv().ok()).collect()
    }

    /// The numbers of the requests that a worker was told to take.
    fn handed(&mut self, worker: usize) -> Vec<Vec<u64>> {
        let taken = |command| match command {
            Command::Take(handed) => handed.jobs.iter().map(|job| job.due.seq).collect(),
            other => panic!("not {other:?}"),
        };
        self.told(worker).into_iter().map(taken).collect()
    }

    fn left(&self) -> Vec<u64> {
        std::iter::from_fn(|| self.first().backlog.pop_single(&self.mine)).map(|job| job.due.seq).collect()
    }
}

fn level() -> Arc<LevelShared> {
    let load = r#"{"open":{"streams":[{"arrivals":{"rate":{"phases":[{"from":1,"to":1}],"process":"constant"}}}],"connections":12}}"#;
    let plan = format!(r#"{{"visit":0,"load":{load},"stop":{{"count":1000}}}}"#);
    let level = LevelShared::new(serde_json::from_str(&plan).expect("a plan"), 1, 3).expect("a level");
    level.set_start(1);
    Arc::new(level)
}

fn job(seq: u64) -> Job {
    Job::of_loop(seq, 0, 1, 1)
}

fn on_a_thread_of_workers(act: impl FnOnce(Bench)) {
    let runtime = runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async { act(Bench::new()) });
}

#[test]
fn what_has_waited_longest_goes_to_the_worker_with_most_free_slots() {
    on_a_thread_of_workers(|mut bench| {
        bench.waiting([1, 2]);
        bench.peers.set_idle(1, 1);
        bench.peers.set_idle(2, 3);
        bench.mine.admit_item(1);
        assert!(bench.first().pass_on(&bench.mine, job(3)).is_none());
        assert_eq!(bench.handed(2), [vec![1]]);
        assert_eq!((bench.told(1).len(), bench.left()), (0, vec![2, 3]));
    });
}

#[test]
fn who_lets_a_request_wait_looks_again_for_a_slot_that_became_free() {
    on_a_thread_of_workers(|mut bench| {
        bench.peers.set_idle(1, 1);
        bench.waiting([1, 2]);
        // The slot counts as taken by the first one.
        assert_eq!((bench.handed(1), bench.left()), (vec![vec![1]], vec![2]));
    });
}

#[test]
fn the_worker_with_the_longest_queue_is_asked_once_until_it_has_answered() {
    on_a_thread_of_workers(|mut bench| {
        bench.level.queues.store(2, Relaxed);
        bench.idle_slot();
        bench.first().ask_if_idle(&bench.mine);
        assert_eq!((bench.told(1).len(), bench.told(2).len()), (0, 0), "nothing waits anywhere");
        bench.level.shares[1].waiting.store(1, Relaxed);
        bench.level.shares[2].waiting.store(3, Relaxed);
        for _ in 0..2 {
            bench.first().ask_if_idle(&bench.mine);
        }
        let told = bench.told(2);
        assert!(matches!(told[..], [Command::Give { room: 1, to: 0, .. }]), "{told:?}");
        assert!(bench.told(1).is_empty());
        bench.first().take(Handed { level: bench.level.clone(), jobs: vec![], from: 2 });
        bench.first().ask_if_idle(&bench.mine);
        assert_eq!(bench.told(2).len(), 1);
    });
}

#[test]
fn half_of_what_waits_is_given_and_no_more_than_there_is_room_for() {
    on_a_thread_of_workers(|mut bench| {
        bench.waiting(1..=5);
        bench.first().give(&bench.level, 10, 1);
        assert_eq!(bench.handed(1), [vec![1, 2, 3]]);
        bench.waiting(6..=9);
        bench.first().give(&bench.level, 2, 2);
        assert_eq!((bench.handed(2), bench.left()), (vec![vec![4, 5]], vec![6, 7, 8, 9]));
        // Whoever asks waits for an answer, and asks nobody else until it has come.
        bench.first().give(&level(), 2, 1);
        assert_eq!(bench.handed(1), [Vec::<u64>::new()]);
    });
}

#[test]
fn who_has_taken_a_request_and_has_another_slot_asks_again() {
    on_a_thread_of_workers(|mut bench| {
        let slots: Vec<_> = (0..2).map(|index| bench.first().slots.get(index, |_| ())).collect();
        for slot in &slots {
            assert!(bench.first().slots.park(slot));
        }
        bench.level.queues.store(2, Relaxed);
        bench.level.shares[1].waiting.store(3, Relaxed);
        bench.first().take(Handed { level: bench.level.clone(), jobs: vec![job(1)], from: 1 });
        let told = bench.told(1);
        assert!(matches!(told[..], [Command::Taken { n: 1, .. }, Command::Give { room: 1, to: 0, .. }]), "{told:?}");
    });
}

#[test]
fn what_comes_for_a_level_that_is_over_here_goes_back() {
    on_a_thread_of_workers(|mut bench| {
        bench.first().take(Handed { level: level(), jobs: vec![job(7)], from: 2 });
        match &bench.told(2)[..] {
            [Command::TakeBack { jobs, .. }] => assert_eq!(jobs[0].due.seq, 7),
            other => panic!("not {other:?}"),
        }
        // What comes back counted as waiting on its way, and goes to a slot.
        bench.mine.admit_item(1);
        bench.level.queues.store(1, Relaxed);
        bench.first().take_back(&bench.level, vec![job(8)]);
        assert_eq!((bench.level.queues.load(Relaxed), bench.left()), (0, vec![]));
    });
}

#[test]
fn when_the_last_has_left_a_closing_levels_queues_the_others_look() {
    on_a_thread_of_workers(|mut bench| {
        bench.waiting([1, 2]);
        bench.level.close(Reason::Count, 2);
        bench.first().left_queue(&bench.mine, 1);
        assert!(bench.told(1).is_empty(), "one still waits");
        bench.first().left_queue(&bench.mine, 1);
        for worker in [1, 2] {
            assert!(matches!(bench.told(worker)[..], [Command::Look(_)]));
        }
    });
}

#[test]
fn what_is_handed_over_after_a_stop_is_cancelled() {
    on_a_thread_of_workers(|bench| {
        bench.level.close(Reason::Stopped, 2);
        bench.idle_slot();
        bench.first().take(Handed { level: bench.level.clone(), jobs: vec![job(1)], from: 1 });
        assert_eq!(bench.level.shares[0].outcomes[Outcome::Cancelled as usize].load(Relaxed), 1);
    });
}
