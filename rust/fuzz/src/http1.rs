//! HTTP/1.1 responses.

use crate::input::Input;
use crate::readers::http1::read;

/// A response is read alike whole, in pieces and a second time, within its bounds and without a panic.
pub fn http1(bytes: &[u8]) {
    let Some(input) = Input::new(bytes) else { return };
    let head_request = input.flags & 1 == 1;
    let whole = read(&input.whole(), head_request);
    assert_eq!(read(&input.pieces(), head_request), whole, "in pieces, and whole");
    if let Ok(read) = whole {
        assert!((200..600).contains(&read.status), "status {}", read.status);
        assert!(read.taken <= input.message.len());
        assert!(read.body.len() < read.taken, "a body without a head");
    }
}
