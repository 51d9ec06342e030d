//! A scheduler that a test owns: virtual time, and which of the tasks that can run goes next.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use super::dice::Dice;

/// Steps that are told of a case that failed.
const TOLD: usize = 60;

/// The time at which a world begins.
pub const BEGINS_NS: i64 = 1_000_000_000;

/// Time gets so far ahead of tasks that could run, and then waits for them.
const MOST_BEHIND_NS: i64 = 30_000_000;

/// Which of the tasks that can run goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Any of them.
    Any,
    /// The one of the highest rank, which it loses now and then: some tasks come late again and again.
    Ranked,
}

/// Whether time waits for the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// It moves when no task can run, so that whatever is done takes no time.
    Exact,
    /// It may move while tasks can run, before one step in so many, as when a thread is kept from its core.
    Late(u64),
}

thread_local! {
    static HERE: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

/// The world that a test has put this thread into.
pub fn here() -> Option<Rc<World>> {
    HERE.with_borrow(Clone::clone)
}

/// See the module.
pub struct World {
    now_ns: Cell<i64>,
    tasks: RefCell<Vec<Rc<Task>>>,
    alarms: RefCell<BTreeMap<(i64, u64), Waker>>,
    set: Cell<u64>,
    /// How far time has got ahead of tasks that could run.
    behind_ns: Cell<i64>,
    dice: Dice,
    choice: Choice,
    pace: Pace,
    story: RefCell<VecDeque<String>>,
}

/// One task.
pub struct Task {
    name: String,
    future: RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>>,
    woken: Arc<Woken>,
    rank: Cell<u64>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// A wait for a time, which is forgotten when it is dropped.
struct Alarm(Rc<World>, Option<(i64, u64)>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(key) = self.1.take() {
            self.0.alarms.borrow_mut().remove(&key);
        }
    }
}

impl World {
    /// Put this thread into a world of its own, until `leave`.
    pub fn enter(dice: Dice, choice: Choice, pace: Pace) -> Rc<Self> {
        let world = Rc::new(Self {
            now_ns: Cell::new(BEGINS_NS),
            tasks: RefCell::default(),
            alarms: RefCell::default(),
            set: Cell::new(0),
            behind_ns: Cell::new(0),
            dice,
            choice,
            pace,
            story: RefCell::default(),
        });
        HERE.set(Some(world.clone()));
        world
    }

    /// Drop what is left of the tasks, and go back to the real world.
    pub fn leave(&self) {
        for task in self.tasks.take() {
            drop(task.future.take());
        }
        self.alarms.take();
        HERE.take();
    }

    pub fn now_ns(&self) -> i64 {
        self.now_ns.get()
    }

    /// A task that can run.
    pub fn spawn(&self, name: String, future: impl Future<Output = ()> + 'static) -> Rc<Task> {
        let task = Rc::new(Task {
            name,
            future: RefCell::new(Some(Box::pin(future))),
            woken: Arc::new(Woken(AtomicBool::new(true))),
            rank: Cell::new(self.dice.below(1 << 20)),
        });
        self.tasks.borrow_mut().push(task.clone());
        task
    }

    /// Wait until it is `due_ns`.
    pub async fn sleep_until(self: &Rc<Self>, due_ns: i64) {
        let mut alarm = Alarm(self.clone(), None);
        std::future::poll_fn(|cx| {
            drop(Alarm(self.clone(), alarm.1.take()));
            if self.now_ns() >= due_ns {
                return Poll::Ready(());
            }
            alarm.1 = Some(self.ring(due_ns, cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Wake somebody when it is `due_ns`.
    pub fn ring(&self, due_ns: i64, waker: Waker) -> (i64, u64) {
        let key = (due_ns, self.set.replace(self.set.get() + 1));
        self.alarms.borrow_mut().insert(key, waker);
        key
    }

    /// Let one task run, or time move, but not beyond `until_ns`; false when there is nothing to do before.
    pub fn step(&self, until_ns: i64) -> bool {
        self.tasks.borrow_mut().retain(|task| task.future.borrow().is_some());
        let ready: Vec<Rc<Task>> =
            self.tasks.borrow().iter().filter(|task| task.woken.0.load(Relaxed)).cloned().collect();
        if ready.is_empty() {
            self.behind_ns.set(0);
            return self.let_time_pass(until_ns, 0);
        }
        let before_ns = self.now_ns();
        if self.is_late()
            && self.let_time_pass(until_ns.min(before_ns + MOST_BEHIND_NS), self.dice.below(8) as i64 * 1_000_000)
        {
            self.behind_ns.set(self.behind_ns.get() + self.now_ns() - before_ns);
            return true;
        }
        let task = self.choose(&ready);
        task.woken.0.store(false, Relaxed);
        self.tell(|story| write!(story, "{} runs", task.name));
        let future = task.future.take();
        if let Some(mut future) = future
            && future.as_mut().poll(&mut Context::from_waker(&Waker::from(task.woken.clone()))).is_pending()
        {
            *task.future.borrow_mut() = Some(future);
        }
        true
    }

    /// Whether no task can run.
    pub fn is_over(&self) -> bool {
        self.tasks.borrow().iter().all(|task| task.future.borrow().is_none() || !task.woken.0.load(Relaxed))
    }

    fn choose(&self, ready: &[Rc<Task>]) -> Rc<Task> {
        let place = match self.choice {
            Choice::Any => self.dice.below(ready.len() as u64) as usize,
            Choice::Ranked => (0..ready.len()).max_by_key(|k| ready[*k].rank.get()).unwrap_or(0),
        };
        let task = ready[place].clone();
        if self.dice.below(8) == 0 {
            task.rank.set(self.dice.below(1 << 20));
        }
        task
    }

    /// Whether time moves although there is something to do; it does not get far.
    fn is_late(&self) -> bool {
        let Pace::Late(one_in) = self.pace else { return false };
        self.behind_ns.get() < MOST_BEHIND_NS && self.dice.below(one_in) == 0
    }

    /// To the next alarm, and so much beyond it.
    fn let_time_pass(&self, until_ns: i64, beyond_ns: i64) -> bool {
        let Some(next_ns) = self.alarms.borrow().keys().next().map(|key| key.0) else {
            return self.move_to(until_ns);
        };
        self.move_to(next_ns.saturating_add(beyond_ns).min(until_ns))
    }

    fn move_to(&self, ns: i64) -> bool {
        if ns == i64::MAX || ns < self.now_ns.get() {
            return false;
        }
        let moves = ns > self.now_ns.get();
        self.now_ns.set(ns);
        let later = self.alarms.borrow_mut().split_off(&(ns + 1, 0));
        let due = self.alarms.replace(later);
        if moves {
            self.tell(|story| write!(story, "it is {} us later", (ns - BEGINS_NS) / 1000));
        }
        let rings = !due.is_empty();
        due.into_values().for_each(Waker::wake);
        moves || rings
    }

    /// Note what happens, for those who look into a case that failed.
    pub fn tell(&self, what: impl FnOnce(&mut String) -> std::fmt::Result) {
        let mut story = self.story.borrow_mut();
        let mut line = if story.len() < TOLD { String::new() } else { story.pop_front().unwrap_or_default() };
        line.clear();
        let _ = what(&mut line);
        story.push_back(line);
    }

    /// The last of what happened.
    pub fn story(&self) -> String {
        self.story.borrow().iter().fold(String::new(), |all, line| all + "\n    " + line)
    }
}

impl Task {
    /// End it where it waits.
    pub fn abort(&self) {
        // A task that ends itself is being polled, and goes on to its next wait.
        drop(self.future.take());
    }
}
