//! Descriptors kept for when the process has no other left.
//!
//! # Theory of operation
//!
//! A program around the store may use up its descriptors: connections of a server, a leak. The store needs a few
//! for a moment whenever it begins a segment or a manifest file. So a few are held from the first open on. When
//! the system refuses one, a spare is closed and the open is tried again, and the next open or close of a file
//! takes the spare back.
//!
//! # Invariants
//!
//! - Opens that need a spare do so one after the other, so that two threads of the store never take the
//!   descriptor that the other has let go. Another part of the program may: then the open fails, and the store
//!   tries it again later.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::error::lacks_descriptors;

/// What the beginning of a segment holds open at a time, beside what it had: the slot, its writer, the side file,
/// a manifest file and the new `CURRENT`. One more for a reader.
const SPARES: usize = 6;

/// The spares of this process, to which the limit applies as well.
static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// How many there are, to be asked without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Open a file by `open`, with a spare if there is no other descriptor.
pub(super) fn open<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    refill();
    match open() {
        Err(error) if lacks_descriptors(&error) => lend(open, error),
        other => other,
    }
}

fn lend<T>(open: impl Fn() -> io::Result<T>, refused: io::Error) -> io::Result<T> {
    let mut held = HELD.lock();
    if held.pop().is_none() {
        return Err(refused);
    }
    COUNT.store(held.len(), Ordering::Relaxed);
    open()
}

/// Takes the spares back when it is dropped: the last field of what holds a file.
pub(super) struct Refill;

impl Drop for Refill {
    fn drop(&mut self) {
        refill();
    }
}

/// Hold as many spares as there should be, if the system gives them.
pub(super) fn refill() {
    if COUNT.load(Ordering::Relaxed) == SPARES {
        return;
    }
    let Some(mut held) = HELD.try_lock() else {
        return;
    };
    while held.len() < SPARES {
        match File::open("/dev/null") {
            Ok(file) => held.push(file),
            Err(_) => break,
        }
    }
    COUNT.store(held.len(), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_open_gets_the_place_of_a_spare() {
        refill();
        let refused = || io::Error::from(rustix::io::Errno::MFILE);
        let tries = std::cell::Cell::new(0);
        let opened = open(|| {
            tries.set(tries.get() + 1);
            if tries.get() == 1 {
                Err(refused())
            } else {
                File::open("/dev/null")
            }
        });
        assert!(opened.is_ok() && tries.get() == 2);
        let other = open(|| Err::<File, _>(rustix::io::Errno::ACCESS.into()));
        assert_eq!(other.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
