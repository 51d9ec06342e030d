//! One case: a session whose coordinator, workers, slots and pacers are the engine's own, in a world that the case chooses.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel, sync_channel};
use std::time::Duration;

use arrow_array::RecordBatch;
use tokio::sync::mpsc::unbounded_channel;

use super::dice::Dice;
use super::network::Server;
use super::scenario::{SESSIONS, Scenario};
use super::world::World;
use crate::engine::context::Context;
use crate::engine::coordinator::Coordinator;
use crate::engine::handle::Level;
use crate::engine::level::LevelShared;
use crate::engine::messages::Event;
use crate::engine::peers::Peers;
use crate::engine::progress::LevelOutcome;
use crate::engine::watchdog::Patience;
use crate::engine::worker::Worker;
use crate::outcome::Outcome;
use crate::spec::Mix;
use gpusize_base::error::Result;
use gpusize_load::schedule::Sessions;
use gpusize_load::stop::Reason;

/// A case that goes on for longer does not end.
const MOST_STEPS: u64 = 400_000;
const MS: i64 = 1_000_000;

/// What came out of a case.
pub struct Ended {
    pub scenario: Scenario,
    pub sessions: Arc<Sessions>,
    pub levels: Vec<(LevelOutcome, Vec<RecordBatch>)>,
    pub shared: Vec<Arc<LevelShared>>,
    /// The server's own log.
    pub server: Rc<Server>,
    /// When the last worker had recorded all its requests of a level, by visit.
    pub drained_ns: BTreeMap<u32, i64>,
    /// Starts that the user has told held levels, by visit: how far ahead, when, and whether they were taken.
    pub told: Told,
    /// Ends by the clock that were moved, by visit.
    pub moved: BTreeMap<u32, i64>,
    /// What went on until the end, for those who look into it.
    pub story: String,
}

/// See `Ended`.
pub type Told = BTreeMap<u32, Vec<(i64, i64, bool)>>;

/// The coordinator's thread.
struct Desk {
    coordinator: Coordinator,
    inbox: Receiver<Event>,
    heard: VecDeque<Event>,
    drained_ns: BTreeMap<u32, i64>,
    has_ended: bool,
    died: bool,
}

impl Desk {
    fn listen(&mut self, now_ns: i64) {
        while let Ok(event) = self.inbox.try_recv() {
            self.died |= matches!(event, Event::Died);
            if let Event::Drained { level, .. } = &event {
                self.drained_ns.insert(level.plan.visit, now_ns);
            }
            self.heard.push_back(event);
        }
    }

    /// Whether there is something to act on.
    fn is_called(&self, now_ns: i64) -> bool {
        !self.has_ended
            && (!self.heard.is_empty() || self.coordinator.wake_ns().is_some_and(|wake_ns| wake_ns <= now_ns))
    }

    fn act(&mut self, world: &World) {
        let heard = self.heard.pop_front();
        world.tell(|story| {
            std::fmt::Write::write_fmt(story, format_args!("the coordinator hears {}", name(heard.as_ref())))
        });
        self.has_ended = !self.coordinator.turn(heard);
        if self.has_ended {
            self.coordinator.dismiss();
        }
    }
}

fn name(event: Option<&Event>) -> String {
    let of = |level: &Arc<LevelShared>| level.plan.visit;
    match event {
        None => "the clock".to_owned(),
        Some(Event::Queue(level)) => format!("that level {} is asked for", of(level)),
        Some(Event::Stop { level, .. }) => format!("that level {} is to stop", of(level)),
        Some(Event::StartAt { level, .. }) => format!("when level {} is to start", of(level)),
        Some(Event::CloseAt { level, .. }) => format!("when level {} is to end", of(level)),
        Some(Event::Ready { worker }) => format!("that worker {worker} is ready"),
        Some(Event::Closed { level, reason }) => format!("that level {} is closed: {reason:?}", of(level)),
        Some(Event::Drained { level, worker }) => format!("that worker {worker} has drained level {}", of(level)),
        Some(Event::Died) => "a death".to_owned(),
        Some(Event::Quit) => "the end".to_owned(),
    }
}

/// Run one case, whose events come in the order of these dice; says what is wrong with how it went on.
pub fn run(scenario: Scenario, dice: &Dice) -> std::result::Result<Ended, String> {
    let world = World::enter(dice.clone(), scenario.choice, scenario.pace);
    let server = Server::start(scenario.temper, dice.clone());
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drive(&scenario, dice, &world)));
    let story = world.story();
    world.leave();
    Server::stop();
    let about = |what: String| format!("{what}\n  {scenario:?}\n  the end of the story:{story}");
    let (shared, context, drained_ns, (told, moved)) = match ran {
        Ok(Ok(ran)) => ran,
        Ok(Err(what)) => return Err(about(what)),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            return Err(about(format!("a panic: {}", words.unwrap_or_default())));
        }
    };
    let mut levels = Vec::new();
    for level in &shared {
        let (events, _) = channel();
        let handle = Level { shared: level.clone(), events };
        if !handle.wait(Duration::from_secs(60)) {
            return Err(about(format!("level {} has no end", level.plan.visit)));
        }
        let (Some(outcome), Some(rows)) = (handle.outcome(), handle.rows()) else {
            return Err(about("a level without an outcome".into()));
        };
        levels.push((outcome, rows));
    }
    Ok(Ended { sessions: context.sessions.clone(), scenario, levels, shared, server, drained_ns, told, moved, story })
}

type Ran = (Vec<Arc<LevelShared>>, Arc<Context>, BTreeMap<u32, i64>, (Told, BTreeMap<u32, i64>));

fn drive(scenario: &Scenario, dice: &Dice, world: &Rc<World>) -> std::result::Result<Ran, String> {
    let context = context();
    let (events, inbox) = channel();
    let (commands, receivers): (Vec<_>, Vec<_>) = (0..scenario.workers).map(|_| unbounded_channel()).unzip();
    let peers = Arc::new(Peers::new(&commands));
    for (index, commands) in receivers.into_iter().enumerate() {
        let worker = Worker::new(index, context.clone(), peers.clone(), events.clone()).expect("a worker");
        worker.open_at_once(scenario.at_once);
        worker.attend();
        world.spawn(format!("serve of worker {index}"), async move { worker.serve(commands).await });
    }
    let levels: Vec<Arc<LevelShared>> = scenario
        .plans
        .iter()
        .map(|plan| {
            let shared = LevelShared::new(plan.clone(), SESSIONS.len(), scenario.workers).expect("a level");
            Arc::new(shared.with_planned(scenario.planned.clone()).with(&context))
        })
        .collect();
    let unasked = Rc::new(Cell::new(levels.len()));
    let (told, moved) = ask(scenario, world, &levels, &events, &unasked);
    let patience = Patience { look: Duration::from_millis(100), opening: 8, answering: 12, ending: 8 };
    let coordinator = Coordinator::new(commands, patience);
    let mut desk =
        Desk { coordinator, inbox, heard: VecDeque::new(), drained_ns: BTreeMap::new(), has_ended: false, died: false };
    for _ in 0..MOST_STEPS {
        desk.listen(world.now_ns());
        let is_called = desk.is_called(world.now_ns());
        if is_called && dice.below(4) == 0 {
            desk.act(world);
        } else if !world.step(desk.coordinator.wake_ns().filter(|_| !desk.has_ended).unwrap_or(i64::MAX)) {
            if !is_called {
                return if desk.has_ended {
                    Ok((levels, context, desk.drained_ns, (told.take(), moved.take())))
                } else {
                    Err(format!(
                        "nothing goes on any more: {}",
                        levels.iter().map(|level| standing(level)).collect::<String>()
                    ))
                };
            }
            desk.act(world);
        }
        if desk.died && !desk.has_ended {
            return Err("a task has died".into());
        }
        let is_over = unasked.get() == 0 && desk.heard.is_empty() && desk.coordinator.is_at_rest();
        if is_over && levels.iter().all(|level| level.reason().is_some()) && !desk.has_ended {
            unasked.set(usize::MAX);
            let _ = events.send(Event::Quit);
        }
        if desk.has_ended && unasked.get() == usize::MAX && world.is_over() {
            return Ok((levels, context, desk.drained_ns, (told.take(), moved.take())));
        }
    }
    Err(format!("it does not end: {}", levels.iter().map(|level| standing(level)).collect::<String>()))
}

/// Where a level stands.
fn standing(level: &LevelShared) -> String {
    let (due, waiting) = (level.sum(|share| &share.due), level.sum(|share| &share.waiting));
    let done = Outcome::ALL.iter().map(|outcome| level.sum(|share| &share.outcomes[*outcome as usize])).sum::<u64>();
    let (visit, reason, queues) = (level.plan.visit, level.reason(), level.queues.load(Relaxed));
    let (start_ns, closed, members) = (level.start_ns(), level.closed.load(Relaxed), level.members);
    format!(
        "\n  level {visit}: began {start_ns}, {closed} of {members} closed it, {reason:?}, {due} due, {done} done, {waiting} wait in {queues} queues"
    )
}

/// Ends that were moved, by visit.
type MovedEnds = Rc<RefCell<BTreeMap<u32, i64>>>;

/// The user: asks for levels and stops some.
fn ask(
    scenario: &Scenario,
    world: &Rc<World>,
    levels: &[Arc<LevelShared>],
    events: &Sender<Event>,
    unasked: &Rc<Cell<usize>>,
) -> (Rc<RefCell<Told>>, MovedEnds) {
    let begin_ns = world.now_ns();
    let (user, events_of_user, all) = (world.clone(), events.clone(), levels.to_vec());
    let (waits, unasked) = (scenario.asked_after_ns.clone(), unasked.clone());
    world.spawn("the user".into(), async move {
        for (level, wait_ns) in all.into_iter().zip(waits) {
            user.sleep_until(user.now_ns() + wait_ns).await;
            let _ = events_of_user.send(Event::Queue(level));
            unasked.set(unasked.get() - 1);
        }
    });
    // A level that nothing would end is stopped in the end: one whose target answers nothing and that goes by count.
    let last = levels.iter().enumerate().map(|(at, _)| (at, 5_000 * MS, 5 * MS));
    for (level, at_ns, drain_ns) in scenario.stops.iter().copied().chain(last) {
        let (user, events, level) = (world.clone(), events.clone(), levels[level].clone());
        world.spawn("a stop".into(), async move {
            user.sleep_until(begin_ns + at_ns).await;
            Level { shared: level, events }.stop_for(drain_ns, Reason::Stopped);
        });
    }
    let told = Rc::<RefCell<Told>>::default();
    for level in levels.iter().filter(|level| level.plan.held) {
        let (user, events, told, lead_ns) = (world.clone(), events.clone(), told.clone(), scenario.first_lead_ns);
        let starts = start(user, events, level.clone(), lead_ns, told);
        world.spawn("a start".into(), starts);
    }
    let moved = Rc::<RefCell<BTreeMap<u32, i64>>>::default();
    for (level, (after_ns, by)) in levels.iter().zip(&scenario.moves) {
        let Some(close_at_ns) = level.plan.close_at_ns else { continue };
        let by_ns = level.plan.stop.duration_ns.unwrap_or(0) / 4000 * by;
        let (user, events, level, moved) = (world.clone(), events.clone(), level.clone(), moved.clone());
        let at_ns = begin_ns + after_ns;
        world.spawn("a move".into(), async move {
            user.sleep_until(at_ns).await;
            let (answer, answered) = sync_channel(1);
            let close_at_ns = close_at_ns + by_ns;
            let _ = events.send(Event::CloseAt { level: level.clone(), close_at_ns, answer });
            if let Some(Ok(())) = answer_of(&user, &answered).await {
                moved.borrow_mut().insert(level.plan.visit, close_at_ns);
            }
        });
    }
    (told, moved)
}

/// What the coordinator answers; none when the session is over.
async fn answer_of(user: &Rc<World>, answered: &Receiver<Result<()>>) -> Option<Result<()>> {
    loop {
        match answered.try_recv() {
            Ok(said) => return Some(said),
            Err(TryRecvError::Empty) => user.sleep_until(user.now_ns() + MS).await,
            Err(TryRecvError::Disconnected) => return None,
        }
    }
}

/// The user tells a level that is held when to start, and another time where that was too late.
async fn start(
    user: Rc<World>,
    events: Sender<Event>,
    level: Arc<LevelShared>,
    first_lead_ns: i64,
    told: Rc<RefCell<Told>>,
) {
    let mut lead_ns = first_lead_ns;
    let is_over = || level.reason().is_some();
    while !is_over() {
        user.sleep_until(user.now_ns() + MS).await;
        if !level.is_prepared() {
            continue;
        }
        let (answer, answered) = sync_channel(1);
        let start_ns = user.now_ns() + lead_ns;
        let _ = events.send(Event::StartAt { level: level.clone(), start_ns, answer });
        let Some(said) = answer_of(&user, &answered).await else { return };
        let is_taken = said.is_ok();
        told.borrow_mut().entry(level.plan.visit).or_default().push((lead_ns, start_ns, is_taken));
        if is_taken {
            return;
        }
        lead_ns = 60 * MS;
    }
}

fn context() -> Arc<Context> {
    let target = r#"{"host":"127.0.0.1","port":1,"method":"GET","path":"/","trace":true,"timeout_ns":30000000,"connect_timeout_ns":20000000}"#;
    let mix =
        format!(r#"{{"requests":[{{"path":"/","segments":[]}}],"of_row":[0,0,0,0,0,0],"sessions":{SESSIONS:?}}}"#);
    let mix: Mix = serde_json::from_str(&mix).expect("a mix");
    let target = serde_json::from_str(target).expect("a target");
    Arc::new(Context::new(target, vec![], vec![vec![]; SESSIONS.len()], Some(mix)).expect("a context"))
}
