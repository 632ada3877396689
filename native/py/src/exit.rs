//! The end of the interpreter.
//!
//! # Theory of operation
//!
//! A daemon thread that asks for the interpreter's lock when the interpreter has ended is unwound where it
//! is. Inside the core that is an abort of the process. So whoever ends the interpreter says so first: from
//! then on a thread that would come back from the core, or run Python code in it to build an error, stays
//! away until the process is gone. Those that are on their way then are waited for.
//!
//! # Invariants
//!
//! A thread counts itself as on its way before it looks whether the end has begun, and who ends the
//! interpreter counts only after it has said so. So a thread is either counted or sees the end.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Who ends the interpreter; set when it begins to.
static ENDING: OnceLock<ThreadId> = OnceLock::new();

/// Threads that ask for the interpreter's lock in the core, or may.
static ON_THEIR_WAY: AtomicUsize = AtomicUsize::new(0);

/// How long a thread stays away. Whoever waits for it after all, in a handler that comes late, is not held
/// up for ever.
const AWAY: Duration = Duration::from_secs(10);

/// How long those on their way are waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The interpreter ends, in this thread: nobody else comes back.
#[pyfunction]
pub fn exiting(py: Python<'_>) {
    ENDING.get_or_init(|| thread::current().id());
    let deadline = Instant::now() + PATIENCE;
    while ON_THEIR_WAY.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
        py.detach(|| thread::sleep(Duration::from_millis(1)));
    }
}

/// Counts a thread as on its way for as long as it lives.
struct Way;

impl Way {
    /// Go, or stay away.
    fn begin() -> Self {
        ON_THEIR_WAY.fetch_add(1, Ordering::SeqCst);
        let way = Self;
        let ending = ENDING.get();
        if ending.is_some_and(|main| *main != thread::current().id()) {
            drop(way);
            thread::sleep(AWAY);
            ON_THEIR_WAY.fetch_add(1, Ordering::SeqCst);
            return Self;
        }
        way
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        ON_THEIR_WAY.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Run `f` without the interpreter's lock.
pub fn detach<T: Send>(py: Python<'_>, f: impl FnOnce() -> T + Send) -> T {
    let (found, way) = py.detach(|| {
        let found = f();
        (found, Way::begin())
    });
    drop(way);
    found
}

/// Run `f`, which runs Python code.
pub fn with_python<T>(py: Python<'_>, f: impl FnOnce() -> T) -> T {
    // Where the end has begun, this thread must not stay away with the lock.
    let way = if ENDING.get().is_some() {
        py.detach(Way::begin)
    } else {
        Way::begin()
    };
    let found = f();
    drop(way);
    found
}
