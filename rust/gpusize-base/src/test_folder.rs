//! Folders for tests, in the folder for temporary files that all share.

use std::io::ErrorKind;
use std::path::PathBuf;

/// A new folder, which nobody else has: a process of the same number may run in a container beside this one, or have left
/// its own behind.
///
/// # Panics
/// When none can be made.
pub fn fresh(name: &str) -> PathBuf {
    for number in 0_u32.. {
        let path = std::env::temp_dir().join(format!("gpusize-{name}-{}-{number}", std::process::id()));
        match std::fs::create_dir(&path) {
            Ok(()) => return path,
            Err(e) => assert!(e.kind() == ErrorKind::AlreadyExists, "no folder {}: {e}", path.display()),
        }
    }
    unreachable!("a free name is found before the numbers end")
}

#[cfg(test)]
mod tests {
    use super::fresh;

    #[test]
    fn a_folder_that_somebody_has_is_not_taken() {
        let folders: Vec<_> = (0..3).map(|_| fresh("twice")).collect();
        assert!(folders[0] != folders[1] && folders[1] != folders[2] && folders[0] != folders[2]);
        for folder in folders {
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
            std::fs::remove_dir(folder).unwrap();
        }
    }
}
