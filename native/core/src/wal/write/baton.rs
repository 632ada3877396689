//! Whose turn it is to wake up.
//!
//! All threads that wait for a group could be woken at once, but they return into code that only one of
//! them can run at a time (Python holds its interpreter lock): each would wake up, find the lock taken
//! and sleep again. So they wake one another: whoever leaves passes a baton on, at the moment it chooses.

use std::sync::Arc;

use parking_lot::Condvar;

/// Where the threads that wait for one group sleep.
pub(super) type Turn = Arc<Condvar>;

/// Wakes the next thread that waits for the same group when it is dropped: in Python once the
/// interpreter lock is held again, elsewhere at once.
#[must_use = "the others that wait for the group sleep until this is dropped"]
pub struct Baton(pub(crate) Option<Turn>);

impl Drop for Baton {
    fn drop(&mut self) {
        if let Some(turn) = &self.0 {
            turn.notify_one();
        }
    }
}
