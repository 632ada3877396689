//! Entries: what trees consist of, in memory and in runs.

use std::cmp::{Ordering, Reverse};

use crate::error::Result;
use crate::table::run::Stretch;

/// One version of one key.
///
/// Entries are ordered by key ascending and, within a key, by position descending: the newest
/// version comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key; compared as bytes. Never longer than [`crate::limits::TABLE_KEY_BYTES_MAX`].
    pub key: &'a [u8],
    /// Position of the record that made this version.
    pub position: u64,
    /// What the key has from this position on; `None` is a tombstone.
    pub payload: Option<&'a [u8]>,
}

impl Entry<'_> {
    /// The order of entries in a tree.
    pub fn order(&self, other: &Entry<'_>) -> Ordering {
        (self.key, Reverse(self.position)).cmp(&(other.key, Reverse(other.position)))
    }
}

/// Which way to go through entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// In the order of entries: keys ascend, the newest version of a key comes first.
    Forward,
    /// The exact reverse: keys descend, the newest version of a key comes last.
    Reverse,
}

/// Goes through entries one by one. Before the first [`Entries::advance`] it stands nowhere.
pub trait Entries {
    /// Step to the next entry; false behind the last one, and from then on.
    fn advance(&mut self) -> Result<bool>;

    /// The entry it stands on. The bytes are valid until the next step.
    ///
    /// # Panics
    /// May panic where the last step was not true.
    fn entry(&self) -> Entry<'_>;

    /// Where `entry` stands in the order against an entry, which needs no payload.
    fn rank(&self) -> (&[u8], Reverse<u64>) {
        let entry = self.entry();
        (entry.key, Reverse(entry.position))
    }
}

/// Entries that know more of what comes than the next one, if they lie in one page.
pub trait Stretches: Entries {
    /// The entry it stands on and those behind it in its page that come next, whatever else it goes through. None if it
    /// does not stand in a page, or goes in reverse.
    fn ahead(&self) -> Option<Stretch<'_>>;

    /// Stand on an entry that was [`Stretches::ahead`]: so many behind the one it stands on.
    fn pass(&mut self, count: usize);
}
