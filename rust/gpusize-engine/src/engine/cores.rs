//! Which cores the workers run on.
#![allow(unsafe_code)] // std has no call for it

use std::io;

use gpusize_base::error::{Error, Result};

/// Cores of the first set that the system is asked with, as many as the C library's type holds.
const FIRST_BITS: usize = 1_024;
/// No system has as many.
const MOST_BITS: usize = 1 << 22;
const WORD_BITS: usize = libc::c_ulong::BITS as usize;

/// Refuse cores that this process may not use.
pub fn check(pin: &[usize]) -> Result<()> {
    let allowed = allowed().map_err(|e| Error::environment(e.to_string(), "cores", "leave pin out"))?;
    match pin.iter().find(|core| !has(&allowed, **core)) {
        Some(core) => {
            Err(Error::usage(format!("core {core} is not one that this process may use"), "pin", "see nproc"))
        }
        None => Ok(()),
    }
}

/// Keep the calling thread, worker `worker`, on its core.
pub fn pin(pin: &[usize], worker: usize) -> io::Result<()> {
    let Some(turn) = worker.checked_rem(pin.len()) else { return Ok(()) };
    let core = pin[turn];
    let mut set: Vec<libc::c_ulong> = vec![0; core / WORD_BITS + 1];
    set[core / WORD_BITS] = 1 << (core % WORD_BITS);
    // SAFETY: the set may be read and has the size that is given; 0 is the calling thread.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(set.as_slice()), set.as_ptr().cast()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn allowed() -> io::Result<Vec<libc::c_ulong>> {
    allowed_by(|set| {
        // SAFETY: the set may be written and has the size that is given; 0 is the calling thread.
        let result = unsafe { libc::sched_getaffinity(0, size_of_val(set), set.as_mut_ptr().cast()) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    })
}

/// A system with more cores than a set holds refuses it: ask with larger ones until it does not.
fn allowed_by(ask: impl Fn(&mut [libc::c_ulong]) -> io::Result<()>) -> io::Result<Vec<libc::c_ulong>> {
    let mut bits = FIRST_BITS;
    loop {
        let mut set = vec![0; bits / WORD_BITS];
        match ask(&mut set) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) && bits < MOST_BITS => bits *= 2,
            result => return result.map(|()| set),
        }
    }
}

fn has(set: &[libc::c_ulong], core: usize) -> bool {
    set.get(core / WORD_BITS).is_some_and(|word| word >> (core % WORD_BITS) & 1 == 1)
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
        assert_eq!(before, allowed().expect("a set"), "other threads are where they were");
    }

    #[test]
    fn a_machine_of_more_than_1024_cores_says_which_may_be_used() {
        // As the kernel does where 4,096 are possible: a smaller set is refused.
        let set = allowed_by(|set| {
            if set.len() * WORD_BITS < 4_096 {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            set[2_000 / WORD_BITS] |= 1 << (2_000 % WORD_BITS);
            Ok(())
        });
        let set = set.expect("a set that is large enough");
        assert!(has(&set, 2_000) && !has(&set, 2_001) && !has(&set, 1 << 40));
        let refused = allowed_by(|_| Err(io::Error::from_raw_os_error(libc::EINVAL)));
        assert!(refused.is_err(), "a system that refuses every size is not asked for ever");
    }
}
