//! The coordinator without workers: it hears what a test says.

use super::*;
use std::sync::mpsc::channel;

const PATIENCE: Patience = Patience { look: Duration::from_millis(1), opening: 3, answering: 3, ending: 3 };

fn level() -> Arc<LevelShared> {
    let plan = serde_json::from_str(r#"{"visit":0,"load":{"closed":{"concurrency":1}},"stop":{"count":1}}"#);
    Arc::new(LevelShared::new(plan.expect("a plan"), 1, 1).expect("a level"))
}

#[test]
fn without_a_worker_no_level_is_waited_for() {
    let level = level();
    let (worker, _commands) = tokio::sync::mpsc::unbounded_channel();
    let (events, inbox) = channel();
    for event in [Event::Died, Event::Queue(level.clone()), Event::Quit] {
        events.send(event).expect("the inbox is open");
    }
    Coordinator::new(vec![worker], PATIENCE).run(&inbox);
    assert_eq!(level.reason(), Some(Reason::Failed));
}

/// What a level comes to of which the coordinator hears these events, and then nothing more.
fn outcome_after(level: &Arc<LevelShared>, events: impl IntoIterator<Item = Event>) -> String {
    let (worker, _commands) = tokio::sync::mpsc::unbounded_channel();
    let (sender, inbox) = channel();
    for event in events {
        sender.send(event).expect("the inbox is open");
    }
    let coordinator = std::thread::spawn(move || Coordinator::new(vec![worker], PATIENCE).run(&inbox));
    assert!(level.wait(Duration::from_secs(60)), "the level ended");
    sender.send(Event::Quit).expect("the coordinator serves");
    coordinator.join().expect("the coordinator ends");
    assert_eq!(level.reason(), Some(Reason::Failed));
    level.written().as_ref().and_then(|w| w.error.clone()).expect("a reason")
}

#[test]
fn a_drain_in_which_nothing_moves_ends_and_names_what_it_waited_for() {
    let level = level();
    level.shares[0].due.store(3, std::sync::atomic::Ordering::Relaxed);
    let closed = Event::Closed { level: level.clone(), reason: Reason::Count };
    let why = outcome_after(&level, [Event::Queue(level.clone()), Event::Ready { worker: 0 }, closed]);
    assert!(why.contains("3 of 3 requests") && why.contains("worker 0"), "{why}");
}

#[test]
fn a_level_whose_connections_are_never_said_to_be_open_ends() {
    let level = level();
    let why = outcome_after(&level, [Event::Queue(level.clone())]);
    assert!(why.contains("connections") && why.contains("worker 0"), "{why}");
}

#[test]
fn stop_and_close_of_a_level_that_lost_a_request_come_back() {
    let level = level();
    let stop = Event::Stop { level: level.clone(), reason: Reason::Stopped, cancel_ns: 0 };
    let closed = Event::Closed { level: level.clone(), reason: Reason::Stopped };
    let why = outcome_after(&level, [Event::Queue(level.clone()), Event::Ready { worker: 0 }, stop, closed]);
    assert!(why.contains("nothing moved"), "{why}");
}
