//! Watches recorded from a real control plane (Kubernetes 1.37.2), whole, in any pieces, and broken.
#![allow(clippy::unwrap_used)] // a failed helper is a failed test

use std::collections::BTreeSet;
use std::path::Path;

use gpusize_kube::book::Book;
use gpusize_kube::lines::{At, Ended, Told, take_lines};
use gpusize_kube::listing::{Differences, Listing};
use gpusize_kube::managed::without_managed_fields;
use gpusize_kube::object::Object;

const FILES: [(&str, &str); 4] =
    [("Pod", "pods"), ("Job", "jobs"), ("PersistentVolumeClaim", "claims"), ("Event", "events")];

fn recorded(file: &str) -> Vec<u8> {
    let folder = Path::new("../../tests/fixtures/kube/watch");
    std::fs::read(folder.join(format!("{file}.jsonl"))).unwrap()
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|each| *each == b'\n').filter(|line| !line.is_empty())
}

fn take(book: &mut Book, kind: &str, bytes: &[u8], initial: bool) -> Told {
    take_lines(book, kind, bytes, At { received_ns: 1, initial, late: false })
}

#[test]
fn every_recorded_line_is_taken_in_whatever_pieces_it_comes() {
    for (kind, file) in FILES {
        let bytes = recorded(file);
        let (mut whole, mut single) = (Book::new(true), Book::new(true));
        let told = take(&mut whole, kind, &bytes, true);
        assert_eq!((told.ended, told.count), (None, lines(&bytes).count() as u64), "{file}");
        let mut initial = true;
        for line in lines(&bytes) {
            initial = take(&mut single, kind, line, initial).initial;
        }
        assert!(!initial, "a bookmark ended what the watch began with");
        assert_eq!(single.take_news(), whole.take_news());
        assert_eq!(single.take_rows().unwrap(), whole.take_rows().unwrap());
        assert_eq!(single.take_met(), whole.take_met());
    }
}

#[test]
fn a_pod_lives_from_moment_to_moment() {
    let bytes = recorded("pods");
    let (mut book, mut moments) = (Book::new(true), Vec::new());
    for line in lines(&bytes) {
        take(&mut book, "Pod", line, false);
        let news = book.take_news().into_iter().filter(|news| news.name.starts_with("w-000001"));
        let new: BTreeSet<String> = news.map(|news| news.moment).collect();
        moments.extend((!new.is_empty()).then_some(new));
    }
    let lived: Vec<Vec<&str>> = moments.iter().map(|new| new.iter().map(String::as_str).collect()).collect();
    assert_eq!(
        lived,
        [
            vec!["created"],
            vec!["unschedulable"], // its claim was not bound
            vec!["bound", "scheduled"],
            vec!["initialized", "ready_to_start"],
            vec!["containers_ready", "ready", "running", "started"],
            vec!["succeeded"],
            vec!["deleting"],
            vec!["deleted"],
        ]
    );
}

#[test]
fn a_pod_without_its_managed_fields_is_the_same() {
    let bytes = recorded("pods");
    let mut cut = 0;
    for line in lines(&bytes) {
        let line = std::str::from_utf8(line).unwrap();
        let Some(short) = without_managed_fields(line) else { continue };
        let both = [line, &short].map(|line| format!("{:?}", Object::of_line("Pod", line).unwrap()));
        assert_eq!(both[0], both[1]);
        assert!(short.contains("\"managedFields\":[]"));
        cut += 1;
    }
    assert_eq!(cut, lines(&bytes).count() - 1, "all but the bookmark");
}

#[test]
fn what_is_taken_again_says_nothing_new() {
    for (kind, file) in FILES {
        let bytes = recorded(file);
        let mut book = Book::new(true);
        take(&mut book, kind, &bytes, false);
        book.take_rows().unwrap();
        book.take_news();
        take(&mut book, kind, &bytes, false);
        assert_eq!((book.rows(), book.take_news()), (0, Vec::new()), "{file}");
    }
}

#[test]
fn events_find_their_object_whichever_comes_first() {
    let (pods, events) = (recorded("pods"), recorded("events"));
    let told = |first: (&str, &[u8]), second: (&str, &[u8])| {
        let mut book = Book::new(true);
        take(&mut book, first.0, first.1, false);
        take(&mut book, second.0, second.1, false);
        let mut news: Vec<_> = book.take_news().into_iter().map(|news| (news.kind, news.uid, news.moment)).collect();
        news.sort();
        (news, book.rows())
    };
    let both = told(("Pod", &pods), ("Event", &events));
    assert_eq!(told(("Event", &events), ("Pod", &pods)), both);
    let mut book = Book::new(true);
    take(&mut book, "Event", &events, false);
    book.forget_events(2);
    take(&mut book, "Pod", &pods, false);
    assert!(book.rows() < both.1, "Events that were forgotten say nothing");
}

/// A list of the last versions of what is there, on two pages.
fn listed(kind: &str, bytes: &[u8]) -> Listing {
    let mut there: Vec<serde_json::Value> = Vec::new();
    for line in lines(bytes) {
        let line: serde_json::Value = serde_json::from_slice(line).unwrap();
        there.retain(|object| object["metadata"]["uid"] != line["object"]["metadata"]["uid"]);
        if line["type"] != "DELETED" && line["type"] != "BOOKMARK" {
            there.push(line["object"].clone());
        }
    }
    let mut listing = Listing::new(kind);
    let (first, rest) = there.split_at(there.len() / 2);
    for (onward, items) in [(Some("more"), first), (None, rest)] {
        let metadata = serde_json::json!({"resourceVersion": "9", "continue": onward});
        let page = serde_json::json!({"metadata": metadata, "items": items}).to_string();
        assert_eq!(listing.add_page(page.as_bytes()).unwrap().as_deref(), onward);
    }
    assert_eq!((listing.version(), listing.len()), ("9", there.len()));
    listing
}

#[test]
fn a_list_of_what_was_watched_has_nothing_new() {
    for (kind, file) in FILES {
        let bytes = recorded(file);
        let listing = listed(kind, &bytes);
        let mut book = Book::new(false);
        assert!(book.differs(&listing) || listing.is_empty(), "{file}");
        take(&mut book, kind, &bytes, false);
        book.take_rows().unwrap();
        assert!(!book.differs(&listing), "{file}");
        assert_eq!(book.compare(&listing, 5).unwrap(), Differences::default());
        assert_eq!((book.rows(), book.there(kind).unwrap().count()), (0, listing.len()));
        // Nothing is there any more; Events have no moments of their own.
        let gone = book.compare(&Listing::new(kind), 6).unwrap();
        let moments = if kind == "Event" { 0 } else { listing.len() };
        assert_eq!((gone.vanished.len(), book.rows(), book.there(kind).unwrap().count()), (moments, moments, 0));
    }
}

#[test]
fn what_is_no_list_is_said_to_be_none() {
    let mut listing = Listing::new("Job");
    assert_eq!(listing.add_page(br#"{"metadata":{"continue":""},"items":null}"#).unwrap(), None);
    assert!(listing.add_page(br#"{"items":[]}"#).is_err());
    assert!(listing.add_page(br#"{"metadata":{},"items":[{}]}"#).is_err());
}

#[test]
fn a_line_that_is_cut_off_is_no_object_and_what_came_before_stands() {
    for (kind, file) in FILES {
        let bytes = recorded(file);
        let line = lines(&bytes).nth(1).unwrap();
        let first = take(&mut Book::new(false), kind, line, false);
        for cut in 1..line.len() {
            let told = take(&mut Book::new(false), kind, &[line, b"\n", &line[..cut]].concat(), false);
            assert_eq!((told.count, &told.version), (1, &first.version));
            assert!(matches!(told.ended, Some(Ended::NoObject(_))), "{file} cut at {cut}");
        }
    }
}

#[test]
fn no_change_of_a_byte_is_too_much() {
    for (kind, file) in FILES {
        let bytes = recorded(file);
        // From each place on the next of these in turn.
        let others = *b"\0\"\\{}[]:,0-ntf \xff\xc3\n";
        for (place, line) in lines(&bytes).enumerate() {
            let mut changed = line.to_vec();
            for at in (place % 3..line.len()).step_by(3) {
                changed[at] = others[(at / 3 + place) % others.len()];
                take(&mut Book::new(false), kind, &changed, false);
                changed[at] = line[at];
            }
        }
    }
}

#[test]
fn an_error_need_not_have_the_shape_of_its_kind() {
    let error = br#"{"type":"ERROR","object":{"kind":"Status","metadata":{},"status":"Failure","reason":"Expired","code":410}}"#;
    for kind in ["Pod", "Job", "Event"] {
        let ended = take(&mut Book::new(false), kind, error, true).ended;
        let expected = Ended::Error { code: 410, reason: "Expired".to_owned(), message: String::new() };
        assert_eq!(ended, Some(expected), "{kind}");
    }
    let deep = [b"{\"type\":\"ADDED\",\"object\":".as_slice(), &b"[".repeat(100_000)].concat();
    assert!(matches!(take(&mut Book::new(false), "Pod", &deep, true).ended, Some(Ended::NoObject(_))));
}
