//! The low-water mark of a socket: how much must have arrived before a reader is woken.
#![allow(unsafe_code)] // neither std nor socket2 has this option

use std::os::fd::{AsRawFd, BorrowedFd};

/// Set it. A system without it wakes the reader as ever.
pub fn set(socket: &impl std::os::fd::AsFd, bytes: usize) {
    let socket: BorrowedFd<'_> = socket.as_fd();
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is borrowed for the call, and `value` is a readable int of the size that is given.
    unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw const value).cast(), size);
    }
}
