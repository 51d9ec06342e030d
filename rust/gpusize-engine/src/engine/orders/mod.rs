//! The engine's hand-over in every order of events: a session whose coordinator, workers, slots, pacers and exchanges are the
//! real ones, on one thread, in virtual time, with a server in memory. Which task goes next, and when time moves, is drawn from
//! a seed; so is what the user asks for and how the server behaves.
//!
//! Cases grow, so that the first that fails is a small one. `GPUSIZE_ORDERS=20000` runs so many of them, and
//! `GPUSIZE_ORDERS=3:1207` the one of this size and seed.
//!
//! What threads do to each other between two waits of one of them is not tried: a task's turn is one step here.

mod case;
mod check;
mod dice;
mod hosts;
pub mod network;
pub mod outside;
mod scenario;
mod sharing;
mod world;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Cases without being asked for more: some seconds, unoptimised.
const CASES: usize = 600;
const LARGEST: u64 = 6;

/// Cases grow, and those of one size have seeds of their own.
fn case(number: usize, of: usize) -> (u64, u64) {
    (1 + number as u64 * LARGEST / of as u64, number as u64)
}

fn try_one(size: u64, seed: u64) -> Result<(), String> {
    let dice = dice::Dice::new(seed, size + (1 << 32));
    case::run(scenario::Scenario::draw(seed, size), &dice).and_then(|outcome| {
        check::check(&outcome).map_err(|what| format!("{what}\n  {:?}{}", outcome.scenario, outcome.story))
    })
}

#[test]
fn no_order_of_events_loses_doubles_or_overtakes_a_request_or_keeps_a_level_from_its_end() {
    let asked = std::env::var("GPUSIZE_ORDERS").unwrap_or_default();
    let cases: Vec<(u64, u64)> = if let Some((size, seed)) = asked.split_once(':') {
        vec![(size.parse().expect("a size"), seed.parse().expect("a seed"))]
    } else {
        let count = asked.parse().unwrap_or(CASES);
        (0..count).map(|number| case(number, count)).collect()
    };
    let next = AtomicUsize::new(0);
    let failed = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((size, seed)) = cases.get(next.fetch_add(1, Relaxed)) {
                    if let Err(what) = try_one(*size, *seed) {
                        super::level::lock(&failed).push((*size, *seed, what));
                        next.store(usize::MAX / 2, Relaxed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_default();
    if let Some((size, seed, what)) = failed.iter().min_by_key(|(size, seed, _)| (size, seed)) {
        panic!("size {size}, seed {seed} (GPUSIZE_ORDERS={size}:{seed} runs it alone): {what}");
    }
}
