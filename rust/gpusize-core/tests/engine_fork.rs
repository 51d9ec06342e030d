//! A session in a forked process.
#![allow(unsafe_code, clippy::unwrap_used)] // fork; a failed helper is a failed test

mod engine_common;

use engine_common::{hello, open, serve};

#[test]
fn a_child_that_drops_its_parents_session_does_not_wait_for_threads_it_lacks() {
    let (port, _) = serve(hello);
    let mut session = open(port, 2);
    // SAFETY: the child only drops what it has and ends; glibc keeps its allocator usable after a fork.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: plain system calls; an alarm ends a child that hangs, by a signal.
        unsafe { libc::alarm(60) };
        session.close();
        unsafe { libc::_exit(7) };
    }
    let mut status = 0;
    // SAFETY: `status` is a valid place for the result.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "status {status}");
    session.close();
}
