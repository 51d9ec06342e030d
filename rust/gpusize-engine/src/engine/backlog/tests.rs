use std::sync::Arc;
use std::sync::mpsc::channel;

use super::*;
use crate::engine::level::LevelShared;

fn level() -> Rc<WorkerLevel> {
    let plan = serde_json::from_str(r#"{"visit":0,"load":{"closed":{"concurrency":1}},"stop":{"count":1}}"#);
    let level = LevelShared::new(plan.expect("a plan"), 1, 1).expect("a level");
    Rc::new(WorkerLevel::new(Arc::new(level), 0, channel().0))
}

#[test]
fn a_request_that_no_free_connection_may_take_does_not_stand_in_the_way_of_others() {
    let (few, many) = (level(), level());
    let backlog = Backlog::default();
    for seq in 0..2 {
        backlog.push(&few, Job::of_loop(seq, 0, 0, 0));
        backlog.push(&many, Job::of_loop(10 + seq, 0, 0, 0));
    }
    // A connection that only the second level has.
    let pop = |level: &Rc<WorkerLevel>| {
        let level = std::ptr::from_ref(&**level);
        backlog.pop(|other| std::ptr::eq(other, level)).map(|(_, job)| job.due.seq)
    };
    assert_eq!([pop(&many), pop(&many), pop(&many)], [Some(10), Some(11), None]);
    assert_eq!([pop(&few), pop(&few), pop(&few)], [Some(0), Some(1), None]);
    assert!(backlog.is_empty());
}
