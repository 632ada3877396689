//! How far versions may be forgotten, and who says that they may not.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, Result};

/// Most holds of a tree at a time.
pub const HOLDS_MAX: usize = 4096;

/// The floor of a tree, and the holds on it.
#[derive(Debug)]
pub(super) struct Floor {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// What the owner allows.
    wanted: u64,
    /// What some flush or merge has gone by.
    reached: u64,
    /// How many hold each position.
    holds: BTreeMap<u64, usize>,
    count: usize,
}

impl Floor {
    pub fn new(position: u64) -> Arc<Self> {
        let inner = Inner {
            wanted: position,
            reached: position,
            holds: BTreeMap::new(),
            count: 0,
        };
        Arc::new(Self {
            inner: Mutex::new(inner),
        })
    }

    /// Allow that versions which no position from here on sees are forgotten.
    pub fn raise(&self, position: u64) {
        let mut inner = self.inner.lock();
        inner.wanted = inner.wanted.max(position);
    }

    /// The floor that a flush or merge goes by, not above `flushed`. From now on nobody can hold a lower
    /// position.
    pub fn reach(&self, flushed: u64) -> u64 {
        let mut inner = self.inner.lock();
        let held = inner
            .holds
            .first_key_value()
            .map_or(u64::MAX, |(&position, _)| position);
        inner.reached = inner.reached.max(inner.wanted.min(held).min(flushed));
        inner.reached
    }

    /// The floor that one would go by now.
    pub fn position(&self) -> u64 {
        self.inner.lock().reached
    }

    pub fn hold(self: &Arc<Self>, position: u64) -> Result<Hold> {
        let mut inner = self.inner.lock();
        if position < inner.reached {
            let first = inner.reached;
            return Err(Error::Trimmed { position, first });
        }
        if inner.count == HOLDS_MAX {
            return Err(Error::TooLarge {
                what: "number of snapshots that are open at a time",
                size: HOLDS_MAX as u64 + 1,
                max: HOLDS_MAX as u64,
            });
        }
        inner.count += 1;
        *inner.holds.entry(position).or_default() += 1;
        Ok(Hold {
            floor: Arc::clone(self),
            position,
        })
    }
}

/// Keeps what is visible at a position while it lives.
#[derive(Debug)]
pub struct Hold {
    floor: Arc<Floor>,
    position: u64,
}

impl Hold {
    /// The position.
    pub fn position(&self) -> u64 {
        self.position
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut inner = self.floor.inner.lock();
        inner.count -= 1;
        if let Some(count) = inner.holds.get_mut(&self.position) {
            *count -= 1;
            if *count == 0 {
                inner.holds.remove(&self.position);
            }
        }
    }
}
