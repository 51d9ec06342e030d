//! What follows a request: the next one of its user, or of its conversation.

use super::job::Talk;
use super::slot::Slot;
use super::worker_level::WorkerLevel;
use crate::outcome::Outcome;
use crate::record::Row;
use crate::spec::LoadSpec;

/// After a request: when its slot or its conversation goes on. Where pauses are always the same and there are no
/// conversations, the slot knows by itself.
pub fn go_on(slot: &Slot, level: &WorkerLevel, talk: Option<Box<Talk>>, row: &Row) {
    let shared = &level.shared;
    let is_closed_loop = matches!(shared.plan.load, LoadSpec::Closed(_));
    let Some(talk) = talk else {
        if is_closed_loop {
            let due_ns = row.end_ns.saturating_add(shared.pause_ns(0, row.seq, row.row));
            slot.ready_ns.set(slot.ready_ns.get().max(due_ns));
        }
        return;
    };
    let next = next_turn(level, talk, row);
    match next {
        Some((talk, due_ns)) if is_closed_loop => {
            slot.ready_ns.set(slot.ready_ns.get().max(due_ns));
            *slot.talk.borrow_mut() = Some(talk);
        }
        Some((talk, due_ns)) => {
            let seq = talk.seq(&shared.sessions);
            level.following.push(due_ns, seq, talk);
        }
        None => {
            level.following.end();
            if is_closed_loop {
                let pause_ns = shared.pause_between_ns(row.seq);
                slot.ready_ns.set(slot.ready_ns.get().max(row.end_ns.saturating_add(pause_ns)));
                level.close_if_used_up();
            }
        }
    }
}

/// The next turn of a conversation and when it is due; none when that was the last, or failed, or the level ends before.
fn next_turn(level: &WorkerLevel, mut talk: Box<Talk>, row: &Row) -> Option<(Box<Talk>, i64)> {
    let shared = &level.shared;
    talk.go_on();
    let next = talk.next_row(&shared.sessions).filter(|_| row.outcome == Outcome::Ok && !level.is_closed())?;
    let pause_ns = shared.pause_ns(talk.stream(), talk.seq(&shared.sessions), next);
    let due_ns = row.end_ns.saturating_add(pause_ns);
    (due_ns < shared.ends_ns().unwrap_or(i64::MAX)).then_some((talk, due_ns))
}
