//! A request on its way to a connection, and the conversation that it may be a turn of.

use crate::record::Due;
use gpusize_load::schedule::{Item, Sessions};

/// A request on its way to a connection.
#[derive(Debug)]
pub struct Job {
    pub due: Due,
    /// What most requests have nothing of: they are moved several times on their way.
    more: Option<Box<More>>,
}

/// What is special about a request.
#[derive(Debug)]
struct More {
    /// By which addresses take turns.
    number: u64,
    /// The address, where it is settled.
    target: Option<u16>,
    priority: i32,
    /// The conversation that it is a turn of.
    talk: Option<Box<Talk>>,
}

/// A conversation under way.
#[derive(Debug)]
pub struct Talk {
    /// Its number within its stream.
    number: u64,
    /// Its number over all streams.
    index: u64,
    stream: u16,
    priority: i32,
    /// A row of it.
    row: u32,
    /// The turn that is under way, or comes next.
    turn: u64,
    /// Where its first turn went.
    pub target: Option<u16>,
    /// Contents of the answers so far, where a later request repeats them.
    pub answers: Vec<Vec<u8>>,
}

impl Job {
    /// A request of a closed loop.
    pub fn of_loop(seq: u64, row: u32, due_ns: i64, fired_ns: i64) -> Self {
        let due = Due { seq, stream: 0, row, due_ns, fired_ns };
        Self { due, more: None }
    }

    /// A request of a schedule.
    pub fn of_item(item: Item, due_ns: i64, fired_ns: i64) -> Self {
        let due = Due { seq: item.seq, stream: item.stream, row: item.row, due_ns, fired_ns };
        let is_plain = item.index == item.seq && item.target.is_none() && item.priority == 0;
        let more = || More { number: item.index, target: item.target, priority: item.priority, talk: None };
        Self { due, more: (!is_plain).then(|| Box::new(more())) }
    }

    /// The next turn of a conversation; none when all have been.
    pub fn of_talk(talk: Box<Talk>, sessions: &Sessions, due_ns: i64, fired_ns: i64) -> Option<Self> {
        let row = talk.next_row(sessions)?;
        let due = Due { seq: talk.seq(sessions), stream: talk.stream, row, due_ns, fired_ns };
        let more = More { number: talk.index, target: talk.target, priority: talk.priority, talk: Some(talk) };
        Some(Self { due, more: Some(Box::new(more)) })
    }

    /// Whether nothing is special about it.
    pub fn is_plain(&self) -> bool {
        self.more.is_none()
    }

    /// By which addresses take turns.
    pub fn number(&self) -> u64 {
        self.more.as_ref().map_or(self.due.seq, |more| more.number)
    }

    /// The address, where it is settled.
    pub fn target(&self) -> Option<u16> {
        self.more.as_ref().and_then(|more| more.target)
    }

    /// The higher goes first among those that wait for a connection.
    pub fn priority(&self) -> i32 {
        self.more.as_ref().map_or(0, |more| more.priority)
    }

    /// The conversation that it is a turn of.
    pub fn talk(&mut self) -> Option<&mut Talk> {
        self.more.as_mut().and_then(|more| more.talk.as_deref_mut())
    }

    /// Whether it is a turn of a conversation.
    pub fn is_turn(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.talk.is_some())
    }

    /// The conversation, when the request is over.
    pub fn into_talk(self) -> Option<Box<Talk>> {
        self.more.and_then(|more| more.talk)
    }
}

impl Talk {
    /// A conversation that begins with this arrival.
    pub fn of_item(item: &Item) -> Self {
        Self {
            number: item.seq,
            index: item.index,
            stream: item.stream,
            priority: item.priority,
            row: item.row,
            turn: 0,
            target: item.target,
            answers: Vec::new(),
        }
    }

    /// Conversation `number` of a closed loop.
    pub fn of_loop(number: u64, row: u32) -> Self {
        Self { number, index: number, stream: 0, priority: 0, row, turn: 0, target: None, answers: Vec::new() }
    }

    /// A turn is over.
    pub fn go_on(&mut self) {
        self.turn += 1;
    }

    /// The row of the turn that comes next.
    pub fn next_row(&self, sessions: &Sessions) -> Option<u32> {
        sessions.with_row(self.row).get(usize::try_from(self.turn).ok()?).copied()
    }

    /// The number of the turn that comes next, within its stream.
    pub fn seq(&self, sessions: &Sessions) -> u64 {
        self.number * sessions.most_turns() as u64 + self.turn
    }

    pub fn stream(&self) -> u16 {
        self.stream
    }
}
