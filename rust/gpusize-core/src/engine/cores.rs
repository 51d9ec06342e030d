//! Which cores the workers run on.
#![allow(unsafe_code)] // std has no call for it

use std::io;

use crate::error::{Error, Result};

/// Refuse cores that this process may not use.
pub fn check(pin: &[usize]) -> Result<()> {
    let allowed = allowed().map_err(|e| Error::environment(e.to_string(), "cores", "leave pin out"))?;
    // SAFETY: `allowed` is a whole set, and the number is checked against its size.
    let has = |core: usize| core < libc::CPU_SETSIZE as usize && unsafe { libc::CPU_ISSET(core, &allowed) };
    match pin.iter().find(|core| !has(**core)) {
        Some(core) => {
            Err(Error::usage(format!("core {core} is not one that this process may use"), "pin", "see nproc"))
        }
        None => Ok(()),
    }
}

/// Keep the calling thread, worker `worker`, on its core.
pub fn pin(pin: &[usize], worker: usize) -> io::Result<()> {
    let Some(turn) = worker.checked_rem(pin.len()) else { return Ok(()) };
    // SAFETY: a set of all zeros is an empty one; the core is one that `check` has let through.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(pin[turn], &mut set);
        set
    };
    // SAFETY: the set is valid and has the size that is given; 0 is the calling thread.
    let result = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn allowed() -> io::Result<libc::cpu_set_t> {
    // SAFETY: a set of all zeros is an empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set may be written and has the size that is given; 0 is the calling thread.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(set) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_on_its_core() {
        let before = allowed().expect("a set");
        let all: Vec<usize> = (0..64).filter(|core| check(&[*core]).is_ok()).collect();
        assert!(check(&[usize::MAX]).is_err() && check(&all).is_ok());
        std::thread::spawn(move || {
            pin(&all, all.len()).expect("the first core again");
            assert!(check(&all[..1]).is_ok() && all[1..].iter().all(|core| check(&[*core]).is_err()));
            pin(&[], 3).expect("nothing to do");
        })
        .join()
        .expect("the thread ends");
        // SAFETY: both are whole sets.
        assert!(unsafe { libc::CPU_EQUAL(&before, &allowed().expect("a set")) }, "other threads are where they were");
    }
}
