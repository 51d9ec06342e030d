//! How a socket is read that has much to give: its low-water mark, which says how much must have arrived before a reader is
//! woken, and bytes that nobody needs, which the system throws away without a copy.
#![allow(unsafe_code)] // neither std nor socket2 has these options

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Set it. A system without it wakes the reader as ever.
pub fn set(socket: &impl AsFd, bytes: usize) {
    let socket: BorrowedFd<'_> = socket.as_fd();
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is borrowed for the call, and `value` is a readable int of the size that is given.
    unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw const value).cast(), size);
    }
}

/// Throw away at most `bytes` of a TCP socket that does not block; says how many, none at the end of its stream.
pub fn discard(socket: &impl AsFd, bytes: usize) -> io::Result<usize> {
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: with MSG_TRUNC Linux writes nothing of a TCP stream, so that no memory is handed over (tcp(7)).
    let n = unsafe { libc::recv(socket, std::ptr::null_mut(), bytes, libc::MSG_TRUNC | libc::MSG_DONTWAIT) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}
