//! Numbers of runs that tasks are writing.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

/// Gives each number once.
#[derive(Debug)]
pub(super) struct Numbers {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    next: u64,
    reserved: BTreeSet<u64>,
}

impl Numbers {
    pub fn new(next: u64) -> Arc<Self> {
        let reserved = BTreeSet::new();
        Arc::new(Self {
            inner: Mutex::new(Inner { next, reserved }),
        })
    }

    pub fn reserve(self: &Arc<Self>) -> Reserved {
        let mut inner = self.inner.lock();
        let number = inner.next;
        inner.next += 1;
        inner.reserved.insert(number);
        Reserved {
            numbers: Arc::clone(self),
            number,
        }
    }

    /// Lowest number that may still turn up in an edit.
    pub fn settled(&self) -> u64 {
        let inner = self.inner.lock();
        inner.reserved.first().copied().unwrap_or(inner.next)
    }
}

/// A number that belongs to a task while this lives.
#[derive(Debug)]
pub(super) struct Reserved {
    numbers: Arc<Numbers>,
    pub number: u64,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.numbers.inner.lock().reserved.remove(&self.number);
    }
}
