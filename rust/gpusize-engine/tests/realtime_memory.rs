//! What connections hold of large answers: nothing when they are over, and no more than one budget while they are read.
#![allow(unsafe_code, clippy::unwrap_used)] // the allocator that counts; a failed helper is a failed test

mod engine_common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex, PoisonError};

use arrow_array::types::UInt32Type;
use engine_common::{column, finish, plan, serve, target};
use gpusize_engine::engine::Session;

struct Counting;

static HELD: AtomicI64 = AtomicI64::new(0);
static MOST: AtomicI64 = AtomicI64::new(0);
/// The tests of this file look at one process's memory.
static ALONE: Mutex<()> = Mutex::new(());

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(HELD.fetch_add(layout.size() as i64, Relaxed) + layout.size() as i64, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let more = size as i64 - layout.size() as i64;
        MOST.fetch_max(HELD.fetch_add(more, Relaxed) + more, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SLOTS: usize = 8;
const BUDGET: i64 = 32 << 20;
const SPEC: &str = r#","response":{"tokens_out":"/usage/out"}"#;

/// An answer in JSON of about `size` bytes, with its head.
fn document(size: usize) -> Vec<u8> {
    let body = format!(r#"{{"text":"{}","usage":{{"out":41}}}}"#, "x".repeat(size));
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    [head, body].concat().into_bytes()
}

fn closed(slots: usize) -> String {
    format!(r#"{{"closed":{{"concurrency":{slots},"start":"burst"}}}}"#)
}

fn count(count: usize) -> String {
    format!(r#"{{"count":{count}}}"#)
}

#[test]
fn connections_hold_nothing_of_large_answers_that_are_over() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = Arc::new(document(4 << 20));
    let (port, _) = serve(move |_, socket: &mut TcpStream| socket.write_all(&answer).is_ok());
    let session = Session::open(target(port, SPEC), vec![], vec![vec![]], 1).unwrap();
    let before = HELD.load(Relaxed);
    let (outcome, rows) = finish(&session.level(plan(&closed(SLOTS), &count(2 * SLOTS))).unwrap());
    assert_eq!(outcome.outcomes, [("ok", 2 * SLOTS as u64)].into(), "{:?}", outcome.errors);
    assert_eq!(column::<UInt32Type>(&rows, "tokens_out"), vec![41; 2 * SLOTS]);
    let kept = HELD.load(Relaxed) - before;
    assert!(kept < 4 << 20, "{kept} bytes are held by {SLOTS} idle connections");
}

#[test]
fn all_answers_together_have_one_budget_and_give_it_back() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let whole = Arc::new(document(20 << 20));
    let all = Barrier::new(SLOTS);
    // Each sends most of its answer, far more than the system keeps, and the rest when all have: none can be done before
    // the others hold theirs, or were given up.
    let (port, _) = serve(move |number, socket: &mut TcpStream| {
        let (most, rest) = whole.split_at(18 << 20);
        let sent = socket.write_all(most).is_ok();
        if number < SLOTS {
            all.wait();
        }
        sent && socket.write_all(rest).is_ok()
    });
    let spec = format!(r#"{SPEC},"max_held_bytes":{BUDGET}"#);
    let session = Session::open(target(port, &spec), vec![], vec![vec![]], 2).unwrap();
    let before = HELD.load(Relaxed);
    MOST.store(before, Relaxed);
    let stop = format!(r#"{{"count":{SLOTS},"max_error_share":1.0}}"#);
    let (outcome, _) = finish(&session.level(plan(&closed(SLOTS), &stop)).unwrap());
    let most = MOST.load(Relaxed) - before;
    assert!(most < BUDGET + (16 << 20), "{most} bytes at one time");
    let refused = outcome.outcomes.get("protocol_error").copied().unwrap_or_default();
    assert!(refused >= SLOTS as u64 / 2, "{:?}", outcome.outcomes);
    let said = "no memory for the answer: all answers under way may hold 33554432 bytes (max_held_bytes)";
    assert_eq!(outcome.errors[0].message, said);
    let (again, _) = finish(&session.level(plan(&closed(1), &count(3))).unwrap());
    assert_eq!(again.outcomes, [("ok", 3)].into(), "{:?}", again.errors);
}

#[test]
fn a_document_beyond_64_mib_is_read() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = document(65 << 20);
    let (port, _) = serve(move |_, socket: &mut TcpStream| socket.write_all(&answer).is_ok());
    let session = Session::open(target(port, SPEC), vec![], vec![vec![]], 1).unwrap();
    let (outcome, rows) = finish(&session.level(plan(&closed(1), &count(1))).unwrap());
    assert_eq!(outcome.outcomes, [("ok", 1)].into(), "{:?}", outcome.errors);
    assert_eq!(column::<UInt32Type>(&rows, "tokens_out"), [41]);
}
