//! Event streams.

use gpusize_engine::wire::sse::{Piece, Splitter};

use super::cases::{Case, bytes, load, ways};
use super::readers::sse::{Event, reference, split};

fn wanted(case: &Case) -> Vec<Event> {
    let events = case.get("want").as_array().unwrap();
    events
        .iter()
        .map(|event| match event.get("step") {
            Some(step) => Event::Step(bytes(step)),
            None => Event::Data(bytes(event)),
        })
        .collect()
}

#[test]
fn every_stream_is_split_as_expected_in_all_pieces() {
    let cases = load("sse");
    assert!(cases.len() > 40, "{} cases", cases.len());
    for case in cases {
        let other = case.get("other").as_str().map(str::as_bytes);
        let want = wanted(&case);
        assert_eq!(reference(&case.wire, other), want, "{}, as the reference reads it", case.name);
        for pieces in ways(&case.wire) {
            let lengths: Vec<usize> = pieces.iter().map(|p| p.len()).collect();
            assert_eq!(split(&pieces, other), want, "{} in pieces of {lengths:?}", case.name);
        }
    }
}

#[test]
fn an_event_is_handed_on_with_the_byte_that_completes_it() {
    for case in load("sse") {
        let other = case.get("other").as_str().map(str::as_bytes);
        for end in (0..=case.wire.len()).take(700) {
            let text = &case.wire[..end];
            assert_eq!(split(&[text], other), reference(text, other), "{}, its first {end} bytes", case.name);
        }
    }
}

#[test]
fn lines_and_events_beyond_all_bounds_are_cut_alike_whole_and_in_pieces() {
    const LIMIT: usize = 16 << 20;
    let long = [&b"data: "[..], &vec![b'x'; LIMIT], b"\n\ndata: next\n\n"].concat();
    let many =
        [&b"data: "[..], &vec![b'y'; LIMIT - 8], b"\n", &b"data: zz\n".repeat(100_000), b"\ndata: next\n\n"].concat();
    for (wire, longest) in [(long, LIMIT - "data: ".len()), (many, LIMIT)] {
        for step in [wire.len(), 1 << 20, 65_521] {
            let mut splitter = Splitter::default();
            let mut lengths = Vec::new();
            for piece in wire.chunks(step) {
                splitter.feed(piece, None, &mut |piece| match piece {
                    Piece::Data(data) | Piece::Step(data) => lengths.push(data.len()),
                });
            }
            assert_eq!(lengths, [longest, 4], "in pieces of {step}");
        }
    }
}

#[test]
fn a_step_that_never_becomes_a_document_costs_no_more_than_its_length() {
    // Parsing it anew after every line would take hours.
    let wire = [&b"step: {\"a\":[{}\n"[..], &b"step: ,{}\n".repeat(1 << 20), b"\n"].concat();
    let events = split(&[&wire], Some(b"step"));
    assert!(matches!(&events[..], [Event::Step(step)] if step.len() > 4 << 20));
    let wire = [&b"step: {} x\n"[..], &b"step: {}\n".repeat(1 << 20), b"\n"].concat();
    assert_eq!(split(&[&wire], Some(b"step")).len(), 1);
}
