//! The inputs that fuzzing left, and those that once broke something, in an ordinary test.
#![allow(clippy::unwrap_used)] // a failed helper is a failed test

use std::path::{Path, PathBuf};

fn holds_for_all(target: &'static str, property: fn(&[u8])) {
    let folder = Path::new("corpus").join(target);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 20, "{} inputs", files.len());
    let all = move || {
        for file in files {
            let input = std::fs::read(&file).unwrap();
            let holds = std::panic::catch_unwind(|| property(&input)).is_ok();
            assert!(holds, "{} breaks {target}", file.display());
        }
    };
    // In a build that is not optimised, the frames of sonic-rs take 16 KB for each level of nesting.
    std::thread::Builder::new().stack_size(16 << 20).spawn(all).unwrap().join().unwrap();
}

#[test]
fn responses_of_http1() {
    holds_for_all("http1", gpusize_fuzz::http1);
}

#[test]
fn connections_of_http2() {
    holds_for_all("http2", gpusize_fuzz::http2);
}

#[test]
fn event_streams() {
    holds_for_all("sse", gpusize_fuzz::sse);
}

#[test]
fn grpc_bodies() {
    holds_for_all("grpc", gpusize_fuzz::grpc);
}
