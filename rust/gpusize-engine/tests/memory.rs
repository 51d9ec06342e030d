//! What is kept of three million requests takes no more memory than what is kept of one million.
#![allow(unsafe_code, clippy::unwrap_used)] // the allocator that counts; a failed helper is a failed test

#[path = "../../gpusize-base/src/test_folder.rs"]
mod test_folder;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use gpusize_engine::outcome::Outcome;
use gpusize_engine::record::columns::Common;
use gpusize_engine::record::counter::{Counter, Keeping, MOST_WAITING_BYTES};
use gpusize_engine::record::feed::Report;
use gpusize_engine::record::{Chunk, Due, Row};

struct Counting;

static HELD: AtomicI64 = AtomicI64::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size() as i64, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const S: i64 = 1_000_000_000;
const PER_SECOND: u64 = 1_000;

/// A second of requests, of which the slowest take minutes and some fail.
fn second(number: u64) -> Box<Chunk> {
    let mut chunk = Chunk::new(Common::default(), PER_SECOND as usize);
    for i in 0..PER_SECOND {
        let seq = number * PER_SECOND + i;
        let end_ns = number as i64 * S + (i * 1_000_000) as i64;
        let took_ns = 1_000_000 + (seq.wrapping_mul(0x9E37_79B9) % 2_000_000_000) as i64;
        let due_ns = end_ns - if i == 7 { 100 * S } else { took_ns };
        let mut row = Row::due(Due { seq, due_ns, fired_ns: due_ns + 50_000, ..Due::default() });
        (row.sent_ns, row.end_ns) = (due_ns + 60_000, end_ns);
        row.outcome = if i == 9 { Outcome::Timeout } else { Outcome::Ok };
        chunk.push(&row);
        if i % 100 == 0 {
            chunk.push_gaps(&[40, 700, 701]);
        }
    }
    Box::new(chunk)
}

/// Bytes held after each million of requests.
fn held_after_millions(sample: u64) -> Vec<i64> {
    let root = test_folder::fresh("memory");
    std::fs::create_dir_all(root.join("records")).unwrap();
    let dir = Some(root.join("records"));
    let counter =
        Counter::start(Keeping { dir, keep_bytes: 0, sample, most_waiting_bytes: MOST_WAITING_BYTES }).unwrap();
    let (teller, feed) = (counter.teller(), counter.feed());
    let mut held = Vec::new();
    for number in 0..3_000_u64 {
        teller.rows(second(number), 0);
        let events = vec![(number as u32, PER_SECOND, PER_SECOND)];
        let report = Report { members: 1, through: number as u32 + 1, events, ..Report::default() };
        teller.report(report);
        if (number + 1) % 100 == 0 {
            while feed.seconds(number as u32).is_empty() || counter.waiting_bytes() > 0 {
                std::thread::yield_now();
            }
        }
        if (number + 1) % 1_000 == 0 {
            held.push(HELD.load(Relaxed));
        }
    }
    let written = counter.finish();
    assert_eq!((written.error, written.rows), (None, 3_000_000_u64.div_ceil(sample)));
    assert_eq!(feed.totals().count(), 3_000_000);
    std::fs::remove_dir_all(root).unwrap();
    held
}

#[test]
fn memory_does_not_grow_with_the_number_of_requests() {
    for sample in [1, 64] {
        let held = held_after_millions(sample);
        // Room for what waits to become a part, which depends on the moment: about 14 bytes a row, 2^18 rows at most.
        let grown = (held[2] - held[0]).max(held[2] - held[1]);
        assert!(grown < 12 << 20, "1 in {sample}: {held:?}");
        assert!(held[2] < 64 << 20, "1 in {sample}: {held:?}");
    }
}
