//! Files that stay open: a `pread` of one costs a fifth of opening, reading and closing it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// The longest text that is read at once; `memory.stat` has some 8 KiB.
const FIRST_BYTES: usize = 16 * 1024;
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// Memory that every text is read into.
#[derive(Debug)]
pub struct Buffer(Vec<u8>);

impl Default for Buffer {
    fn default() -> Self {
        Self(vec![0; FIRST_BYTES])
    }
}

impl Buffer {
    /// The text of a file from its beginning. The kernel writes it anew for each call.
    pub fn read(&mut self, file: &File) -> io::Result<&[u8]> {
        loop {
            let bytes = retried(|| file.read_at(&mut self.0, 0))?;
            if bytes < self.0.len() || bytes >= MOST_BYTES {
                return Ok(&self.0[..bytes]);
            }
            self.0.resize(self.0.len() * 4, 0);
        }
    }

    /// As [`Buffer::read`], of a file that the kernel hands out in pieces.
    pub fn read_all(&mut self, file: &File) -> io::Result<&[u8]> {
        let mut end = 0;
        loop {
            let bytes = retried(|| file.read_at(&mut self.0[end..], end as u64))?;
            end += bytes;
            if bytes == 0 || end >= MOST_BYTES {
                return Ok(&self.0[..end]);
            }
            if end == self.0.len() {
                self.0.resize(self.0.len() * 4, 0);
            }
        }
    }
}

fn retried(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Open for reading, and for writing too where the file's mode allows it: a `memory.peak` that can be written can be reset.
pub fn open(path: &Path) -> io::Result<(File, bool)> {
    let writable = path.metadata()?.mode() & 0o200 != 0;
    if writable && let Ok(file) = OpenOptions::new().read(true).write(true).open(path) {
        return Ok((file, true));
    }
    Ok((File::open(path)?, false))
}

/// The file is of something that is gone: a removed group (ENODEV), an ended process (ESRCH), a removed file.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENOENT | libc::ESRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_read_whole_again_and_again() {
        let dir = crate::test_folder::fresh("kept");
        let path = dir.join("file");
        let long = "x".repeat(FIRST_BYTES * 3);
        std::fs::write(&path, &long).expect("a file");
        let (file, writable) = open(&path).expect("open");
        let mut buffer = Buffer::default();
        assert!(writable);
        assert_eq!(buffer.read(&file).expect("read").len(), long.len());
        std::fs::write(&path, "5\n").expect("a file");
        assert_eq!(buffer.read(&file).expect("read"), b"5\n");
        assert_eq!(buffer.read_all(&file).expect("read"), b"5\n");
        std::fs::remove_file(&path).expect("remove");
        assert!(is_gone(&open(&path).expect_err("removed")));
        std::fs::remove_dir(dir).expect("remove");
    }

    #[test]
    fn a_file_in_pieces_is_read_to_its_end() {
        let file = File::open("/proc/vmstat").expect("every Linux has it");
        let mut buffer = Buffer::default();
        let text = String::from_utf8_lossy(buffer.read_all(&file).expect("read")).into_owned();
        assert!(text.starts_with("nr_") && text.ends_with('\n'));
        assert!(text.contains("\noom_kill "), "a key near the end");
    }
}
