//! Writes the Rust of the KServe messages where it is checked in.

use std::{fs, io};

fn main() -> io::Result<()> {
    fs::write(codegen::messages_path(), codegen::messages()?)
}
