//! What a server says on stdout: lines of JSON, each as soon as it is known.

use std::io::{self, Write};

/// Prints a line at once.
pub fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
